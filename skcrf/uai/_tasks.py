"""Tasks of the UAI competitions, solved by any inference that accepts factor graphs."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skcrf._registry import names_of, resolve
from skcrf.graph import ImpossibleError
from skcrf.inference import INFERENCE
from skcrf.uai._files import Solution


class _Task(NamedTuple):
    tau: Callable  # (model, query) -> temperatures
    value: Callable  # (model, query, beliefs) -> value of the solution


#: Temperatures and value of each task.
TASKS = {
    "PR": _Task(
        tau=lambda model, query: 1.0,
        value=lambda model, query, beliefs: float(beliefs.log_z[0] / np.log(10)),
    ),
    "MAR": _Task(
        tau=lambda model, query: 1.0,
        value=lambda model, query, beliefs: [
            p[:card] for p, card in zip(beliefs.mu, model.cards, strict=True)
        ],
    ),
    "MAP": _Task(
        tau=lambda model, query: 0.0,
        value=lambda model, query, beliefs: beliefs.mu.argmax(axis=1),
    ),
    "MMAP": _Task(
        tau=lambda model, query: np.where(np.isin(np.arange(len(model.cards)), query), 0.0, 1.0),
        value=lambda model, query, beliefs: {int(i): int(beliefs.mu[i].argmax()) for i in query},
    ),
}


def solve(model, task, inference="exact", *, evidence=None, query=None):
    """Solve a task.

    Parameters
    ----------
    model : Model
        The model.
    task : {"PR", "MAR", "MAP", "MMAP"}
        PR is the partition function, or the probability of the evidence; MAR are the marginals of all
        variables; MAP are the most probable states of all variables; MMAP are those of the query, with the
        other variables summed out.
    inference : str or BaseInference, default="exact"
        Name or instance of an inference that accepts factor graphs and supports the task.
    evidence : ndarray of shape (n_variables,), default=None
        The state of each observed variable, -1 elsewhere.
    query : ndarray of shape (n_query,), default=None
        The variables of an MMAP task.

    Returns
    -------
    solution : Solution
        The solution.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.uai import Model, solve
    >>> tables = [np.array([0.4, 0.6]), np.array([[0.9, 0.1], [0.2, 0.8]])]
    >>> model = Model("BAYES", np.array([2, 2]), [np.array([0]), np.array([0, 1])], tables)
    >>> round(10 ** solve(model, "PR", evidence=np.array([-1, 1])).value, 6)
    0.52
    """
    if task not in TASKS:
        raise ValueError(f"task must be one of {sorted(TASKS)}, got {task!r}.")
    if (query is None) == (task == "MMAP"):
        raise ValueError(
            f"query must be given for task='MMAP' and for no other task, got {query!r} for task={task!r}."
        )
    if query is not None and not np.isin(query, np.arange(len(model.cards))).all():
        raise ValueError(f"query must have variables below {len(model.cards)}, got {query!r}.")
    method = resolve(INFERENCE, inference, name="inference")
    graph, theta = model.potentials(evidence)
    try:
        beliefs = method.forward(graph, theta, tau=TASKS[task].tau(model, query))
    except ImpossibleError as error:
        if evidence is None:
            raise ValueError("model must have a configuration of probability above 0, got none.") from error
        raise ValueError("evidence must have a probability above 0 under the model, got 0.") from error
    if not beliefs.converged.all():
        n_iter = int(beliefs.n_iter[0])
        able = names_of(INFERENCE, lambda one: one.exact_on == "any" and graph.layout in one.layouts)
        warnings.warn(
            f"{type(method).__name__} did not converge in {n_iter} iterations, so the solution may be "
            f"inaccurate. Increase max_iter or use one of the exact inferences {able}.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Solution(task, TASKS[task].value(model, query, beliefs))
