"""The interface of models, from weights to potentials and gradients back, and changes of variables.

The Hessian of a mean loss in the weights of features x is about the mean of ``v x x^T``, where v is the
variance of a label or a pair of labels, plus the strength of the penalty. Optimizers that estimate curvatures
from few gradients need fewer iterations in variables in which this matrix is the identity.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular

from skcrf._numerics import blocks

# More features than this are scaled one by one.
_MOST_FEATURES = 512
# Numbers per batch in rows for products of different features, and the weight of the features by themselves,
# which makes up for rows that were left out.
_MOST_NUMBERS, _SHRINKAGE = 2**17, 1e-3
# Added to variances, because certain labels may be wrong.
_LEAST_VARIANCE = 0.03


class SparseColumns(NamedTuple):
    """A matrix of which all but some columns are zero, such as the gradient of a batch of sparse features.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_stored)
        Columns that may differ from zero.
    columns : ndarray of shape (n_stored,)
        Their positions, which increase.
    n_columns : int
        Number of columns of the matrix.
    """

    values: np.ndarray
    columns: np.ndarray
    n_columns: int

    def ravel(self):
        """Return the whole matrix as a dense vector, row by row."""
        dense = np.zeros((len(self.values), self.n_columns))
        dense[:, self.columns] = self.values
        return dense.ravel()

    def add_to(self, dense):
        """Add the matrix to a dense one in place."""
        for row, values in zip(dense, self.values, strict=True):
            row[self.columns] += values


class BaseModel(ABC):
    """Base class of models.

    A model owns its parameters, a dictionary of arrays that is packed into one weight vector for optimizers,
    and maps them with the features of a batch to potentials. It is small and can be pickled: it is sent to
    the workers with the weights.

    Attributes
    ----------
    n_classes : int
        Number of states of a site.
    layout : {"pairwise", "factor"}
        Layout of the structures that inference sees.
    is_linear : bool
        Whether potentials are linear in the weights.
    """

    layout = "pairwise"
    is_linear = True

    @property
    @abstractmethod
    def shapes(self):
        """Dict: the name and shape of each parameter, in the order of the weight vector."""

    @abstractmethod
    def structure(self, batch):
        """Return the Graph or FactorGraph of a batch that inference and losses see."""

    @abstractmethod
    def potentials(self, params, batch, compact=False):
        """Compute the potentials of a batch.

        Parameters
        ----------
        params : dict of ndarray
            Parameters.
        batch : Batch
            Features.
        compact : bool, default=False
            Whether tables of the model that are Potts tables may have the shape of such tables, see
            `Potentials`.

        Returns
        -------
        structure : Graph or FactorGraph
            The same as from `structure`.
        theta : Potentials
            Potentials on that structure, float64.
        """

    @abstractmethod
    def pull_back(self, params, batch, theta, d_theta):
        """Compute the gradient with respect to the parameters, examples weighted by ``batch.weight``.

        Parameters
        ----------
        params : dict of ndarray
            Parameters.
        batch : Batch
            Features.
        theta : Potentials
            Result of `potentials`.
        d_theta : Potentials
            Derivative with respect to theta, of the shape of theta; may be overwritten.

        Returns
        -------
        gradient : dict of ndarray or SparseColumns
            Derivative with respect to each parameter.
        """

    def project(self, params):
        """Project parameters, or a gradient, onto those that the model allows: ties, fixed parameters."""
        return params

    def is_penalised(self, name):
        """Return whether the ridge penalty includes a parameter."""
        return True

    def independent(self):
        """Return the model with the same parameters whose sites are independent."""
        return self

    def given_labels(self):
        """Return the model of the same potentials that may treat the labels of a batch as known.

        It is right only where these labels are clamped.
        """
        return self

    def moments(self, params, batch):
        """Compute the moments of the features of a batch, by name; see `change_of_variables`.

        Parameters
        ----------
        params : dict of ndarray
            Parameters, which tell how certain labels are.
        batch : Batch
            Features.

        Returns
        -------
        moments : dict of Moments
            Sums over the sites and edges of the batch.
        """
        return {}

    def change_of_variables(self, moments, alpha):
        """Return variables in which the curvature of an objective is about the same in all directions.

        Parameters
        ----------
        moments : dict of Moments
            Results of `moments`, added over all batches.
        alpha : float
            Strength of the ridge penalty.

        Returns
        -------
        change : ChangeOfVariables
            By default one that changes nothing.
        """
        return ChangeOfVariables()

    def coupling(self, moments):
        """Return parameters by which neighbours prefer equal labels, or None if there are none."""
        return None

    def zeros(self):
        """Return parameters that are all zero."""
        return {name: np.zeros(shape) for name, shape in self.shapes.items()}

    def pack(self, params):
        """Return all parameters as one vector."""
        return np.concatenate([params[name].ravel() for name in self.shapes])

    def add_gradient(self, total, gradient):
        """Add a result of `pull_back` to a vector in place."""
        for name, part in self.unpack(total).items():
            added = gradient[name]
            if isinstance(added, SparseColumns):
                added.add_to(part)
            else:
                part += added

    def unpack(self, w):
        """Return the parameters in a vector, as views of it."""
        params, start = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            params[name] = w[start : start + size].reshape(shape)
            start += size
        return params

    def penalised(self, w):
        """Return a copy of a weight vector in which parameters without a penalty are zero."""
        kept = {
            name: part if self.is_penalised(name) else np.zeros_like(part)
            for name, part in self.unpack(w).items()
        }
        return self.pack(kept)

    def project_vector(self, w):
        """Return the projection of a weight vector, or of a gradient."""
        return self.pack(self.project(self.unpack(w)))


# Changes of variables


class ChangeOfVariables:
    """A linear change of the weight vector of a model; this one changes nothing."""

    def to_weights(self, v):
        """Return the weight vector of variables."""
        return v

    def to_variables(self, w):
        """Return the variables of a weight vector."""
        return w

    def pull_back(self, gradient):
        """Return the gradient with respect to variables from that with respect to weights."""
        return gradient


class Combinations(ChangeOfVariables):
    """Weights that are combinations of few vectors.

    Parameters
    ----------
    vectors : ndarray of shape (n_variables, n_weights)
        The vectors.
    """

    def __init__(self, vectors):
        self.vectors = vectors

    def to_weights(self, v):
        return v @ self.vectors

    def to_variables(self, w):
        return np.linalg.lstsq(self.vectors.T, w, rcond=None)[0]

    def pull_back(self, gradient):
        return self.vectors @ gradient


def largest_variance(n_states):
    """Return the variance of states of equal probability, as `moments_of` computes it."""
    return (1.0 - 1.0 / n_states + _LEAST_VARIANCE) / n_states


def purity(unary):
    """Compute the sum of squared probabilities of each site as if sites were independent."""
    p = np.exp(unary - unary.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return np.einsum("ij,ij->i", p, p)


class Moments(NamedTuple):
    """Sums over weighted rows of features, also weighted by the variances of labels.

    Attributes
    ----------
    n_rows : float
        Weight of the rows.
    sums : ndarray of shape (n_features,)
        Sums of the features, without variances.
    squares : ndarray of shape (n_features,)
        Sums of their squares.
    products : ndarray of shape (n_features, n_features) or None
        Sums of the products of two features over some of the rows; None if there are many features.
    """

    n_rows: float
    sums: np.ndarray
    squares: np.ndarray
    products: np.ndarray | None

    def only(self, kept):
        """Return the moments without the products of features that are not kept, booleans."""
        products = None if self.products is None else self.products * np.outer(kept, kept)
        return self._replace(squares=self.squares * kept, products=products)

    def plus(self, other):
        """Return the sums over the rows of both."""
        products = None if self.products is None else self.products + other.products
        return Moments(
            self.n_rows + other.n_rows, self.sums + other.sums, self.squares + other.squares, products
        )


def moments_of(features, purities, n_states, weights, *, constant=False):
    """Compute the moments of the rows of a matrix.

    Parameters
    ----------
    features : ndarray or CSR matrix of shape (n_rows, n_features)
        Features of sites or of edges.
    purities : ndarray of shape (n_rows,)
        Sums of squared probabilities of the states of each site or edge.
    n_states : int
        Number of these states.
    weights : ndarray of shape (n_rows,)
        Weights of the rows.
    constant : bool, default=False
        Whether to add a last feature that is 1.

    Returns
    -------
    moments : Moments
        The sums.
    """
    n_rows, n_features = features.shape
    variances = weights * (1.0 - purities + _LEAST_VARIANCE) / n_states
    if sparse.issparse(features):
        row_of = np.repeat(np.arange(n_rows), np.diff(features.indptr))
        entries = (
            weights[row_of] * features.data,
            variances[row_of] * np.square(features.data, dtype=np.float64),
        )
        sums, squares = (np.bincount(features.indices, values, minlength=n_features) for values in entries)
    else:
        sums, squares = np.zeros(n_features), np.zeros(n_features)
        for rows, block in blocks(features, np.float64):
            sums += weights[rows] @ block
            squares += np.einsum("ij,ij,i->j", block, block, variances[rows])
    if constant:
        sums, squares = np.append(sums, weights.sum()), np.append(squares, variances.sum())
    found = Moments(float(weights.sum()), sums, squares, None)
    if n_features > _MOST_FEATURES:
        return found
    step = max(1, -(-n_rows * n_features // _MOST_NUMBERS))
    rows = features[::step]
    rows = (rows.toarray() if sparse.issparse(rows) else rows).astype(np.float64)
    if constant:
        rows = np.column_stack([rows, np.ones(len(rows))])
    return found._replace(products=(rows * variances[::step, None]).T @ rows)


class Scaling(NamedTuple):
    """A linear change of the weights of features: ``weights = variables @ matrix``.

    Attributes
    ----------
    matrix, inverse : ndarray of shape (n_features, n_features) or (n_features,)
        The matrix and its inverse; their diagonals if features are scaled one by one.
    """

    matrix: np.ndarray
    inverse: np.ndarray

    @classmethod
    def from_moments(cls, moments, alpha, unit):
        """Scale weights so that the mean of ``v x x^T`` plus `alpha` becomes `unit` times the identity."""
        mean_squares, alpha = moments.squares / (unit * (moments.n_rows or 1.0)), alpha / unit
        if not np.isfinite(mean_squares).all():
            return cls(np.ones_like(mean_squares), np.ones_like(mean_squares))
        mean_squares[mean_squares == 0] = 1.0  # any scale will do
        if moments.products is None:
            scales = np.sqrt(mean_squares + alpha)
            return cls(1.0 / scales, scales)
        norms = np.sqrt(np.diagonal(moments.products))
        norms[norms == 0] = 1.0
        correlations = (1.0 - _SHRINKAGE) * moments.products / np.outer(norms, norms)
        np.fill_diagonal(correlations, 1.0)
        scales = np.sqrt(mean_squares)
        hessian = correlations * np.outer(scales, scales)
        hessian.flat[:: len(hessian) + 1] += alpha
        factor = np.linalg.cholesky(hessian)
        return cls(solve_triangular(factor, np.eye(len(factor)), lower=True), factor)

    def to_weights(self, rows):
        """Return the weights of variables."""
        return _product(rows, self.matrix)

    def to_variables(self, rows):
        """Return the variables of weights."""
        return _product(rows, self.inverse)

    def pull_back(self, rows):
        """Return the gradient with respect to variables from that with respect to weights."""
        return _product(rows, self.matrix.T)


def _product(rows, matrix):
    return rows * matrix if matrix.ndim == 1 else rows @ matrix
