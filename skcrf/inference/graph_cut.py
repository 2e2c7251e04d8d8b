"""Maximisation by graph cuts."""

from numbers import Integral

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from skcrf._numerics import kernel
from skcrf.graph import ExampleError
from skcrf.inference._map_solver import MAPSolver, Solution
from skcrf.inference._pairwise.max_flow import SOURCE, max_flow, new_search
from skcrf.inference.icm import coordinate_ascent

# Relative rounding errors, of differences and of entries of a table, up to which it counts as submodular.
_DIFFERENCE_ROUNDING, _ENTRY_ROUNDING = 1e-12, 1e-15


class GraphCut(MAPSolver):
    """Maximisation by graph cuts, exact for two labels and submodular potentials.

    A table of two labels is submodular if ``t[0, 0] + t[1, 1] >= t[0, 1] + t[1, 0]``. Where all tables of an
    example are submodular, one minimum cut finds the best configuration, and `bound` is its score; elsewhere
    `bound` is infinite.

    With more labels, each cut finds the best of exponentially many moves: an expansion changes any nodes to
    one label, a swap exchanges two labels at any nodes. Moves are made for all labels, or pairs of labels,
    until none increases the score. The result need not be a maximum, but no such move would improve it.
    Expansions are submodular if the negative tables are metrics, as for Potts potentials, swaps if the table
    of any two labels is submodular.

    Parameters
    ----------
    moves : {"expansion", "swap"}, default="expansion"
        The moves with more than two labels.
    non_submodular : {"truncate", "error"}, default="truncate"
        Treatment of tables that are not submodular in a move. "truncate" lowers entries for different labels,
        except the present pair, until the table is submodular. Then the best move may be missed, but the
        score still never decreases, and single nodes change in the end as in `ICM`. "error" raises an error.
    max_sweeps : int, default=20
        Maximum number of sweeps over all moves.

    See Also
    --------
    TRWS : Maximisation with a bound for any potentials.
    ICM : Changes one node at a time.

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

    def _solve(self, graph, theta):
        n_states = theta.unary.shape[1]
        # With two labels, one swap considers all configurations.
        moves = _MOVES["swap" if n_states == 2 else self.moves](n_states)
        x, search = theta.unary.argmax(axis=1), new_search(graph.n_nodes)
        n_iter, converged, truncated = _make_moves(graph, theta, moves, self.max_sweeps, x, search)
        if self.non_submodular == "error" and (truncated >= 0).any():
            example = int(np.argmax(truncated >= 0))
            i, j = graph.edges[truncated[example]] - graph.node_ptr[example]
            able = self._names_of(lambda method: "max" in method.tasks and method.bound == "upper")
            raise ExampleError(
                f"theta must be submodular, got a table of the edge ({i}, {j}) of {{example}} that prefers "
                f"different labels. Use non_submodular='truncate' or one of the inferences {able}.",
                example,
            )
        n_more, ascent_converged = coordinate_ascent(graph, theta, truncated >= 0, self.max_sweeps, x)
        is_optimal = (truncated < 0) & (n_states <= 2)
        return Solution(x, n_iter + n_more, (converged & ascent_converged) | is_optimal, is_optimal)


def _expansions(n_states):
    return np.array([(-1, label) for label in range(n_states)])


def _swaps(n_states):
    pairs = [(label, other) for label in range(n_states) for other in range(label + 1, n_states)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


#: The moves of a sweep: pairs of labels that each node may choose from, with -1 for its present label.
_MOVES = {"expansion": _expansions, "swap": _swaps}


@kernel
def _make_moves(graph, theta, moves, max_sweeps, x, search):
    """Make the best move of each kind as long as one increases the score; changes `x`.

    Returns the number of sweeps per example, whether the last one changed nothing, and an edge whose table
    was truncated, or -1.
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
            for move in range(len(moves)):
                _list_options(theta, first, end, moves[move, 0], moves[move, 1], x, options)
                edge = _set_capacities(graph, theta, example, x, options, terminal, residual)
                truncated[example] = max(edge, truncated[example])
                max_flow(graph, first, end, terminal, residual, search)
                for node in range(first, end):
                    after[node] = options[node, 0 if search.tree[node] == SOURCE else 1]
                value = _score(graph, theta, example, after)
                if value > present:
                    present, x[first:end] = value, after[first:end]
                    # A single move between all labels finds the maximum at once.
                    converged[example] = len(moves) == 1 and truncated[example] < 0
    return n_iter, converged, truncated


@kernel
def _list_options(theta, first, end, zero, one, x, options):
    """List the two states that each node may have after a move; both are the present one without a choice."""
    for node in range(first, end):
        own = x[node]
        options[node] = own
        if zero < 0 or own == zero or own == one:
            if zero >= 0 and theta.unary[node, zero] > -np.inf:
                options[node, 0] = zero
            if theta.unary[node, one] > -np.inf:
                options[node, 1] = one


@kernel
def _set_capacities(graph, theta, example, x, options, terminal, residual):
    """Set capacities such that a cut costs as much as a move; returns an edge that was truncated, or -1.

    Nodes on the source's side take the first option; the cost of the second one is a capacity from the
    source.
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
            # Forbidden rows and columns have large negative entries, but small differences along them.
            along = min(abs(t00 - t01) + abs(t11 - t10), abs(t00 - t10) + abs(t11 - t01))
            if -half > _DIFFERENCE_ROUNDING * along + _ENTRY_ROUNDING * (
                abs(t00) + abs(t01) + abs(t10) + abs(t11)
            ):
                truncated = edge
            # The present pair keeps its potential, and no other gains: so the score cannot decrease.
            if x[i] == i0 and x[j] == j1:
                t10 += 2.0 * half
            elif x[i] == i1 and x[j] == j0:
                t01 += 2.0 * half
            else:
                t01, t10 = t01 + half, t10 + half
            half = 0.0
        # -theta = ... + (t00 - t10) x_i + (t10 - t11) x_j + 2 half (1 - x_i) x_j, half of it per direction
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
