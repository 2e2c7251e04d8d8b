"""The tasks of the competitions, done by any inference that takes factors."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skcrf._registry import resolve
from skcrf.graph import ImpossibleError
from skcrf.inference import INFERENCE
from skcrf.uai._files import Solution


class _Task(NamedTuple):
    tau: Callable  # of the model and the query
    value: Callable  # of the model, the query and the beliefs


#: What each task asks of an inference, and what it reads in the beliefs.
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
    """Do a task.

    Parameters
    ----------
    model : Model
        The model.
    task : {"PR", "MAR", "MAP", "MMAP"}
        PR asks for the partition function, or the probability of the evidence; MAR for the marginals of all
        variables; MAP for the most probable states of all, MMAP for those of some, the others summed out.
    inference : str or BaseInference, default="exact"
        By name or instance: one that takes factors and does what the task asks for.
    evidence : ndarray of shape (n_variables,), default=None
        The state of each variable that is known, -1 elsewhere.
    query : ndarray of shape (n_query,), default=None
        The variables that MMAP asks for.

    Returns
    -------
    solution : Solution
        The answer.

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
        raise ValueError(f"task={task!r} is unknown, choose one of {sorted(TASKS)}.")
    if (query is None) == (task == "MMAP"):
        raise ValueError(
            f"task={task!r}, but query={query!r}: MMAP needs a query, and nothing else takes one."
        )
    if query is not None and not np.isin(query, np.arange(len(model.cards))).all():
        raise ValueError(f"query is {query!r}, expected variables below {len(model.cards)}.")
    method = resolve(INFERENCE, inference, name="inference")
    graph, theta = model.potentials(evidence)
    try:
        beliefs = method.forward(graph, theta, tau=TASKS[task].tau(model, query))
    except ImpossibleError as error:
        given = "the model" if evidence is None else "the model with this evidence"
        raise ValueError(f"No configuration of {given} has a probability above 0.") from error
    if not beliefs.converged.all():
        n_iter = int(beliefs.n_iter[0])
        warnings.warn(
            f"{type(method).__name__} did not converge in {n_iter} iterations: the answer may be rough.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Solution(task, TASKS[task].value(model, query, beliefs))
