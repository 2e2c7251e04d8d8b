"""Maximisation by graph cuts."""

from numbers import Integral

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from skcrf._numerics import kernel
from skcrf.graph import ExampleError
from skcrf.inference._map_solver import Found, Maximiser
from skcrf.inference._max_flow import REACHED, fill, new_search
from skcrf.inference.icm import climb

# Tables that are submodular but for the last digits, of their differences or of themselves, are submodular.
_ROUNDING, _LAST_DIGITS = 1e-12, 1e-15


class GraphCut(Maximiser):
    """Find the best configuration by minimum cuts: exact for two labels that attract each other.

    A table is submodular if its two labels are at least as good when they agree, in sum, as when they differ:
    ``t[0, 0] + t[1, 1] >= t[0, 1] + t[1, 0]``. Where all tables of an example are, one cut finds the best
    configuration, and `bound` is its score; elsewhere `bound` is infinite.

    With more labels a cut finds the best of many moves at once: by an expansion, any nodes change to one
    label; by a swap, any nodes of two labels exchange them. Moves are tried for all labels, or pairs of them,
    until none raises the score: the answer need not be the best, but no such move would make it better.
    Expansions are submodular if tables are minus a metric, as Potts potentials are, swaps if two labels are
    at least as good, in sum, beside themselves as beside each other.

    Parameters
    ----------
    moves : {"expansion", "swap"}, default="expansion"
        The moves where there are more than two labels.
    non_submodular : {"truncate", "error"}, default="truncate"
        What to do with a table that is not submodular in a move. "truncate" lowers its entries for nodes that
        would differ, other than the present ones, until it is: then the best move is not always found, but
        the score still never falls, and in the end single nodes change as in `ICM` until none is better off.
        "error" refuses it.
    max_sweeps : int, default=20
        Rounds over all moves, at most.

    See Also
    --------
    TRWS : Tells a bound for any potentials.
    ICM : One node at a time.

    Notes
    -----
    The moves are those of Boykov, Veksler and Zabih, "Fast approximate energy minimization via graph cuts",
    2001, the truncation that of Rother, Kumar, Kolmogorov and Blake, "Digital tapestry", 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, lattice
    >>> from skcrf.inference import GraphCut
    >>> unary = np.array([[0.0, 1.0], [0.0, 2.0], [2.0, 0.0], [0.0, 0.5]])
    >>> beliefs = GraphCut().forward(lattice(2, 2), Potentials(unary, np.stack([np.eye(2), np.eye(2)])))
    >>> beliefs.mu.argmax(axis=1), beliefs.log_z, beliefs.bound
    (array([1, 1, 0, 1]), array([7.5]), array([7.5]))
    """

    _parameter_constraints = {
        "moves": [StrOptions({"expansion", "swap"})],
        "non_submodular": [StrOptions({"truncate", "error"})],
        "max_sweeps": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, moves="expansion", non_submodular="truncate", max_sweeps=20):
        self.moves = moves
        self.non_submodular = non_submodular
        self.max_sweeps = max_sweeps

    def _find(self, graph, theta):
        n_states = theta.unary.shape[1]
        # Two labels that are swapped are all there are, so that one cut does it.
        moves = _MOVES["swap" if n_states == 2 else self.moves](n_states)
        x, search = theta.unary.argmax(axis=1), new_search(graph.n_nodes)
        n_iter, converged, truncated = _move(graph, theta, moves, self.max_sweeps, x, search)
        if self.non_submodular == "error" and (truncated >= 0).any():
            example = int(np.argmax(truncated >= 0))
            i, j = graph.edges[truncated[example]] - graph.node_ptr[example]
            raise ExampleError(
                f"GraphCut needs submodular tables, but that of the edge ({i}, {j}) of {{example}} is not: "
                "its labels are better when they differ. Take non_submodular='truncate' or 'trw_s'.",
                example,
            )
        more, climbed = climb(graph, theta, truncated >= 0, self.max_sweeps, x)
        exact = (truncated < 0) & (n_states <= 2)
        return Found(x, n_iter + more, (converged & climbed) | exact, exact)


def _expansions(n_states):
    return np.array([(-1, label) for label in range(n_states)])


