"""Images: their reader, their lattices, and features of pairs of pixels."""

import numpy as np
from scipy import sparse
from sklearn.preprocessing import FunctionTransformer

from skcrf.data.readers import BaseReader, Example, Topology, as_image
from skcrf.graph import lattice, mesh


class ImageReader(BaseReader):
    """Reader of images of shape (height, width) or (height, width, n_features)."""

    one, many = "image", "images"
    advice = "images are (height, width, n_features), labels (height, width), one image is [image]."

    def __call__(self, example, name):
        image = as_image(example, name, self.n_features, self.as_in)
        shape = image.shape[:2]
        return Example(image.reshape(-1, image.shape[2]), shape, shape)


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
        dense = features.toarray() if sparse.issparse(features) else np.asarray(features)
        dtype = np.float32 if np.can_cast(dense.dtype, np.float32) else np.float64
        return np.hstack([constant, dense], dtype=dtype)


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


def _norm(differences):
    return np.linalg.norm(differences, axis=1, keepdims=True)


#: Transformers of the absolute differences across an edge, by name; None for no such features.
EDGE_FEATURES = {"bias": None, "contrast": FunctionTransformer(_norm)}


def edge_differences(graph, X):
    """Compute the absolute differences of features across each edge, (n_edges, n_features)."""
    return np.abs(X[graph.edges[:, 0]] - X[graph.edges[:, 1]])
