"""Tree-reweighted belief propagation."""

from numbers import Real

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from skcrf.graph import ExampleError
from skcrf.inference._edge_weights import spanning_tree_weights
from skcrf.inference._engine import Plan
from skcrf.inference._fixed_point import may_resume
from skcrf.inference._message_passing import PASSING, MessagePassing


class TRW(MessagePassing):
    """Tree-reweighted belief propagation, D13 section 3.3.

    Iterates Eq 18. If the edge weights `rho` are the probabilities of edges in a distribution over spanning
    trees, the fixed point maximises a concave objective, and `log_z` is an upper bound of the log-partition
    function. To maximise, and for marginal MAP, a configuration is decoded from the messages as by `BP`;
    then `log_z` is its score.

    Parameters
    ----------
    rho : float, array-like of shape (n_edges,) or "auto", default="auto"
        Weight of each edge, above 0 and at most 1; an array has one value per edge of an example, or of the
        whole batch. "auto" computes a distribution over spanning trees: in closed form on lattices, elsewhere
        by covering the graph with trees, or with sets of factors without cycles. On forests it is 1, and
        the method is exact.
        On lattices, 0.5 for all edges with 4 neighbours and 0.25 with 8 are the probabilities of a
        distribution over forests, so that `log_z` is an upper bound as well.
    max_iter : int, default=10
        Number of iterations, each of which sends every message once.
    tol : float, default=0.0
        With 0, the result is defined by exactly `max_iter` iterations (truncated inference). Otherwise
        iterate until no message changes by more than this relative amount, at most `max_iter` times.
    damping : float, default=0.0
        Weight of the old message in the new one, in the log domain; at least 0, below 1.

    See Also
    --------
    BP : The same iteration with ``rho = 1`` everywhere.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, lattice
    >>> from skcrf.inference import TRW
    >>> graph = lattice(2, 2)
    >>> theta = Potentials(np.zeros((4, 2)), np.stack([np.eye(2), np.eye(2)]))
    >>> TRW(tol=1e-8, max_iter=1000).forward(graph, theta).log_z.round(3)
    array([5.395])
    """

    _parameter_constraints = {
        "rho": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="right"), "array-like"],
        **PASSING,
    }

    tasks = frozenset({"sum", "max", "mixed"})
    layouts = frozenset({"pairwise", "factor"})
    exact_on = "forest"
    bound = "upper"

    def __init__(self, rho="auto", max_iter=10, tol=0.0, damping=0.0):
        self.rho = rho
        self.max_iter = max_iter
        self.tol = tol
        self.damping = damping

    @property
    def resumes(self):
        """Whether iterations may start anywhere: with spanning-tree weights the objective is concave."""
        return may_resume(self.tol) and isinstance(self.rho, str)

    def part_of(self, graph, selection):
        if np.ndim(self.rho) == 0 or len(self.rho) != graph.n_edges:
            return self
        return clone(self).set_params(rho=np.asarray(self.rho)[selection.edges])

    def _plan(self, graph):
        return Plan(graph, self._edge_weights(graph), self.max_iter, self.tol, self.damping)

    def _edge_weights(self, graph):
        if isinstance(self.rho, str):
            return spanning_tree_weights(graph)
        rho = np.asarray(self.rho, dtype=np.float64)
        if not ((rho > 0) & (rho <= 1)).all():
            raise ValueError(f"rho must be above 0 and at most 1, got {self.rho!r}.")
        if rho.ndim == 0:
            return np.full(graph.n_edges, float(rho))
        if len(rho) == graph.n_edges:
            return np.ascontiguousarray(rho)
        wrong = np.flatnonzero(np.diff(graph.edge_ptr) != len(rho))
        if len(wrong):
            n_edges = np.diff(graph.edge_ptr)[wrong[0]]
            raise ExampleError(
                f"rho must have one value per edge, {n_edges} in {{example}}, got {len(rho)} values.",
                wrong[0],
            )
        return np.tile(rho, graph.n_examples)