def _swaps(n_states):
    pairs = [(label, other) for label in range(n_states) for other in range(label + 1, n_states)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


#: The moves of a sweep: pairs of labels to choose from at each node, where -1 is the present one.
_MOVES = {"expansion": _expansions, "swap": _swaps}


@kernel
def _move(graph, theta, moves, max_sweeps, x, search):
    """Make the best of each kind of move, as long as one raises the score; changes `x`.

    Returns the sweeps of each example, whether the last one changed nothing, and an edge of which a table was
    truncated, -1 if there is none.
    """
    n_examples = len(graph.node_ptr) - 1
    n_iter, converged = np.zeros(n_examples, np.int64), np.zeros(n_examples, np.bool_)
    truncated = np.full(n_examples, -1)
    options, terminal = np.empty((len(x), 2), np.int64), np.empty(len(x))
    residual, after = np.empty(2 * len(graph.edges)), np.empty_like(x)
    for example in range(n_examples):
        first, end = graph.node_ptr[example], graph.node_ptr[example + 1]
        present = _score(graph, theta, example, x)
        while n_iter[example] < max_sweeps and not converged[example]:
            n_iter[example] += 1
            converged[example] = True
            for number in range(len(moves)):
                _offer(theta, first, end, moves[number, 0], moves[number, 1], x, options)
                edge = _lay(graph, theta, example, x, options, terminal, residual)
                truncated[example] = max(edge, truncated[example])
                fill(graph, first, end, terminal, residual, search)
                for node in range(first, end):
                    after[node] = options[node, 0 if search.tree[node] == REACHED else 1]
                value = _score(graph, theta, example, after)
                if value > present:
                    present, x[first:end] = value, after[first:end]
                    # One cut between all the labels there are leaves nothing to be found.
                    converged[example] = len(moves) == 1 and truncated[example] < 0
    return n_iter, converged, truncated


@kernel
def _offer(theta, first, end, zero, one, x, options):
    """List the two states that each node may have after a move: both are its own if it has no choice."""
    for node in range(first, end):
        own = x[node]
        options[node] = own
        if zero < 0 or own == zero or own == one:
            if zero >= 0 and theta.unary[node, zero] > -np.inf:
                options[node, 0] = zero
            if theta.unary[node, one] > -np.inf:
                options[node, 1] = one


@kernel
def _lay(graph, theta, example, x, options, terminal, residual):
    """Lay out capacities of which a cut costs as much as a move; returns an edge that was truncated, or -1.

    The source's side has the first option. What is paid for the second one at a node comes from the source.
    """
    truncated = -1
    for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
        terminal[node] = theta.unary[node, options[node, 0]] - theta.unary[node, options[node, 1]]
    for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
        i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
        i0, i1, j0, j1 = options[i, 0], options[i, 1], options[j, 0], options[j, 1]
        t00, t01 = theta.tables[table, i0, j0], theta.tables[table, i0, j1]
        t10, t11 = theta.tables[table, i1, j0], theta.tables[table, i1, j1]
        half = 0.5 * ((t00 - t01) + (t11 - t10))
        if i0 == i1 or j0 == j1:
            half = 0.0
        elif half < 0.0:
            # Rows and columns that are forbidden are far below the others, and the same in themselves.
            along = min(abs(t00 - t01) + abs(t11 - t10), abs(t00 - t10) + abs(t11 - t01))
            if -half > _ROUNDING * along + _LAST_DIGITS * (abs(t00) + abs(t01) + abs(t10) + abs(t11)):
                truncated = edge
            # The present pair keeps what it has, and no other may gain: so the score cannot fall.
            if x[i] == i0 and x[j] == j1:
                t10 += 2.0 * half
            elif x[i] == i1 and x[j] == j0:
                t01 += 2.0 * half
            else:
                t01, t10 = t01 + half, t10 + half
            half = 0.0
        # -theta = ... + (t00 - t10) x_i + (t10 - t11) x_j + 2 half (1 - x_i) x_j, and half of that either way
        terminal[i] += t00 - t10 - half
        terminal[j] += t10 - t11 + half
        residual[2 * edge], residual[2 * edge + 1] = half, half
    return truncated


@kernel
def _score(graph, theta, example, x):
    total = 0.0
    for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
        total += theta.unary[node, x[node]]
    for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
        total += theta.tables[graph.edge_table[edge], x[graph.edges[edge, 0]], x[graph.edges[edge, 1]]]
    return total
