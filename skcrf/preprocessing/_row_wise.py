"""Base class of transformers that apply a scikit-learn transformer to rows of features."""

from copy import deepcopy
from functools import partial

import numpy as np
from sklearn.base import clone
from sklearn.callback import with_callbacks
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_array, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from skcrf.data import stack_rows
from skcrf.preprocessing._base import BaseSiteTransformer, to_dense


def _inner_has(method, *parameters):
    """Make the check that the inner transformers have a method, for `available_if`."""

    def check(self):
        for parameter in parameters:
            inner = getattr(self, f"{parameter}_", self._inner_transformer(parameter))
            if inner is not None or parameter != "edge_transformer":  # which is optional
                getattr(inner, method)  # its AttributeError names the missing method
        return True

    return check


def _stack_copies(parts):
    """Stack arrays, CSR matrices or lists of dictionaries; a transformer may overwrite the result."""
    if isinstance(parts[0], list):
        return [item for part in parts for item in part]
    return stack_rows(parts) if len(parts) > 1 else parts[0].copy()


class BaseRowWise(BaseSiteTransformer):
    """Base class of transformers that apply a scikit-learn transformer to the rows of features.

    Parameters
    ----------
    transformer : transformer or "passthrough", default="passthrough"
        The transformer of the rows of features.
    """

    def __init__(self, transformer="passthrough"):
        self.transformer = transformer

    def _inner_transformer(self, parameter="transformer"):
        inner = getattr(self, parameter, None)
        if isinstance(inner, str) and inner == "passthrough":
            return FunctionTransformer(feature_names_out="one-to-one")
        return inner

    def _fit_inner(self, parameter, rows, method):
        """Fit a clone of the transformer in a parameter, or, for "partial_fit", a copy of the fitted one."""
        inner = getattr(self, f"{parameter}_", None) if method == "partial_fit" else None
        if inner is not None:
            inner = deepcopy(inner)  # a later error must not change the fitted one
        else:
            inner = self._inner_transformer(parameter)
            if isinstance(inner, type) or not (hasattr(inner, "fit") and hasattr(inner, "transform")):
                raise TypeError(f"{parameter} must be a transformer or 'passthrough', got {inner!r}.")
            inner = clone(inner)
        return getattr(inner, method)(_stack_copies(rows))

    def _fit_examples(self, examples, method="fit"):
        self.transformer_ = self._fit_inner("transformer", [example.X for example in examples], method)

    def _transform_rows(self, example, method="transform"):
        rows, n_rows = getattr(self.transformer_, method)(example.X), np.shape(example.X)[0]
        # The inverse of a vectorizer returns a list of dictionaries.
        if not isinstance(rows, list) and (len(np.shape(rows)) != 2 or np.shape(rows)[0] != n_rows):
            raise ValueError(
                f"transformer must return one row per input row, shape ({n_rows}, n_features_out), "
                f"got shape {np.shape(rows)}."
            )
        return rows

    @available_if(_inner_has("partial_fit", "transformer", "edge_transformer"))
    @with_callbacks
    def partial_fit(self, X, y=None):
        """Fit incrementally to more examples; only available if the inner transformer has `partial_fit`.

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
        fit_examples = partial(self._fit_examples, method="partial_fit")
        return self._fit_with_callbacks(X, y, fit_examples, reset=not hasattr(self, "transformer_"))

    @available_if(_inner_has("inverse_transform", "transformer", "edge_transformer"))
    def inverse_transform(self, X):
        """Undo `transform`; only available if the inner transformer has `inverse_transform`.

        Parameters
        ----------
        X : sequence of examples, or array-like of shape (n_samples, n_features_out)
            Transformed examples, or a table.

        Returns
        -------
        X_original : sequence of examples, or ndarray of shape (n_samples, n_features)
            Examples in the same kind of container as X, or a table.
        """
        check_is_fitted(self)
        if self._is_table(X):
            rows = check_array(X, dtype=(np.float64, np.float32))
            return to_dense(self.transformer_.inverse_transform(rows))
        return self._transform_examples(X, self._unfitted_reader, method="inverse_transform")

    @available_if(_inner_has("get_feature_names_out", "transformer"))
    def get_feature_names_out(self, input_features=None):
        """Get the names of the output features.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the input features; None for those seen in fit, or x0, x1, ...

        Returns
        -------
        feature_names_out : ndarray of str
            One name per output feature.
        """
        check_is_fitted(self)
        if hasattr(self, "n_features_in_"):  # dictionaries have their own names
            input_features = _check_feature_names_in(self, input_features)
        return self.transformer_.get_feature_names_out(input_features)

    def __sklearn_tags__(self):
        tags, inner = super().__sklearn_tags__(), self._inner_transformer()
        if hasattr(inner, "__sklearn_tags__"):
            inner_tags = get_tags(inner)
            tags.input_tags.positive_only = inner_tags.input_tags.positive_only
            tags.non_deterministic = inner_tags.non_deterministic
            tags.transformer_tags = inner_tags.transformer_tags or tags.transformer_tags
        return tags
