"""Readers and topologies: from what users pass to validated examples, their graphs and edge features.

The base classes, and those of images. Those of sequences, graphs and sites are in modules of these names.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import assert_all_finite

from skcrf.data.examples import has_axes
from skcrf.graph import lattice, mesh


class Example(NamedTuple):
    """One validated example.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_sites, n_features)
        Features of the sites.
    shape : tuple
        Shape of its labels.
    outline : hashable
        Everything its graph depends on: the shape, or an object of its own.
    """

    X: np.ndarray
    shape: tuple
    outline: object


class BaseReader(ABC):
    """Base class of readers, which validate examples one at a time.

    A reader never changes, and is sent to the process that loads the examples.

    Parameters
    ----------
    n_features : int, default=None
        Number of features that a site must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from, for messages.
    """

    #: Names of one example and of several, for messages.
    one, many = "example", "examples"
    #: Description of valid examples and labels, for messages.
    advice = ""

    def __init__(self, n_features=None, as_in="in fit"):
        self.n_features = n_features
        self.as_in = as_in

    @abstractmethod
    def __call__(self, example, name):
        """Validate one example and return it as `Example`; `name` is used in messages."""

    def like(self, example, name):
        """Return the reader of the examples that follow `example`, which must agree with it."""
        return self if self.n_features is not None else type(self)(example.X.shape[1], f"in {name}")

    def is_example(self, item):
        """Return whether an item of a list is an example, not a row of a table."""
        return has_axes(item)

    def check_table(self, X):
        """Raise an error if X is a list of neither examples nor rows of a table."""
        if not (
            isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1)
        ):
            return  # scikit-learn explains the problem
        expected, shape = f"X must be a table or hold {self.many}", None
        for i, item in enumerate(X):
            if _has_words(item):
                raise TypeError(f"{expected}, got {_shorten(item)} in X[{i}]: {self.advice}")
            try:
                found = np.shape(item)
            except ValueError as error:
                raise ValueError(f"{expected}, got a ragged list in X[{i}]: {self.advice}") from error
            if shape is not None and found != shape:
                raise ValueError(
                    f"{expected}, got shape {found} in X[{i}] and shape {shape} in X[0]: {self.advice}"
                )
            shape = found


def _has_words(item):
    """Return whether an item holds strings or named features where numbers are expected."""
    inside = item if isinstance(item, (list, tuple, set)) else [item]
    return any(isinstance(one, (str, bytes, Mapping)) for one in inside)


def _shorten(item, width=60):
    text = repr(item)
    return text if len(text) <= width else f"{text[:width]}..."


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


def _float_type(dtype):
    # Half the memory where float32 holds every value: integers of up to 16 bits, as in most images.
    return np.float32 if np.can_cast(dtype, np.float32) else np.float64


def as_numbers(example, name):
    """Return an array of real numbers of any shape, or raise an error that names it."""
    if np.ma.is_masked(example):
        raise ValueError(f"{name} must not be masked, got masked features. Masks hide labels only.")
    try:
        array = np.asarray(example)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from error
    if array.dtype.kind in "buif":
        return array
    if array.dtype.kind != "O":
        hint = " Complex data not supported." if array.dtype.kind == "c" else ""
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}.{hint}")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers: {error}") from error


def as_rows(features, name, n_features=None, as_in="in fit"):
    """Validate the features of the sites of one example.

    Parameters
    ----------
    features : array-like or sparse matrix of shape (n_sites, n_features)
        The features.
    name : str
        Their name in messages.
    n_features : int, default=None
        Number of features that they must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from.

    Returns
    -------
    rows : ndarray or CSR matrix of shape (n_sites, n_features)
        float32 where that is exact, else float64; `features` itself where possible.
    """
    rows = _as_sparse(features, name) if sparse.issparse(features) else as_numbers(features, name)
    if rows.ndim != 2:
        advice = {
            1: " One feature per site is x[:, None].",
            3: " Use PixelWise and the grid classifiers for images.",
        }
        raise ValueError(
            f"{name} must have one row per site, (n_sites, n_features), got shape {rows.shape}."
            f"{advice.get(rows.ndim, '')}"
        )
    if 0 in rows.shape:
        raise ValueError(f"{name} must have at least one site and one feature, got shape {rows.shape}.")
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(f"{name} must have {n_features} features per site, as {as_in}, got {rows.shape[1]}.")
    if not sparse.issparse(rows):
        rows = np.ascontiguousarray(rows, dtype=_float_type(rows.dtype))
    assert_all_finite(rows.data if sparse.issparse(rows) else rows, input_name=name)
    return rows


def _as_sparse(features, name):
    if features.dtype.kind not in "buif":
        raise ValueError(f"{name} must hold real numbers, got dtype {features.dtype}.")
    return features.tocsr().astype(_float_type(features.dtype), copy=False)


# Images


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
        return np.hstack([constant, dense], dtype=_float_type(dense.dtype))


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


def as_image(example, name, n_features=None, as_in="in fit"):
    """Validate one image.

    Parameters
    ----------
    example : array-like of shape (height, width) or (height, width, n_features)
        The image.
    name : str
        Its name in messages.
    n_features : int, default=None
        Number of features that it must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from.

    Returns
    -------
    image : ndarray of shape (height, width, n_features)
        float32 where that is exact, else float64; C-ordered; a view of `example` where possible.
    """
    image = as_numbers(example, name)
    if image.ndim not in (2, 3):
        raise ValueError(
            f"{name} must be an image of shape (height, width) or (height, width, n_features), "
            f"got shape {image.shape}."
        )
    if image.size == 0:
        raise ValueError(f"{name} must have at least one pixel and one feature, got shape {image.shape}.")
    image = np.ascontiguousarray(image.reshape(*image.shape[:2], -1), dtype=_float_type(image.dtype))
    assert_all_finite(image, input_name=name)
    if n_features is not None and image.shape[2] != n_features:
        raise ValueError(
            f"{name} must have {n_features} features per pixel, as {as_in}, got {image.shape[2]}."
        )
    return image
