"""Sequential tree-reweighted belief propagation."""

from skcrf.inference._engine import Plan
from skcrf.inference._fixed_point import ITERATION, may_resume
from skcrf.inference._message_passing import MessagePassing
from skcrf.inference._pairwise.engine import ChainEngine
from skcrf.inference._pairwise.schedule import monotonic_chains
from skcrf.inference._sequential.engine import SequentialLatticeEngine


class TRWS(MessagePassing):
    """Sequential tree-reweighted belief propagation, which converges monotonically and bounds at any time.

    The messages are those of `TRW`, D13 Eq 18. Weights and schedule are those of monotonic chains, which
    follow an order of the nodes: in order, each node sends to all later neighbours, then in reverse order to
    all earlier ones. Each update of a node makes all chains through it agree on its marginal, which is a step
    of coordinate descent on a weighted sum of the log-partition functions of the chains. `log_z` is this sum:
    an upper bound of the true one that never increases, so no damping is needed.

    All chains have the same weight, 1 / (maximum number of chains through a node): 1 / 2 on lattices with 4
    neighbours, 1 / 4 with 8 neighbours. The fixed point is that of ``TRW(rho=weight)``. In connected
    components without cycles the weight is 1, and one iteration is exact.

    In maximisation, `bound` is the weighted sum of the best scores of the chains: an upper bound of all
    scores that never increases. After every iteration a configuration is decoded node by node, given the
    states chosen before, and the best one is returned. It is optimal if its score equals `bound`.

    Parameters
    ----------
    max_iter : int, default=10
        Maximum number of iterations, each of which sends every message once. With 0, marginals are those of
        the model without edges, and `log_z` is still a bound.
    tol : float, default=0.0
        With 0, the number of iterations is `max_iter` (truncated inference). Otherwise iterate until the
        relative change of all messages is at most `tol`.

    See Also
    --------
    TRW : Tighter weights, but a bound only at convergence.

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

    layouts = frozenset({"pairwise", "potts"})
    exact_on = "forest"
    bound = "upper"
    tasks = frozenset({"sum", "max"})
    _engines = (SequentialLatticeEngine, ChainEngine)

    def __init__(self, max_iter=10, tol=0.0):
        self.max_iter = max_iter
        self.tol = tol

    @property
    def resumes(self):
        """Whether iterations may start anywhere, because the concave objective has one maximum."""
        return may_resume(self.tol)

    def _plan(self, graph):
        schedule, rho, inward = monotonic_chains(graph)
        graph = graph._replace(schedule=schedule)
        return Plan(graph, rho, self.max_iter, self.tol, damping=0.0, inward=inward)
