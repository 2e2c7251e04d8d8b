"""Base class of transformers of the features of sites."""

from abc import abstractmethod

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import check_is_fitted, validate_data

from skcrf._registry import restore_on_error
from skcrf.data import Example, is_lazy, is_table, like_container, read_examples


class BaseSiteTransformer(CallbackSupportMixin, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):
    """Base class of transformers of the features of sites.

    A subclass sets `_unfitted_reader` and implements `_fit_examples` and `_transform_rows`.

    Conventions
    -----------
    - Rows are sites: an image (height, width, n_features) has height * width rows in C order.
    - A table of shape (n_samples, n_features) is transformed row by row. `set_output` applies to tables only;
      examples are always returned as arrays.
    - The result has the same kind of container as X.
    """

    # auto_wrap_output_keys=None above keeps scikit-learn from wrapping `transform` and `fit_transform`, which
    # also return examples; subclasses have `set_output` as usual.

    #: BaseReader that accepts any number of features.
    _unfitted_reader = None

    @with_callbacks
    def fit(self, X, y=None):
        """Fit to all sites of all examples.

        Parameters
        ----------
        X : sequence of examples, or array-like of shape (n_samples, n_features)
            Examples as the class accepts them, or a table of rows.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted transformer.
        """
        return self._fit_with_callbacks(X, y, self._fit_examples, reset=True)

    def _fit_with_callbacks(self, X, y, fit_examples, *, reset):
        context = self._init_callback_context()
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        with restore_on_error(self):
            fit_examples(self._read(X, reset=reset))
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})
        return self

    def transform(self, X):
        """Transform the sites of examples.

        Parameters
        ----------
        X : sequence of examples, or array-like of shape (n_samples, n_features)
            Examples as the class accepts them, or a table of rows.

        Returns
        -------
        X_out : sequence of examples, or array-like of shape (n_samples, n_features_out)
            Transformed examples in the same kind of container as X, or a table.
        """
        check_is_fitted(self)
        if self._is_table(X):
            (example,) = self._read(X, reset=False)
            return _wrap_data_with_container("transform", to_dense(self._transform_rows(example)), X, self)
        return self._transform_examples(X, self._fitted_reader)

    def _transform_examples(self, X, reader, **options):
        X_loaded = load(X)
        pairs = zip(X_loaded, read_examples(X_loaded, reader).items, strict=True)
        return like_container(X, [self._transform_example(x, example, **options) for x, example in pairs])

    def fit_transform(self, X, y=None):
        """Fit to all sites of all examples, then transform them.

        Parameters
        ----------
        X : sequence of examples, or array-like of shape (n_samples, n_features)
            Examples as the class accepts them, or a table of rows.
        y : None
            Ignored.

        Returns
        -------
        X_out : sequence of examples, or array-like of shape (n_samples, n_features_out)
            Transformed examples in the same kind of container as X, or a table.
        """
        return self.fit(X, y).transform(X)

    @abstractmethod
    def _fit_examples(self, examples):
        """Fit to a list of Example; a table is one Example for which `has_table_rows` is True."""

    @abstractmethod
    def _transform_rows(self, example):
        """Compute the rows (n_sites, n_features_out) of an Example."""

    def _transform_example(self, x, example, **options):
        """Transform `x`, which was read as `example`."""
        rows = to_dense(self._transform_rows(example, **options))
        return rows.reshape(*example.shape, rows.shape[1])

    def _is_table(self, X):
        return is_table(X, self._unfitted_reader.is_example, self._unfitted_reader.many)

    @property
    def _fitted_reader(self):
        """Reader that expects the number of features seen in fit."""
        return type(self._unfitted_reader)(self.n_features_in_)

    def _read(self, X, *, reset):
        if self._is_table(X):
            self._unfitted_reader.check_table(X)
            return [Example(validate_data(self, X, reset=reset, dtype=(np.float64, np.float32)), (), None)]
        examples = read_examples(load(X), self._unfitted_reader if reset else self._fitted_reader)
        if reset:
            self._set_n_features_in(examples.reader)
            vars(self).pop("feature_names_in_", None)  # of an earlier fit to a table
        return examples.items

    def _set_n_features_in(self, reader):
        self.n_features_in_ = reader.n_features


def load(X):
    """Load lazy examples, each of them once."""
    return list(X) if is_lazy(X) else X


def has_table_rows(example):
    """Return whether an Example holds the rows of a table."""
    return example.shape == ()


def to_dense(rows):
    """Convert an array, sparse matrix or data frame to an ndarray."""
    return rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
