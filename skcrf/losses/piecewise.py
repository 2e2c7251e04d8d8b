"""Piecewise likelihood, which needs no inference."""

from functools import singledispatch

import numpy as np
from sklearn.utils._param_validation import StrOptions

from skcrf.graph import FactorGraph, Potentials, canonical
from skcrf.losses._base import BaseLoss
from skcrf.losses._factor_pieces import factor_pieces
from skcrf.losses._piece_likelihood import edge_pieces, node_pieces


def _separate_nodes(degree):
    return np.zeros(len(degree)), np.ones(len(degree))


def _shared_nodes(degree):
    return np.where(degree > 0, 1.0 / np.maximum(degree, 1), 0.0), (degree == 0).astype(np.float64)


#: Ways to form pieces: functions from the number of edges of each node to the share of its unary potential in
#: the piece of each of its edges, and to the weight of the node as a piece by itself.
PIECES = {"cliques": _separate_nodes, "shared": _shared_nodes}


class Piecewise(BaseLoss):
    """Piecewise likelihood: minus the log-likelihoods of small pieces of the graph, D13 section 4.1.5.

    Replaces the log-partition function by the sum of those of the pieces, which is an upper bound. Calls no
    inference and is fast on any graph. Each piece is fitted on its own, so that all pieces together tend to
    overestimate the weights. Hidden labels are summed out piece by piece.

    Parameters
    ----------
    pieces : {"cliques", "shared"}, default="cliques"
        With "cliques" each edge and each node is a piece. With "shared" each edge is a piece together with
        a share of the unary potentials of its ends: those of a node are divided evenly among its edges. Nodes
        without edges are pieces, too.

    See Also
    --------
    Pseudolikelihood : Single sites given their neighbours.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.losses import Piecewise
    >>> theta = Potentials(np.zeros((3, 2)), np.eye(2)[None])
    >>> value, d_theta, converged = Piecewise()(None, chain(3), theta, np.array([0, 0, -1]))
    >>> value.round(3)
    array([3.086])
    """

    _parameter_constraints = {"pieces": [StrOptions(set(PIECES))]}

    is_convex = True

    def __init__(self, pieces="cliques"):
        self.pieces = pieces

    def _evaluate(self, inference, graph, theta, y, site_weight):
        theta, y = canonical(theta), np.ascontiguousarray(y, dtype=np.int64)
        share, node_weight = PIECES[self.pieces](np.diff(graph.incident_ptr))
        # A share of 0 is 0, also of -inf.
        fields = np.where(share[:, None] > 0, theta.unary, 0.0) * share[:, None]
        value = np.zeros(graph.n_examples)
        d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        node_pieces(graph.node_ptr, theta.unary, node_weight, y, value, d_theta.unary)
        _add_pieces(graph, fields, theta.tables, share, y, value, d_theta)
        return value, d_theta, np.ones(graph.n_examples, dtype=bool)


@singledispatch
def _add_pieces(graph, fields, tables, share, y, value, d_theta):
    """Add the losses of all edges, or factors."""
    edge_pieces(graph, fields, tables, share, y, value, d_theta)


@_add_pieces.register
def _(graph: FactorGraph, fields, tables, share, y, value, d_theta):
    factor_pieces(graph, fields, tables, share, y, value, d_theta)
