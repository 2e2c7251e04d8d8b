"""Models, evidence and solutions in the file formats of the UAI competitions."""

from skcrf.uai._files import (
    Model,
    Solution,
    read_evidence,
    read_model,
    read_query,
    read_solution,
    write_model,
    write_solution,
)
from skcrf.uai._tasks import TASKS, solve
from skcrf.uai._tokens import UAIError

__all__ = [
    "TASKS",
    "Model",
    "Solution",
    "UAIError",
    "read_evidence",
    "read_model",
    "read_query",
    "read_solution",
    "solve",
    "write_model",
    "write_solution",
]
