"""Tree-reweighted belief propagation and its edge weights.

Edge weights are probabilities of edges in distributions over spanning trees. Weights of factors are
probabilities in distributions over acyclic sets, in which no two factors are connected in more than one way.
The entropy of such a set is that of its nodes minus the mutual information of its factors, and so is the mean
over all sets, with the probability of each factor as its weight.
"""

from functools import lru_cache, singledispatch
from numbers import Real

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from skcrf._numerics import GraphCache, kernel
from skcrf.graph import ExampleError, FactorGraph
from skcrf.inference._engine import Plan
from skcrf.inference._fixed_point import may_resume
from skcrf.inference._message_passing import PASSING, MessagePassing

# Lines of fewer pixels are short. The weights of combs are those of lines times one plus one over the length.
_SHORT_LINE = 64
# Minimum number of covering sets per factor. More sets give more even weights.
_MIN_USES = 3


class TRW(MessagePassing):
    """Tree-reweighted belief propagation, D13 section 3.3.

    Iterates Eq 18. If the edge weights `rho` are the probabilities of edges in a distribution over spanning
    trees, the fixed point maximises a concave objective, and `log_z` is an upper bound of the log-partition
    function. To maximise, and for marginal MAP, a configuration is decoded from the messages as by `BP`;
    then `log_z` is its score.

    Parameters
    ----------
    rho : float, array-like of shape (n_edges,), "auto" or "spanning_trees", default="auto"
        Weight of each edge, above 0 and at most 1; an array has one value per edge of an example, or of the
        whole batch.

        - "spanning_trees" computes the probabilities of edges in a distribution over spanning trees: in
          closed form on lattices, elsewhere by covering the graph with trees, or with sets of factors without
          cycles.
        - "auto" does the same, except on lattices of at least 64 rows and columns. There it takes 0.5 for all
          edges with 4 neighbours and 0.25 with 8, the probabilities of a distribution over forests. Large
          lattices have almost the same weights in a distribution over spanning trees, and iterations with
          equal weights are faster.

        On forests both are 1, and the method is exact.
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
    BP : The same iteration with ``rho = 1`` everywhere.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, lattice
    >>> from skcrf.inference import TRW
    >>> graph = lattice(2, 2)
    >>> theta = Potentials(np.zeros((4, 2)), np.stack([np.eye(2), np.eye(2)]))
    >>> TRW(tol=1e-8, max_iter=1000).forward(graph, theta).log_z.round(3)
    array([5.395])
    """

    _parameter_constraints = {
        "rho": [StrOptions({"auto", "spanning_trees"}), Interval(Real, 0, 1, closed="right"), "array-like"],
        **PASSING,
    }

    tasks = frozenset({"sum", "max", "mixed"})
    layouts = frozenset({"pairwise", "factor", "potts"})
    exact_on = "forest"
    bound = "upper"

    def __init__(self, rho="auto", max_iter=10, tol=0.0, damping=0.0, dtype="float64"):
        self.rho = rho
        self.max_iter = max_iter
        self.tol = tol
        self.damping = damping
        self.dtype = dtype

    @property
    def resumes(self):
        """Whether iterations may start anywhere: with spanning-tree weights the objective is concave."""
        return may_resume(self.tol) and isinstance(self.rho, str)

    def part_of(self, graph, selection):
        if np.ndim(self.rho) == 0 or len(self.rho) != graph.n_edges:
            return self
        return clone(self).set_params(rho=np.asarray(self.rho)[selection.edges])

    def _plan(self, graph):
        rho = self._edge_weights(graph)
        return Plan(graph, rho, self.max_iter, self.tol, self.damping, dtype=self._message_type())

    def _edge_weights(self, graph):
        if isinstance(self.rho, str):
            cache = _weights[self.rho]
            weights = cache.get(graph)
            return cache.put(graph, EDGE_WEIGHTS[self.rho](graph)) if weights is None else weights
        rho = np.asarray(self.rho, dtype=np.float64)
        if not ((rho > 0) & (rho <= 1)).all():
            raise ValueError(f"rho must be above 0 and at most 1, got {self.rho!r}.")
        if rho.ndim == 0:
            return np.full(graph.n_edges, float(rho))
        if len(rho) == graph.n_edges:
            return np.ascontiguousarray(rho)
        wrong = np.flatnonzero(np.diff(graph.edge_ptr) != len(rho))
        if len(wrong):
            n_edges = np.diff(graph.edge_ptr)[wrong[0]]
            raise ExampleError(
                f"rho must have one value per edge, {n_edges} in {{example}}, got {len(rho)} values.",
                wrong[0],
            )
        return np.tile(rho, graph.n_examples)


# Edge weights


def spanning_tree_weights(graph):
    """Compute the probability of each edge in a distribution over spanning trees.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Any graph; on graphs that are not connected, trees are forests, and on factor graphs, acyclic sets of
        factors.

    Returns
    -------
    rho : ndarray of shape (n_edges,)
        Probabilities, 1 on forests.
    """
    return _covering_distribution(graph, _comb_weights)


def forest_weights(graph):
    """Compute the probability of each edge in a distribution over forests, equal on large lattices.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Any graph.

    Returns
    -------
    rho : ndarray of shape (n_edges,)
        On large lattices, one over the number of directions; elsewhere those of `spanning_tree_weights`.
    """
    return _covering_distribution(graph, _line_weights)


