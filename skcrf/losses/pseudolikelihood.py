"""The pseudolikelihood, of single sites and of patches: no inference is needed."""

from numbers import Integral

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._numerics import kernel_array
from skcrf.graph import Potentials, canonical
from skcrf.losses._base import BaseLoss
from skcrf.losses._factor_pieces import condition_factors, condition_factors_vjp
from skcrf.losses._patch_likelihood import condition, condition_vjp, patch_pieces, tile
from skcrf.losses._piece_likelihood import node_pieces


class Pseudolikelihood(BaseLoss):
    """Pseudolikelihood: minus the log of each label's probability given all others, D13 section 4.1.4.

    Calls no inference and is quick on any graph. Neighbours are taken at their word, so that it tends to
    believe in couplings that are too strong for prediction, where neighbours are not known. Hidden sites
    simply drop out: they do not count, and their neighbours are judged as if they were not there, nor any
    factor that they are in.

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

        def add_up(field, tables, y, value, d_field, d_tables):
            node_pieces(graph.node_ptr, field, weight, y, value, d_field)

        if graph.layout == "factor":
            conditions = condition_factors, condition_factors_vjp
        else:
            conditions = _around(np.arange(graph.n_nodes))
        return _given_labels(graph, theta, y, *conditions, add_up)


class PatchPseudolikelihood(BaseLoss):
    """Patch pseudolikelihood: minus the log-probability of each patch given all others, D13 section 4.1.4.

    Images are cut into tiles of `size` x `size` pixels, in each of which all is exact; the tiles at the right
    and lower border may be smaller. A tile as large as the image gives the exact likelihood, ``size=1`` the
    pseudolikelihood. Hidden sites inside a patch are summed out; for the patches around it they simply drop
    out, as if they were not there. Calls no inference.

    Parameters
    ----------
    size : int, default=2
        Side of the patches. With `n_labels` labels a patch takes ``size ** 2 * n_labels ** (size + 1)``
        steps, with 8 neighbours `n_labels` times as many; above 4 million is refused. For more than 1,
        graphs with edges have to be lattices.

    See Also
    --------
    Pseudolikelihood : Single sites, on any graph.
    Likelihood : All sites at once, as well as the inference can.

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

        def add_up(field, tables, y, value, d_field, d_tables):
            patch_pieces(graph, field, tables, y, patches, window, value, d_field, d_tables)

        return _given_labels(graph, theta, y, *_around(patches.patch_of), add_up)


def _around(patch_of):
    """What the labels around patches say, and its derivative."""

    def say(graph, theta, y, field):
        condition(graph, theta, y, patch_of, field)

    def say_vjp(graph, y, d_field, d_theta):
        condition_vjp(graph, y, patch_of, d_field, d_theta)

    return say, say_vjp


def _given_labels(graph, theta, y, say, say_vjp, add_up):
    """Evaluate patches given what labels around them `say`: `add_up` is for the patches alone."""
    theta, y = canonical(theta), np.ascontiguousarray(y, dtype=np.int64)
    field, d_field = np.empty_like(theta.unary), np.zeros_like(theta.unary)
    value = np.zeros(graph.n_examples)
    d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
    say(graph, theta, y, field)
    add_up(field, theta.tables, y, value, d_field, d_theta.tables)
    say_vjp(graph, y, d_field, d_theta)
    return value, d_theta, np.ones(graph.n_examples, dtype=bool)
