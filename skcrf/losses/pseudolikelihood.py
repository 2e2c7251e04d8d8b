"""Pseudolikelihoods of single nodes and of patches, which need no inference."""

from functools import singledispatch
from numbers import Integral

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._numerics import kernel_array
from skcrf.graph import FactorGraph, Potentials, canonical
from skcrf.losses._base import BaseLoss
from skcrf.losses._factor_pieces import condition_factors, condition_factors_vjp
from skcrf.losses._patch_likelihood import condition_edges, condition_edges_vjp, patch_pieces, tile
from skcrf.losses._piece_likelihood import node_pieces


class Pseudolikelihood(BaseLoss):
    """Pseudolikelihood: minus the log of each label's probability given all others, D13 section 4.1.4.

    Calls no inference and is fast on any graph. Since it conditions on the true labels of the neighbours, it
    tends to overestimate couplings, so that predictions, where neighbours are unknown, suffer. Hidden sites
    and all factors that contain them are left out.

    See Also
    --------
    PatchPseudolikelihood : Several sites at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.losses import Pseudolikelihood
    >>> theta = Potentials(np.zeros((3, 2)), np.eye(2)[None])
    >>> value, d_theta, converged = Pseudolikelihood()(None, chain(3), theta, np.array([0, 0, -1]))
    >>> value.round(3)
    array([0.627])
    """

    site_weighted = True
    is_convex = True

    def _evaluate(self, inference, graph, theta, y, site_weight):
        weight = np.ones(graph.n_nodes) if site_weight is None else kernel_array(site_weight)

        def add_pieces(field, tables, y, value, d_field, d_tables):
            node_pieces(graph.node_ptr, field, weight, y, value, d_field)

        return _conditional_loss(graph, theta, y, np.arange(graph.n_nodes), add_pieces)


class PatchPseudolikelihood(BaseLoss):
    """Patch pseudolikelihood: minus the log-probability of each patch given all others, D13 section 4.1.4.

    Images are cut into patches of `size` x `size` pixels, which may be smaller at the right and lower border.
    The likelihood of each patch is exact. A patch as large as the image gives the exact likelihood,
    ``size=1`` the pseudolikelihood. Hidden sites inside a patch are summed out; other patches are not
    conditioned on them. Calls no inference.

    Parameters
    ----------
    size : int, default=2
        Side of the patches. With `n_labels` labels a patch takes ``size ** 2 * n_labels ** (size + 1)``
        steps, with 8 neighbours `n_labels` times as many; more than 4 million steps raise an error. With a
        size above 1, graphs with edges have to be lattices.

    See Also
    --------
    Pseudolikelihood : Single sites, on any graph.
    Likelihood : All sites at once, with any inference.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, lattice
    >>> from skcrf.losses import PatchPseudolikelihood
    >>> theta = Potentials(np.zeros((4, 2)), np.stack([np.eye(2), np.eye(2)]))
    >>> loss = PatchPseudolikelihood(size=2)
    >>> value, d_theta, converged = loss(None, lattice(2, 2), theta, np.array([0, 0, 0, 0]))
    >>> value.round(3)
    array([1.298])
    """

    _parameter_constraints = {"size": [Interval(Integral, 1, None, closed="left")]}

    graphs = "lattice"
    is_convex = True

    def __init__(self, size=2):
        self.size = size

    def _evaluate(self, inference, graph, theta, y, site_weight):
        patches, window = tile(graph, self.size)

        def add_pieces(field, tables, y, value, d_field, d_tables):
            patch_pieces(graph, field, tables, y, patches, window, value, d_field, d_tables)

        return _conditional_loss(graph, theta, y, patches.patch_of, add_pieces)


def _conditional_loss(graph, theta, y, patch_of, add_pieces):
    """Evaluate a loss of patches given the labels of the other patches.

    `add_pieces` adds the losses of all patches, without the edges between them.
    """
    theta, y = canonical(theta), np.ascontiguousarray(y, dtype=np.int64)
    field, d_field = np.empty_like(theta.unary), np.zeros_like(theta.unary)
    value = np.zeros(graph.n_examples)
    d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
    _condition(graph, theta, y, patch_of, field)
    add_pieces(field, theta.tables, y, value, d_field, d_theta.tables)
    _condition_vjp(graph, y, patch_of, d_field, d_theta)
    return value, d_theta, np.ones(graph.n_examples, dtype=bool)


@singledispatch
def _condition(graph, theta, y, patch_of, field):
    """Compute the unary potentials given the labels of other patches; on factor graphs, of other nodes."""
    condition_edges(graph, theta, y, patch_of, field)


@_condition.register
def _(graph: FactorGraph, theta, y, patch_of, field):
    condition_factors(graph, theta, y, field)


@singledispatch
def _condition_vjp(graph, y, patch_of, d_field, d_theta):
    """Add the derivative with respect to the output of `_condition` to that with respect to theta."""
    condition_edges_vjp(graph, y, patch_of, d_field, d_theta)


@_condition_vjp.register
def _(graph: FactorGraph, y, patch_of, d_field, d_theta):
    condition_factors_vjp(graph, y, d_field, d_theta)
