"""The interface of models, from weights to potentials and gradients back, and products of features."""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel, reduction_kernel

# Rows of narrow features that are multiplied at a time: few enough for the cache, and for sums in float32. A
# constant, so that results do not depend on n_jobs.
_ROWS = 2048


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


# Products of features with weights, and with derivatives. Features of a narrow type, such as float32, are not
# copied as a whole to float64: that would need much memory, and half of the time of an evaluation with many
# features.


def multiply(features, coef, out):
    """Compute ``out = features @ coef.T`` in float64.

    The sums of narrow features are in float64 too, since line searches would see errors of float32.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features)
        Features of any type.
    coef : ndarray of shape (n_outputs, n_features)
        Weights.
    out : ndarray of shape (n_rows, n_outputs)
        Result.
    """
    if features.dtype == np.float64:
        _multiply_rows(features, np.ascontiguousarray(coef.T), out)
    elif features.dtype == np.float32 and len(coef) <= features.shape[1]:
        _multiply_single(np.ascontiguousarray(features), np.ascontiguousarray(coef), out)
    else:
        for rows, block in _blocks(features, np.float64):
            _multiply_rows(block, np.ascontiguousarray(coef.T), out[rows])


def _multiply_rows(a, b, out):
    """Compute ``out = a @ b`` so that a row does not depend on the number of rows."""
    if len(a) == 1:  # BLAS multiplies a vector in another order
        out[:] = (np.repeat(a, 2, axis=0) @ b)[:1]
    else:
        np.matmul(a, b, out=out)


def transposed_product(a, b):
    """Compute ``a.T @ b``, such as the derivative of weights from features and the derivative of `multiply`.

    Where one of both is narrow, blocks of rows are multiplied in float32, and added in float64.
    """
    if a.dtype == b.dtype == np.float64:
        return a.T @ b
    product = np.zeros((a.shape[1], b.shape[1]))
    for (_, rows_of_a), (_, rows_of_b) in zip(_blocks(a, np.float32), _blocks(b, np.float32), strict=True):
        product += rows_of_a.T @ rows_of_b
    return product


def _blocks(features, dtype):
    """Yield slices of rows, and the features there converted to a type."""
    converted = np.empty((min(_ROWS, len(features)), features.shape[1]), dtype)
    for start in range(0, len(features), _ROWS):
        rows = slice(start, min(start + _ROWS, len(features)))
        block = features[rows]
        if features.dtype != dtype:
            np.copyto(converted[: len(block)], block, casting="same_kind")
            block = converted[: len(block)]
        yield rows, block


@kernel
def _multiply_single(features, coef, out):
    for i in range(len(features)):
        for x in range(len(coef)):
            out[i, x] = _dot(features[i], coef[x])


@reduction_kernel
def _dot(row, coef):
    total = 0.0
    for f in range(len(coef)):
        total += row[f] * coef[f]  # in float64, as coef is
    return total
