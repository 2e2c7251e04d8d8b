"""Graphs and DAGs: their readers and their topology."""

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite

from skcrf.data.examples import has_axes
from skcrf.data.readers import BaseReader, Example, Topology, as_numbers, as_rows
from skcrf.graph import from_edges, topological_order


class Outline:
    """The nodes and edges of one example.

    Parameters
    ----------
    n_nodes : int
        Number of nodes.
    edges : ndarray of shape (n_edges, 2)
        The two nodes of each edge.
    edge_features : ndarray of shape (n_edges, n_edge_features) or None
        Features of the edges, if they have any: of a type that float32 includes, or float64.
    hidden : ndarray of shape (n_nodes,) or None, default=None
        Which nodes are hidden variables; None if none is.
    """

    def __init__(self, n_nodes, edges, edge_features, hidden=None):
        self.n_nodes = n_nodes
        self.edges = edges
        self.edge_features = edge_features
        self.hidden = hidden

    @property
    def n_edge_features(self):
        """Number of features of an edge; None if there are neither edges nor features."""
        if self.edge_features is None:
            return 0 if len(self.edges) else None
        return self.edge_features.shape[1]


class GraphReader(BaseReader):
    """Reader of tuples ``(node_features, edges[, edge_features][, hidden])``.

    Parameters
    ----------
    n_features : int, default=None
        Number of features that a node must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from, for messages.
    n_edge_features : int, default=None
        Number of features that an edge must have, 0 if edges have none; None for any.
    """

    one, many = "graph", "graphs"
    advice = (
        "graphs are tuples (node_features, edges) or (node_features, edges, edge_features), "
        "either with booleans (n_nodes,) last for hidden variables, labels (n_nodes,), one graph is [graph]."
    )

    def __init__(self, n_features=None, as_in="in fit", n_edge_features=None):
        super().__init__(n_features, as_in)
        self.n_edge_features = n_edge_features

    def __call__(self, example, name):
        self._check_parts(example, name)
        nodes, edges, *others = example
        has_hidden = len(others) > 0 and _is_boolean(others[-1])
        if len(others) == 2 and not has_hidden:
            found = type(others[-1]).__name__
            raise TypeError(f"{name}[3] must be an array of booleans, got {found}: {self.advice}")
        hidden = others.pop() if has_hidden else None
        rows = as_rows(nodes, f"{name}[0]", self.n_features, self.as_in)
        edges = as_edges(edges, rows.shape[0], f"{name}[1]")
        self._check_edges(edges, rows.shape[0], f"{name}[1]")
        edge_features = _as_edge_features(others[0], len(edges), f"{name}[2]") if others else None
        if hidden is not None:
            hidden = _as_hidden(hidden, rows.shape[0], f"{name}[{len(others) + 2}]")
        outline = Outline(rows.shape[0], edges, edge_features, hidden)
        found = outline.n_edge_features
        if None not in (found, self.n_edge_features) and found != self.n_edge_features:
            raise ValueError(
                f"{name} must have {self.n_edge_features or 'no'} features per edge, as {self.as_in}, "
                f"got {found or 'none'}."
            )
        return Example(rows, rows.shape[:1], outline)

    def _check_parts(self, example, name):
        """Raise an error unless an example has two to four parts, the first of which is a table."""
        if has_parts(example) and has_axes(example[0]):
            return
        if has_axes(example):
            problem = f"{name} must be a tuple, got shape {np.shape(example)}"
        elif not has_parts(example):
            length = f" of {len(example)}" if isinstance(example, (tuple, list)) else ""
            problem = f"{name} must be a tuple of 2 to 4 parts, got {type(example).__name__}{length}"
        else:
            nodes = as_numbers(example[0], f"{name}[0]")
            problem = f"{name}[0] must be node features (n_nodes, n_features), got shape {nodes.shape}"
        raise TypeError(f"{problem}: {self.advice}")

    def _check_edges(self, edges, n_nodes, name):
        """Raise an error if edges are not allowed together: here self-loops and repeated edges."""
        _check_simple(edges, name)

    def like(self, example, name):
        if None not in (self.n_features, self.n_edge_features):
            return self
        return type(self)(example.X.shape[1], f"in {name}", example.outline.n_edge_features)

    def is_example(self, item):
        return has_axes(item) or (has_parts(item) and has_axes(item[0], 1))


class DAGReader(GraphReader):
    """Reader of graphs whose edges lead from parents to children."""

    one, many = "DAG", "DAGs"

    def _check_edges(self, edges, n_nodes, name):
        topological_order(n_nodes, edges, name)
        super()._check_edges(edges, n_nodes, name)


