"""Topologies: the graph of an example, and the features of its edges."""

from abc import ABC, abstractmethod

import numpy as np
from scipy import sparse
from sklearn.preprocessing import FunctionTransformer

from skcrf.graph import chain, from_edges, lattice, mesh


class Topology(ABC):
    """Base class of topologies, which are small, never change and can be pickled.

    Attributes
    ----------
    n_edge_features : int
        Number of features of a table.
    n_groups : int
        Number of groups of edges with weights of their own, such as the directions of a lattice.
    """

    n_edge_features = 1
    n_groups = 1

    @abstractmethod
    def graph(self, outline):
        """Make the graph of an example from the outline that its reader gave."""

    def edge_features(self, graph, outline, X):
        """Compute the features of the tables of an example, (n_tables, n_edge_features): a constant."""
        return np.ones((graph.n_tables, self.n_edge_features))

    def hidden(self, outline):
        """Return a boolean per node that marks hidden variables, or None if there are none."""
        return None


class GridTopology(Topology):
    """Lattices of pixels whose edge features come from absolute differences of pixel features.

    Parameters
    ----------
    n_groups : int
        Number of directions.
    transformer : transformer or None
        Fitted transformer of the differences; None for no features but the constant.
    n_edge_features : int
        Number of features of an edge.
    """

    def __init__(self, n_groups, transformer, n_edge_features):
        self.n_groups = n_groups
        self.transformer = transformer
        self.n_edge_features = n_edge_features

    def edge_features(self, graph, outline, X):
        constant = np.ones((graph.n_tables, 1))
        if self.transformer is None or graph.n_edges == 0:
            return np.broadcast_to(constant, (graph.n_tables, self.n_edge_features))
        features = self.transformer.transform(edge_differences(graph, X))
        dense = features.toarray() if sparse.issparse(features) else np.asarray(features, dtype=np.float64)
        return np.hstack([constant, dense])


class LatticeTopology(GridTopology):
    """Undirected lattices with four or eight neighbours."""

    def __init__(self, connectivity, transformer, n_edge_features):
        super().__init__(connectivity // 2, transformer, n_edge_features)
        self.connectivity = connectivity

    def graph(self, outline):
        return lattice(*outline, connectivity=self.connectivity, tied=self.transformer is None)


class MeshTopology(GridTopology):
    """Directed lattices: each pixel has some of its neighbours as parents."""

    def __init__(self, parents, transformer, n_edge_features):
        super().__init__(len(parents), transformer, n_edge_features)
        self.parents = parents

    def graph(self, outline):
        return mesh(*outline, parents=self.parents, tied=self.transformer is None)


class ChainTopology(Topology):
    """Chains whose edges share one table."""

    def graph(self, outline):
        return chain(*outline)


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
        return np.zeros((0, self.n_edge_features)) if without_edges else outline.edge_features

    def hidden(self, outline):
        return outline.hidden


def _norm(differences):
    return np.linalg.norm(differences, axis=1, keepdims=True)


#: Transformers of the absolute differences across an edge, by name; None for no such features.
EDGE_FEATURES = {"bias": None, "contrast": FunctionTransformer(_norm)}


def edge_differences(graph, X):
    """Compute the absolute differences of features across each edge, (n_edges, n_features)."""
    return np.abs(X[graph.edges[:, 0]] - X[graph.edges[:, 1]])
