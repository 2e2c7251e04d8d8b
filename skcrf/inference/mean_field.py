"""Mean field: the best fully factorised approximation, D13 section 3.2 and Algorithm 2."""

from skcrf.inference._base import BaseInference
from skcrf.inference._curvature import ProductCurvature
from skcrf.inference._engine import Plan, expected_statistics, infer, pull_back
from skcrf.inference._factor.mean_field import FactorMeanField
from skcrf.inference._fixed_point import ITERATION
from skcrf.inference._lattice.mean_field import LatticeMeanField
from skcrf.inference._map_solver import FORBIDDEN, finite_tables
from skcrf.inference._pairwise.mean_field import PairwiseMeanField


class MeanField(BaseInference):
    """Mean field by coordinate ascent, one node after the other.

    Every update increases the objective, so that iterations converge to a local maximum. After any number of
    them, `log_z` is a lower bound of the log-partition function. Marginals tend to be overconfident.

    Parameters
    ----------
    max_iter : int, default=10
        Number of iterations, each of which updates every node once.
    tol : float, default=0.0
        With 0, the result is defined by exactly `max_iter` iterations (truncated inference). Otherwise
        iterate until no marginal changes by more than `tol`, at most `max_iter` times.

    See Also
    --------
    TRW : An upper bound.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import MeanField
    >>> theta = Potentials(np.array([[0.0, 1.0], [0.0, 0.0]]), np.eye(2)[None])
    >>> MeanField(max_iter=100).forward(chain(2), theta).mu.round(3)
    array([[0.219, 0.781],
           [0.363, 0.637]])
    """

    _parameter_constraints = ITERATION

    layouts = frozenset({"pairwise", "factor"})
    bound = "lower"
    _engines = (LatticeMeanField, PairwiseMeanField, FactorMeanField)

    def __init__(self, max_iter=10, tol=0.0):
        self.max_iter = max_iter
        self.tol = tol

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        self.task_of(graph, tau)
        plan = Plan(graph, None, self.max_iter, self.tol)
        return infer(self._engines, plan, finite_tables(graph, theta, FORBIDDEN), edges=edges, tape=tape)

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        return pull_back(beliefs, d_mu, d_edge_mu, d_log_z)

    def curvature(self, graph, theta, beliefs):
        return ProductCurvature(graph, finite_tables(graph, theta, FORBIDDEN).tables, beliefs.mu)

    def statistics(self, graph, beliefs):
        return expected_statistics(beliefs)
