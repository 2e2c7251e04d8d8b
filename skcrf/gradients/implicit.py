"""Implicit differentiation by a sparse linear system."""

from numbers import Integral, Real

import numpy as np
from scipy.sparse import coo_array, eye_array
from scipy.sparse.linalg import minres, splu
from sklearn.utils._param_validation import Interval, StrOptions

from skcrf.gradients._stationary import StationaryGradient
from skcrf.graph import ExampleError, Potentials, sum_by_table

# The system is treated as singular if its solution is larger than the right side by this factor.
_SINGULAR = 1e10


class Implicit(StationaryGradient):
    """Implicit differentiation: one sparse linear system per example, D13 section 5.

    The system is that of the Lagrange conditions of the objective. All unknowns but the node marginals are
    eliminated beforehand, edge by edge, which leaves one unknown per node and label, and a matrix of
    ``n_edges (2 n_states)^2`` entries. The solution is exact at the fixed point, however slowly the inference
    converges.

    Parameters
    ----------
    solver : {"iterative", "direct"}, default="iterative"
        "iterative" is MINRES, which takes more steps the more strongly distant nodes depend on each other.
        "direct" factorises the matrix, in time and memory that grow faster than the number of nodes, but do
        not depend on the strength of interactions.
    tol : float, default=1e-8
        Accuracy of the iterative solution, relative to the largest entry of the right side.
    max_iter : int, default=10_000
        Maximum number of steps of the iterative solver. If they are not enough, a ValueError names the
        example.

    See Also
    --------
    Backprop : Needs no matrix, and is also correct for truncated inference.
    Perturbation : Works with any inference.

    Notes
    -----
    If the system is singular, the objective is flat along some direction, and the marginals have no
    derivative: a ValueError names the example. This can happen with `BP`, whose objective is not concave, but
    not with `TRW` and a spanning-tree distribution. If forbidden pairs tie states of neighbours to each
    other, results are accurate to about 1e-7.

    Examples
    --------
    >>> from skcrf.gradients import Implicit
    >>> from skcrf.inference import TRW
    >>> Implicit(solver="direct").wrap(TRW(max_iter=500, tol=1e-8)).bound
    'upper'
    """

    _parameter_constraints = {
        "solver": [StrOptions({"direct", "iterative"})],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    needs_curvature = True
    layouts = frozenset({"pairwise"})

    def __init__(self, solver="iterative", tol=1e-8, max_iter=10_000):
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter

    def differentiable(self, inference):
        return super().differentiable(inference) if inference.has_curvature else frozenset()

    def _response(self, inferred, d_mu, d_edge_mu):
        graph = inferred.graph
        curvature = self.inference_.curvature(graph, inferred.theta, inferred.beliefs)
        b = curvature.right_hand_side(d_mu, d_edge_mu)
        y = b.copy()
        for example in np.flatnonzero(np.diff(graph.edge_ptr) > 0):
            nodes = slice(graph.node_ptr[example], graph.node_ptr[example + 1])
            edges = slice(graph.edge_ptr[example], graph.edge_ptr[example + 1])
            n = _matrix(graph.edges[edges] - nodes.start, curvature.blocks[edges], b[nodes].shape)
            y[nodes] += self._solve(n, b[nodes], example)
        unary, tables = curvature.derivatives(y, d_edge_mu)
        return Potentials(unary, sum_by_table(graph, tables))

    def _solve(self, n, b, example):
        """Compute z of the solution y = b + z of (I + n) y = b.

        Unlike b, the right side -n b has no large entries at improbable states with a large derivative.
        """
        right = -(n @ b.ravel())
        if not right.any():
            return np.zeros_like(b)
        w = (eye_array(len(right), format="csc") + n).tocsc()
        found = _SOLVERS[self.solver](self, w, right, b, example)
        if not np.abs(found).max() <= _SINGULAR * np.abs(right).max():
            raise _singular(example)
        return found.reshape(b.shape)

    def _direct(self, w, right, _, example):
        how = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.1, "options": {"SymmetricMode": True}}
        try:
            return splu(w, **how).solve(right)
        except RuntimeError as error:
            raise _singular(example) from error

    def _iterative(self, w, right, b, example):
        w = w.tobsr((b.shape[1], b.shape[1]))
        # Edges with nearly deterministic tables have large entries; the residual has to be small compared
        # with b.
        size, largest = min(np.abs(right).max(), np.abs(b).max()), np.abs(w.data).max()
        found, residual, steps = np.zeros_like(right), right, []
        # MINRES stops by a residual relative to matrix and solution, so that it may have to be restarted.
        while len(steps) < self.max_iter:
            how = {"rtol": 0.1 * self.tol / largest, "maxiter": self.max_iter - len(steps)}
            found += minres(w, residual, callback=lambda _: steps.append(1), **how)[0]
            before, residual = np.abs(residual).max(), right - w @ found
            rounding = 10 * np.finfo(np.float64).eps * largest * np.abs(found).max()
            if np.abs(residual).max() <= self.tol * size + rounding:
                return found
            if not np.abs(residual).max() <= 0.1 * before:
                break
        raise ExampleError(
            f"The linear system of {{example}} was not solved to tol={self.tol:g} in {len(steps)} "
            f"steps (max_iter={self.max_iter}). Use a larger max_iter, solver='direct' or another gradient.",
            example,
        )


_SOLVERS = {"direct": Implicit._direct, "iterative": Implicit._iterative}


def _singular(example):
    return ExampleError(
        "The linear system of {example} is singular, so that its marginals have no derivative. Use "
        "another inference (TRW with rho='auto' is never singular), a larger alpha or another gradient.",
        example,
    )


def _matrix(edges, blocks, shape):
    """Build the sparse matrix of the blocks of all edges."""
    n_nodes, n_states = shape
    states = (edges[:, :, None] * n_states + np.arange(n_states)).reshape(len(edges), 2 * n_states)
    rows, columns = np.broadcast_arrays(states[:, :, None], states[:, None, :])
    size = n_nodes * n_states
    return coo_array((blocks.ravel(), (rows.ravel(), columns.ravel())), shape=(size, size)).tocsc()
