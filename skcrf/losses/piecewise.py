"""The piecewise likelihood: no inference is needed."""

import numpy as np
from sklearn.utils._param_validation import StrOptions

from skcrf.graph import Potentials, canonical
from skcrf.losses._base import BaseLoss
from skcrf.losses._factor_pieces import factor_pieces
from skcrf.losses._piece_likelihood import edge_pieces, node_pieces


def _cliques(degree):
    return np.zeros(len(degree)), np.ones(len(degree))


def _shared(degree):
    return np.where(degree > 0, 1.0 / np.maximum(degree, 1), 0.0), (degree == 0).astype(np.float64)


#: From the number of edges of each node to the share of its unary potential that goes to the piece of each of
#: its edges, and to 1 where it is a piece by itself, else 0.
PIECES = {"cliques": _cliques, "shared": _shared}


# Edges or factors as pieces, by the layout of the graph.
_PIECES_OF = {"pairwise": edge_pieces, "factor": factor_pieces}


class Piecewise(BaseLoss):
    """Piecewise likelihood: minus the log-likelihoods of small pieces of the graph, D13 section 4.1.5.

    In place of the log-partition function stands the sum of those of the pieces, which is never smaller.
    Calls no inference and is quick on any graph; each piece is fitted as if it were alone, so that together
    they overstate what was seen. Hidden labels are summed out piece by piece.

    Parameters
    ----------
    pieces : {"cliques", "shared"}, default="cliques"
        With "cliques" each edge and each node is a piece. With "shared" each edge is a piece together with
        a share of the unary potentials of its ends, each of which is shared evenly among the edges of the
        node; nodes without edges are pieces too.

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
        share, alone = PIECES[self.pieces](np.diff(graph.incident_ptr))
        # A share of nothing is nothing, also of a state that is forbidden.
        fields = np.where(share[:, None] > 0, theta.unary, 0.0) * share[:, None]
        value = np.zeros(graph.n_examples)
        d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        node_pieces(graph.node_ptr, theta.unary, alone, y, value, d_theta.unary)
        _PIECES_OF[graph.layout](graph, fields, theta.tables, share, y, value, d_theta)
        return value, d_theta, np.ones(graph.n_examples, dtype=bool)