#: Edge weights by name.
EDGE_WEIGHTS = {"auto": forest_weights, "spanning_trees": spanning_tree_weights}

_weights = {name: GraphCache() for name in EDGE_WEIGHTS}


@singledispatch
def _covering_distribution(graph, lattice_weights):
    """Compute the weights of each example, of lattices by a function of height, width and edges."""
    rho = np.empty(graph.n_edges)
    for example in np.flatnonzero(np.diff(graph.edge_ptr)):
        edges = slice(graph.edge_ptr[example], graph.edge_ptr[example + 1])
        height, width = (int(size) for size in graph.shapes[example])
        if height > 0:
            rho[edges] = lattice_weights(height, width, edges.stop - edges.start)
        else:
            first, end = graph.node_ptr[example : example + 2].tolist()
            rho[edges] = _pairwise_weights(end - first, (graph.edges[edges] - first).tobytes())
    return rho


@_covering_distribution.register
def _(graph: FactorGraph, lattice_weights):
    structure = graph.scope_ptr, graph.scope, graph.node_ptr, graph.edge_ptr
    return _factor_weights(*(array.tobytes() for array in structure))


def _line_weights(height, width, n_edges):
    """Average over the forests that the lines of a direction are, or over combs if lines are short."""
    if min(height, width) < _SHORT_LINE:
        return _comb_weights(height, width, n_edges)
    return 0.25 if n_edges > height * (width - 1) + width * (height - 1) else 0.5


@lru_cache(maxsize=4)
def _comb_weights(height, width, n_edges):
    """Average over combs: all edges of one direction, and edges that connect them.

    All horizontal edges and a random column form a spanning tree, and so do all vertical edges and a random
    row. With diagonals, so do all edges of a diagonal direction, the top row and one outer column.

    With diagonals, equal weights for all edges or per direction are not an option: every tree contains one of
    the three edges of a corner, which would leave almost nothing for the other diagonals.
    """
    diagonals = n_edges > height * (width - 1) + width * (height - 1)
    trees = 4 if diagonals else 2
    horizontal = np.full((height, width - 1), (1 + 1 / height) / trees)
    vertical = np.full((height - 1, width), (1 + 1 / width) / trees)
    if diagonals:
        horizontal[0] += 2 / trees
        vertical[:, 0] += 1 / trees
        vertical[:, -1] += 1 / trees
    diagonal = np.full(n_edges - horizontal.size - vertical.size, 1 / trees)
    return np.concatenate([horizontal.ravel(), vertical.ravel(), diagonal])


@lru_cache(maxsize=1024)
def _pairwise_weights(n_nodes, edges):
    """Cover one pairwise example with spanning trees; parallel edges share the weight of their pair."""
    edges = np.sort(np.frombuffer(edges, dtype=np.int64).reshape(-1, 2), axis=1)
    pairs, pair_of, copies = np.unique(edges, axis=0, return_inverse=True, return_counts=True)
    scope_ptr, node_ptr = np.arange(0, 2 * len(pairs) + 1, 2), np.array([0, n_nodes])
    rho = _covering_weights(scope_ptr, pairs.reshape(-1), node_ptr, np.array([0, len(pairs)]))
    return (rho / copies)[pair_of.ravel()]


@lru_cache(maxsize=8)
def _factor_weights(*structure):
    """Cover the factors of each example with acyclic sets."""
    return _covering_weights(*(np.frombuffer(array, dtype=np.int64).copy() for array in structure))


@kernel
def _covering_weights(scope_ptr, scope, node_ptr, edge_ptr):
    """Cover factors with acyclic sets of the least used ones; return their relative frequencies."""
    rho, n_uses = np.ones(edge_ptr[-1]), np.zeros(edge_ptr[-1], np.int64)
    parent, mark = np.empty(node_ptr[-1], np.int64), np.full(node_ptr[-1], -1)
    for example in range(len(node_ptr) - 1):
        first, end = edge_ptr[example], edge_ptr[example + 1]
        n_sets, least = 0, 0
        while least < _MIN_USES and end > first:
            for node in range(node_ptr[example], node_ptr[example + 1]):
                parent[node] = node
            for place in np.argsort(n_uses[first:end], kind="mergesort"):
                if _add_if_acyclic(scope_ptr, scope, first + place, parent, mark):
                    n_uses[first + place] += 1
            n_sets, least = n_sets + 1, n_uses[first:end].min()
        for factor in range(first, end):
            rho[factor] = n_uses[factor] / n_sets
    return rho


@kernel
def _add_if_acyclic(scope_ptr, scope, factor, parent, mark):
    """Merge the trees of the nodes of a factor, unless two nodes are in one tree; returns whether it did."""
    first, end = scope_ptr[factor], scope_ptr[factor + 1]
    is_acyclic = True
    for link in range(first, end):
        root = _root(parent, scope[link])
        is_acyclic &= mark[root] != factor
        mark[root] = factor
    for link in range(first, end):
        mark[_root(parent, scope[link])] = -1
    if is_acyclic:
        for link in range(first + 1, end):
            parent[_root(parent, scope[link])] = _root(parent, scope[first])
    return is_acyclic


@kernel
def _root(parent, node):
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node
