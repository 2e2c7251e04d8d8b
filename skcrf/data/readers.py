"""Readers and topologies: from what users pass to validated examples, their graphs and edge features.

The base classes, and those of images. Those of sequences, graphs and sites are in modules of these names.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite

from skcrf.data.examples import has_axes
from skcrf.graph import OFFSETS, PARENTS, ExampleError, lattice, mesh

# Types of indicators: they take one byte, and are never converted as a whole.
_INDICATORS = (np.bool_, np.uint8)


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


def float_type(dtype):
    """Return float32 if it holds every value of a type, such as integers of up to 16 bits, else float64."""
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
        rows = np.ascontiguousarray(rows, dtype=float_type(rows.dtype))
    assert_all_finite(rows.data if sparse.issparse(rows) else rows, input_name=name)
    return rows


def _as_sparse(features, name):
    if features.dtype.kind not in "buif":
        raise ValueError(f"{name} must hold real numbers, got dtype {features.dtype}.")
    return features.tocsr().astype(float_type(features.dtype), copy=False)


# Images


class ImageReader(BaseReader):
    """Reader of images of shape (height, width) or (height, width, n_features)."""

    one, many = "image", "images"
    advice = "images are (height, width, n_features), labels (height, width), one image is [image]."

    def __call__(self, example, name):
        image = as_image(example, name, self.n_features, self.as_in)
        shape = image.shape[:2]
        return Example(image.reshape(-1, image.shape[2]), shape, shape)


class BaseEdgeFeatures(BaseEstimator, ABC):
    """Base class of features of pairs of neighbouring pixels.

    A subclass computes features from the whole image, the two pixels of each pair and its direction. The
    classifiers of images take it as ``edge_features=``. They add a constant feature, and each direction has
    its own weights for all features.

    Conventions
    -----------
    - `transform_edges` computes all pairs at once. It is called for images of any size, one at a time, and
      from several threads; it must not change `self`.
    - Indicators should be bool or uint8: they take one byte each. Other types are stored as float32 where it
      holds every value of the type, else as float64.
    - A subclass that learns nothing only defines `transform_edges`.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf import GridCRFClassifier
    >>> from skcrf.datasets import make_binary_denoising
    >>> from skcrf.preprocessing import BaseEdgeFeatures
    >>> class DarkerEnd(BaseEdgeFeatures):
    ...     def transform_edges(self, image, edges, offsets):
    ...         values = image[:, :, 0].ravel()
    ...         return np.minimum(values[edges[:, 0]], values[edges[:, 1]])[:, None]
    >>> X, Y = make_binary_denoising(n_images=2, shape=(8, 8), random_state=0)
    >>> GridCRFClassifier(edge_features=DarkerEnd(), tol=0.1).fit(X, Y).edge_coef_.shape
    (4, 2, 2)
    """

    def fit_edges(self, samples, n_features):
        """Learn what the features need, such as thresholds.

        Parameters
        ----------
        samples : iterable of tuple
            Arguments ``(image, edges, offsets)`` of `transform_edges`, for images spread evenly over the
            training set. They are loaded in each loop over `samples`. There are none if no image has
            neighbouring pixels.
        n_features : int
            Number of features of a pixel.

        Returns
        -------
        self : object
            The fitted features.
        """
        return self

    @abstractmethod
    def transform_edges(self, image, edges, offsets):
        """Compute the features of all edges of an image.

        Parameters
        ----------
        image : ndarray of shape (height, width, n_features)
            Image, float32 or float64.
        edges : ndarray of shape (n_edges, 2)
            The two pixels of each edge; pixel (r, c) has the index ``r * width + c``.
        offsets : ndarray of shape (n_edges, 2)
            Rows and columns from the first pixel to the second: (0, 1) to the right, (1, 0) down.

        Returns
        -------
        features : ndarray of shape (n_edges, n_edge_features)
            Features.
        """

    def get_feature_names_out(self, input_features=None):
        """Get the names of the features.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features of a pixel; None for x0, x1, ...

        Returns
        -------
        feature_names_out : ndarray of str
            One name per feature of an edge.
        """
        raise AttributeError(f"{type(self).__name__} has no feature names.")


class Bias(BaseEdgeFeatures):
    """No features but the constant, so that all edges of one direction share a table."""

    def transform_edges(self, image, edges, offsets):
        return np.zeros((len(edges), 0))

    def get_feature_names_out(self, input_features=None):
        return np.array([], dtype=object)


def compute_edge_features(features, image, edges, offsets):
    """Compute features of edges, and raise an error unless there is one row per edge."""
    found = np.asarray(features.transform_edges(image, edges, offsets))
    if found.ndim != 2 or len(found) != len(edges):
        raise ValueError(
            f"edge_features must return one row per edge, shape ({len(edges)}, n_features), got shape "
            f"{found.shape} from {features!r}."
        )
    if found.dtype.kind not in "buif":
        raise TypeError(f"edge_features must return numbers, got dtype {found.dtype} from {features!r}.")
    return found if found.dtype.type in _INDICATORS else found.astype(float_type(found.dtype), copy=False)


def count_edge_features(features, n_features):
    """Return the number of features of an edge that fitted BaseEdgeFeatures make."""
    pair = np.zeros((1, 2, n_features)), np.array([[0, 1]]), np.array([[0, 1]])
    return compute_edge_features(features, *pair).shape[1]


def with_constant(features):
    """Put a constant feature before others, of the same type except that booleans become uint8."""
    dtype = np.uint8 if features.dtype == bool else features.dtype
    return np.hstack([np.ones((len(features), 1), dtype), features], dtype=dtype)


class GridTopology(Topology):
    """Lattices of pixels whose edge features come from the images.

    Parameters
    ----------
    offsets : sequence of tuple
        Rows and columns from the first pixel to the second in each direction.
    features : BaseEdgeFeatures
        Fitted features of the edges besides the constant.
    n_edge_features : int
        Number of features of an edge; with the constant alone, edges of one direction share a table.
    """

    def __init__(self, offsets, features, n_edge_features):
        self.offsets = np.array(offsets)
        self.n_groups = len(offsets)
        self.features = features
        self.n_edge_features = n_edge_features

    @property
    def is_tied(self):
        """Whether all edges of one direction share a table."""
        return self.n_edge_features == 1

    def edge_features(self, graph, outline, X):
        if self.is_tied:
            return np.ones((graph.n_tables, 1))
        if graph.n_edges == 0:
            return np.zeros((0, self.n_edge_features), np.uint8)  # does not widen those of other images
        found = compute_edge_features(self.features, *self.view(graph, outline, X))
        if found.shape[1] + 1 != self.n_edge_features:
            raise ExampleError(
                f"edge_features must return {self.n_edge_features - 1} features per edge, as in fit, got "
                f"{found.shape[1]} in {{example}}.",
                0,
            )
        if not np.isfinite(found).all():
            raise ExampleError("edge_features must return finite numbers, got nan or inf in {example}.", 0)
        return with_constant(found)

    def view(self, graph, outline, X):
        """Return an image as `BaseEdgeFeatures` see it: pixels, edges and offsets."""
        offsets = self.offsets[graph.table_group[graph.edge_table]]
        return X.reshape(*outline, X.shape[1]), graph.edges, offsets


class LatticeTopology(GridTopology):
    """Undirected lattices with four or eight neighbours."""

    def __init__(self, connectivity, features, n_edge_features):
        super().__init__(OFFSETS[connectivity], features, n_edge_features)
        self.connectivity = connectivity

    def graph(self, outline):
        return lattice(*outline, connectivity=self.connectivity, tied=self.is_tied)


class MeshTopology(GridTopology):
    """Directed lattices: each pixel has some of its neighbours as parents."""

    def __init__(self, parents, features, n_edge_features):
        super().__init__([PARENTS[parent] for parent in parents], features, n_edge_features)
        self.parents = parents

    def graph(self, outline):
        return mesh(*outline, parents=self.parents, tied=self.is_tied)


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
    image = np.ascontiguousarray(image.reshape(*image.shape[:2], -1), dtype=float_type(image.dtype))
    assert_all_finite(image, input_name=name)
    if n_features is not None and image.shape[2] != n_features:
        raise ValueError(
            f"{name} must have {n_features} features per pixel, as {as_in}, got {image.shape[2]}."
        )
    return image
