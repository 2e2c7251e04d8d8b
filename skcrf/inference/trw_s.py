"""Sequential tree-reweighted belief propagation."""

from skcrf.inference._engine import Plan
from skcrf.inference._fixed_point import ITERATION, may_resume
from skcrf.inference._message_passing import MessagePassing
from skcrf.inference._pairwise.chain_engine import ChainEngine
from skcrf.inference._pairwise.chains import monotonic_chains


class TRWS(MessagePassing):
    """Sequential tree-reweighted belief propagation: it never diverges, and bounds at any time.

    The messages are those of `TRW`, D13 Eq 18. Their weights are those of monotonic chains, which follow an
    order of the nodes, and so is the schedule: in order each node sends to all later neighbours, then in
    reverse order to all earlier ones. At its turn a node makes all chains through it agree on its marginal,
    which is a step of coordinate descent on a weighted sum of the log-partition functions of the chains.
    `log_z` is that sum: never below the true one, and not increasing from iteration to iteration, so that no
    damping is needed.

    All chains have one weight, 1 by the most chains that meet in a node: 1 / 2 on lattices of four
    neighbours, 1 / 4 on those of eight. The fixed point is that of ``TRW(rho=weight)``. Where a connected
    part of the graph has no cycle, its weight is 1 and one iteration is exact.

    Where it maximises, chains tell their best scores, and `bound` is the weighted sum of these: no
    configuration scores more, and it does not increase either. After every iteration a configuration is read
    from the messages, each node's state given those that were chosen before; the best one is the answer. It
    is proved to be the best of all where its score is `bound`.

    Parameters
    ----------
    max_iter : int, default=10
        Iterations, each of which sends every message once. Without any, marginals are those of the
        independent model, and `log_z` is still a bound: each edge counts as much as its best state.
    tol : float, default=0.0
        With 0, exactly `max_iter` iterations are done and define the answer (truncated inference). Otherwise
        iterate until no message changes by more than this share of itself, at most `max_iter` times.

    See Also
    --------
    TRW : Tighter weights, and tiles that make lattices faster, with a bound at convergence only.

    Notes
    -----
    Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", 2006; for sums see
    Meltzer, Globerson and Weiss, "Convergent message passing algorithms: a unifying view", 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, lattice
    >>> from skcrf.inference import TRWS
    >>> graph = lattice(2, 2)
    >>> unary = np.array([[0.0, 1.0], [0.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    >>> theta = Potentials(unary, np.stack([np.eye(2), np.eye(2)]))
    >>> [TRWS(max_iter=n).forward(graph, theta).log_z.round(3).item() for n in (0, 1, 2, 9)]
    [7.923, 7.415, 7.408, 7.408]
    >>> beliefs = TRWS().forward(graph, theta, tau=0.0)
    >>> beliefs.mu.argmax(axis=1), beliefs.log_z, beliefs.bound
    (array([0, 0, 0, 0]), array([6.]), array([6.]))
    """

    _parameter_constraints = ITERATION

    exact_on = "forest"
    bound = "upper"
    tasks = frozenset({"sum", "max"})
    _engines = (ChainEngine,)  # tiles sweep rows and columns in turn, which is another schedule

    def __init__(self, max_iter=10, tol=0.0):
        self.max_iter = max_iter
        self.tol = tol

    @property
    def resumes(self):
        """Whether iterations may start anywhere: the objective is concave, and has one maximum."""
        return may_resume(self.tol)

    def _plan(self, graph):
        schedule, rho, inward = monotonic_chains(graph)
        graph = graph._replace(schedule=schedule)
        return Plan(graph, rho, self.max_iter, self.tol, damping=0.0, inward=inward)