class GraphTopology(Topology):
    """Graphs given by their edges.

    Parameters
    ----------
    n_edge_features : int
        Number of features of an edge; 0 for none, so that all edges share one table.
    """

    def __init__(self, n_edge_features):
        self.tied = n_edge_features == 0
        self.n_edge_features = max(1, n_edge_features)

    def graph(self, outline):
        return from_edges(outline.n_nodes, outline.edges, tied=self.tied)

    def edge_features(self, graph, outline, X):
        if self.tied:
            return super().edge_features(graph, outline, X)
        without_edges = outline.edge_features is None
        return np.zeros((0, self.n_edge_features), bool) if without_edges else outline.edge_features

    def hidden(self, outline):
        return outline.hidden


def has_parts(example):
    """Return whether an example has two to four parts, as graphs have."""
    parts = isinstance(example, (tuple, list)) or (
        isinstance(example, np.ndarray) and example.dtype == object and example.ndim == 1
    )
    return parts and len(example) in (2, 3, 4)


def as_edges(edges, n_nodes, name):
    """Validate the edges of one graph: return an int64 array of shape (n_edges, 2)."""
    if sparse.issparse(edges):
        raise TypeError(
            f"{name} must hold two nodes per edge, (n_edges, 2), got a sparse matrix. The edges of an "
            "adjacency matrix are np.transpose(scipy.sparse.triu(adjacency, 1).nonzero())."
        )
    edges = np.asarray(edges)
    if edges.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2:
        hint = " Did you mean edges.T?" if edges.ndim == 2 and len(edges) == 2 else ""
        raise ValueError(f"{name} must hold two nodes per edge, (n_edges, 2), got shape {edges.shape}.{hint}")
    if edges.dtype.kind not in "iu":
        raise TypeError(
            f"{name} must hold integers, the numbers of nodes, got dtype {edges.dtype}. A graph is "
            "(node_features, edges, edge_features), in this order."
        )
    edges = np.ascontiguousarray(edges, dtype=np.int64)
    outside = ((edges < 0) | (edges >= n_nodes)).any(axis=1)
    if outside.any():
        e = int(np.argmax(outside))
        raise ValueError(
            f"{name} must hold nodes from 0 to {n_nodes - 1}, as the graph has {n_nodes} nodes, "
            f"got {edges[e].tolist()} in {name}[{e}]."
        )
    return edges


def _check_simple(edges, name):
    """Raise an error for self-loops and repeated edges."""
    loops = edges[:, 0] == edges[:, 1]
    if loops.any():
        e = int(np.argmax(loops))
        raise ValueError(
            f"{name}[{e}] must join two nodes, got node {edges[e, 0]} twice. Drop self-loops by "
            "edges[edges[:, 0] != edges[:, 1]]; their features belong to the node."
        )
    pairs, first, which = np.unique(np.sort(edges, axis=1), axis=0, return_index=True, return_inverse=True)
    if len(pairs) < len(edges):
        e = int(np.flatnonzero(first[which.ravel()] != np.arange(len(edges)))[0])
        raise ValueError(
            f"{name} must hold at most one edge per pair of nodes, got {edges[e].tolist()} in {name}[{e}], "
            f"the same two nodes as in {name}[{first[which.ravel()[e]]}]. Keep one, with its features: "
            "np.unique(np.sort(edges, axis=1), axis=0, return_index=True)[1] where directions have no "
            "meaning, else np.unique(edges, axis=0, return_index=True)[1]."
        )


def _as_edge_features(features, n_edges, name):
    features = as_numbers(features, name)
    if n_edges == 0 and features.shape in ((0,), (0, 0)):  # an empty list has no number of features
        return None
    if features.ndim != 2 or len(features) != n_edges or features.shape[1] == 0:
        hint = " Did you mean edge_features[:, None]?" if features.shape == (n_edges,) else ""
        if features.ndim < 2:
            hint += " Mark hidden variables by booleans, one per node."
        raise ValueError(
            f"{name} must have one row of features per edge, ({n_edges}, n_edge_features), "
            f"got shape {features.shape}.{hint}"
        )
    is_narrow = np.can_cast(features.dtype, np.float32)  # such as 0 and 1 as bytes: kept as they are
    features = np.ascontiguousarray(features, dtype=features.dtype if is_narrow else np.float64)
    assert_all_finite(features, input_name=name)
    return features


def _is_boolean(item):
    """Return whether the last part of a graph holds booleans, not features."""
    if isinstance(item, (list, tuple)):
        return len(item) > 0 and all(isinstance(mark, (bool, np.bool_)) for mark in item)
    return getattr(item, "dtype", None) == np.dtype(bool)


def _as_hidden(hidden, n_nodes, name):
    hidden = np.ascontiguousarray(hidden)
    if hidden.shape != (n_nodes,):
        raise ValueError(f"{name} must have one boolean per node, ({n_nodes},), got shape {hidden.shape}.")
    return hidden
