"""Reading graphs."""

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite

from skcrf.data.arrays import as_numbers, as_rows
from skcrf.data.containers import has_axes
from skcrf.data.readers import BaseReader, Example
from skcrf.graph import topological_order


class Outline:
    """The nodes and edges of one example.

    Parameters
    ----------
    n_nodes : int
        Number of nodes.
    edges : ndarray of shape (n_edges, 2)
        The two nodes of each edge.
    edge_features : ndarray of shape (n_edges, n_edge_features) or None
        Features of the edges, if they have any.
    hidden : ndarray of shape (n_nodes,) or None, default=None
        Which nodes are hidden variables; None if none is.
    """

    def __init__(self, n_nodes, edges, edge_features, hidden=None):
        self.n_nodes = n_nodes
        self.edges = edges
        self.edge_features = edge_features
        self.hidden = hidden


class Graphs(BaseReader):
    """Reads graphs: tuples ``(node_features, edges)`` or ``(node_features, edges, edge_features)``.

    Either may have one item more, which marks the nodes that are hidden variables.

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
        """Validate one graph, as `BaseReader` says."""
        self.check_parts(example, name)
        nodes, edges, *rest = example
        marked = len(rest) > 0 and _are_marks(rest[-1])
        if len(rest) == 2 and not marked:
            raise TypeError(f"{name}[3] is not an array of booleans, but {self.advice}")
        hidden = rest.pop() if marked else None
        rows = as_rows(nodes, f"{name}[0]", self.n_features, self.as_in)
        edges = as_edges(edges, rows.shape[0], f"{name}[1]")
        self.check_together(edges, rows.shape[0], f"{name}[1]")
        edge_features = _as_edge_features(rest[0], len(edges), f"{name}[2]") if rest else None
        found = _n_edge_features(edges, edge_features)
        if None not in (found, self.n_edge_features) and found != self.n_edge_features:
            raise ValueError(
                f"{name} has {found or 'no'} features an edge, but {self.n_edge_features or 'none'} "
                f"are expected, as {self.as_in}."
            )
        if hidden is not None:
            hidden = _as_hidden(hidden, rows.shape[0], f"{name}[{len(rest) + 2}]")
        return Example(rows, rows.shape[:1], Outline(rows.shape[0], edges, edge_features, hidden))

    def check_parts(self, example, name):
        """Refuse what is not made of two to four parts, the first of which is a table.

        Parameters
        ----------
        example : object
            What the user passed.
        name : str
            What to call it in messages.
        """
        if has_parts(example) and has_axes(example[0]):
            return
        if has_axes(example):
            found = f"{name} has shape {np.shape(example)}"
        elif not has_parts(example):
            length = f" of {len(example)}" if isinstance(example, (tuple, list)) else ""
            found = f"{name} is {type(example).__name__}{length}"
        else:
            nodes = as_numbers(example[0], f"{name}[0]")
            found = f"{name}[0] has shape {nodes.shape}, expected node features (n_nodes, n_features)"
        raise TypeError(f"{found}, but {self.advice}")

    def check_together(self, edges, n_nodes, name):
        """Refuse edges of a node to itself, and of two nodes that have one already.

        Parameters
        ----------
        edges : ndarray of shape (n_edges, 2)
            The two nodes of each edge.
        n_nodes : int
            Number of nodes.
        name : str
            What to call the edges in messages.
        """
        _check_simple(edges, name)

    def like(self, example, name):
        if None not in (self.n_features, self.n_edge_features):
            return self
        n_edge_features = _n_edge_features(example.outline.edges, example.outline.edge_features)
        return type(self)(example.X.shape[1], f"in {name}", n_edge_features)

    def is_example(self, item):
        return has_axes(item) or (has_parts(item) and has_axes(item[0], 1))


class DAGs(Graphs):
    """Reads graphs, as `Graphs` does, whose edges lead from parents to children.

    Parameters
    ----------
    n_features : int, default=None
        Number of features that a node must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from, for messages.
    n_edge_features : int, default=None
        Number of features that an edge must have, 0 if edges have none; None for any.
    """

    one, many = "DAG", "DAGs"

    def check_together(self, edges, n_nodes, name):
        topological_order(n_nodes, edges, name)
        super().check_together(edges, n_nodes, name)


def _n_edge_features(edges, edge_features):
    """Tell how many features the edges of a graph have; None where there are no edges to tell it."""
    if edge_features is None:
        return 0 if len(edges) else None
    return edge_features.shape[1]


def has_parts(example):
    """Tell whether an example is made of two to four parts, as graphs are.

    Parameters
    ----------
    example : object
        What the user passed.

    Returns
    -------
    has_parts : bool
        Whether it is.
    """
    parts = isinstance(example, (tuple, list)) or (
        isinstance(example, np.ndarray) and example.dtype == object and example.ndim == 1
    )
    return parts and len(example) in (2, 3, 4)


def as_edges(edges, n_nodes, name):
    """Validate the edges of one graph.

    Parameters
    ----------
    edges : array-like of shape (n_edges, 2)
        The two nodes of each edge.
    n_nodes : int
        Number of nodes.
    name : str
        What to call them in messages.

    Returns
    -------
    edges : ndarray of shape (n_edges, 2)
        int64.
    """
    if sparse.issparse(edges):
        raise TypeError(
            f"{name} is a sparse matrix, expected two nodes an edge: (n_edges, 2). Of an adjacency matrix "
            "these are np.transpose(scipy.sparse.triu(adjacency, 1).nonzero())."
        )
    edges = np.asarray(edges)
    if edges.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2:
        hint = " Did you mean edges.T?" if edges.ndim == 2 and len(edges) == 2 else ""
        raise ValueError(f"{name} has shape {edges.shape}, expected two nodes an edge: (n_edges, 2).{hint}")
    if edges.dtype.kind not in "iu":
        raise TypeError(
            f"{name} has dtype {edges.dtype}, expected integers, the numbers of nodes. A graph is "
            "(node_features, edges, edge_features), in this order."
        )
    edges = np.ascontiguousarray(edges, dtype=np.int64)
    outside = ((edges < 0) | (edges >= n_nodes)).any(axis=1)
    if outside.any():
        e = int(np.argmax(outside))
        raise ValueError(
            f"{name}[{e}] is {edges[e].tolist()}, but the graph has {n_nodes} nodes: 0 to {n_nodes - 1}."
        )
    return edges


def _check_simple(edges, name):
    """Refuse self-loops and repeated edges."""
    loops = edges[:, 0] == edges[:, 1]
    if loops.any():
        e = int(np.argmax(loops))
        raise ValueError(
            f"{name}[{e}] joins node {edges[e, 0]} to itself. Drop self-loops, as by "
            "edges[edges[:, 0] != edges[:, 1]]: what they say belongs to the features of the node."
        )
    pairs, first, which = np.unique(np.sort(edges, axis=1), axis=0, return_index=True, return_inverse=True)
    if len(pairs) < len(edges):
        e = int(np.flatnonzero(first[which.ravel()] != np.arange(len(edges)))[0])
        raise ValueError(
            f"{name}[{e}] is {edges[e].tolist()}, the same two nodes as {name}[{first[which.ravel()[e]]}]. "
            "Two nodes have one edge, listed in one direction: keep one of them, with its features. Where "
            "directions have no meaning, np.unique(np.sort(edges, axis=1), axis=0, return_index=True)[1] "
            "tells which to keep; where they have one, np.unique(edges, axis=0, return_index=True)[1]."
        )


def _as_edge_features(features, n_edges, name):
    features = as_numbers(features, name)
    if n_edges == 0 and features.shape in ((0,), (0, 0)):  # an empty list, which says nothing
        return None
    if features.ndim != 2 or len(features) != n_edges or features.shape[1] == 0:
        hint = " Did you mean edge_features[:, None]?" if features.shape == (n_edges,) else ""
        if features.ndim < 2:
            hint += " Hidden variables are marked by booleans, one a node."
        raise ValueError(
            f"{name} has shape {features.shape}, expected one row of features an edge: "
            f"({n_edges}, n_edge_features).{hint}"
        )
    features = np.ascontiguousarray(features, dtype=np.float64)
    assert_all_finite(features, input_name=name)
    return features


def _are_marks(item):
    """Tell whether the last part of a graph is booleans, and not features."""
    if isinstance(item, (list, tuple)):
        return len(item) > 0 and all(isinstance(mark, (bool, np.bool_)) for mark in item)
    return getattr(item, "dtype", None) == np.dtype(bool)


def _as_hidden(hidden, n_nodes, name):
    hidden = np.ascontiguousarray(hidden)
    if hidden.shape != (n_nodes,):
        raise ValueError(f"{name} has shape {hidden.shape}, expected one boolean a node: ({n_nodes},).")
    return hidden
