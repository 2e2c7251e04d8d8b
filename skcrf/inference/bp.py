"""Loopy belief propagation."""

import numpy as np

from skcrf.inference._engine import Plan
from skcrf.inference._message_passing import PASSING, MessagePassing


class BP(MessagePassing):
    """Loopy belief propagation: sum-product, max-product or mixed-product messages.

    D13 Eq 18 with every ``rho = 1``. Exact on forests once messages have crossed them; on other graphs a
    good approximation in many cases, without a bound and without a guarantee of convergence. One iteration is
    enough on a chain; on a lattice, an iteration sweeps right, left, down and up.

    If some nodes are maximised and others summed out (`tau` is an array), messages from a maximised node to
    one that is summed out use only the states with the largest belief. The configuration decoded from these
    messages and that of max-product messages are compared. The maximised nodes are fixed at the better one,
    and marginals and derivatives are those of the other nodes given them.

    Parameters
    ----------
    max_iter : int, default=10
        Number of iterations, each of which sends every message once.
    tol : float, default=0.0
        With 0, the result is defined by exactly `max_iter` iterations (truncated inference). Otherwise
        iterate until no message changes by more than this relative amount, at most `max_iter` times.
    damping : float, default=0.0
        Weight of the old message in the new one, in the log domain; at least 0, below 1.
    dtype : {"float64", "float32"}, default="float64"
        Type of the messages. "float32" is faster and needs half of the memory; marginals are then accurate to
        about 1e-5. Potentials and results are float64 in both cases.

    See Also
    --------
    TRW : The reweighted variant, with a concave objective and an upper bound.
    Tree : Exact on forests, without iterations.

    Notes
    -----
    The mixed-product messages are those of Liu and Ihler, "Variational algorithms for marginal MAP", 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import BP
    >>> graph = chain(3)
    >>> theta = Potentials(np.array([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]), np.eye(2)[None])
    >>> BP().forward(graph, theta).mu.round(3)
    array([[0.269, 0.731],
           [0.393, 0.607],
           [0.451, 0.549]])
    """

    _parameter_constraints = PASSING

    tasks = frozenset({"sum", "max", "mixed"})
    layouts = frozenset({"pairwise", "factor", "potts"})
    exact_on = "forest"

    def __init__(self, max_iter=10, tol=0.0, damping=0.0, dtype="float64"):
        self.max_iter = max_iter
        self.tol = tol
        self.damping = damping
        self.dtype = dtype

    def _plan(self, graph):
        rho = np.ones(graph.n_edges)
        return Plan(graph, rho, self.max_iter, self.tol, self.damping, dtype=self._message_type())


class MaxProduct(BP):
    """Max-product belief propagation: `BP` that only maximises, damped and iterated to convergence.

    Exact on forests. On other graphs it often finds good configurations, without a bound and without a
    guarantee of convergence.

    Parameters
    ----------
    max_iter : int, default=100
        Number of iterations, each of which sends every message once.
    tol : float, default=1e-6
        As for `BP`.
    damping : float, default=0.3
        As for `BP`.
    dtype : {"float64", "float32"}, default="float64"
        As for `BP`.

    See Also
    --------
    TRWS : Also computes a bound.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import MaxProduct
    >>> theta = Potentials(np.array([[0.0, 1.0], [0.5, 0.0], [0.0, 0.0]]), np.eye(2)[None])
    >>> MaxProduct().forward(chain(3), theta).log_z
    array([3.])
    """

    tasks = frozenset({"max"})
    differentiates = frozenset({"log_z"})

    def __init__(self, max_iter=100, tol=1e-6, damping=0.3, dtype="float64"):
        super().__init__(max_iter, tol, damping, dtype)


class MixedProduct(BP):
    """Mixed-product belief propagation: `BP` damped and iterated to convergence, for marginal MAP.

    With `tau` 0 at some nodes and 1 at the others it approximates the marginal MAP: the states of the first
    that maximise the sum over the others, and the marginals of the others given these states.

    Parameters
    ----------
    max_iter : int, default=100
        Number of iterations, each of which sends every message once.
    tol : float, default=1e-6
        As for `BP`.
    damping : float, default=0.3
        As for `BP`.
    dtype : {"float64", "float32"}, default="float64"
        As for `BP`.

    See Also
    --------
    Exact : Exact marginal MAP, on graphs of small induced width.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import MixedProduct
    >>> theta = Potentials(np.array([[0.0, 1.0], [0.5, 0.0], [0.0, 0.0]]), np.eye(2)[None])
    >>> MixedProduct().forward(chain(3), theta, tau=np.array([0.0, 1.0, 1.0])).mu.round(3)
    array([[0.   , 1.   ],
           [0.378, 0.622],
           [0.443, 0.557]])
    """

    def __init__(self, max_iter=100, tol=1e-6, damping=0.3, dtype="float64"):
        super().__init__(max_iter, tol, damping, dtype)
