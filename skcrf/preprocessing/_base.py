"""How examples become rows of features, and rows become examples."""

from abc import abstractmethod

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import check_is_fitted, validate_data

from skcrf._registry import all_or_nothing
from skcrf.data import Example, is_lazy, is_table, like_container


class BaseSiteTransformer(CallbackSupportMixin, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):
    """Base class of transformers of sites.

    Conventions
    -----------
    - Rows are sites: an image (height, width, n_features) is height * width rows in C order.
    - A plain table is rows already. It goes through as a table, and `set_output` is about tables only:
      examples come out as examples whatever it says.
    - What comes out is in the kind of container that went in.

    A subclass says what reads an example (`_reads`), learns from all of them (`_fit_examples`), and makes the
    rows of one (`_transform_rows`); `_changed` puts these into the shape of the example.
    """

    # auto_wrap_output_keys=None above keeps `transform` and `fit_transform` of this class, which also see
    # examples, from being wrapped; subclasses are given `set_output` as usual.

    #: What reads an example, before anything is known: a BaseReader.
    _reads = None

    @with_callbacks
    def fit(self, X, y=None):
        """Learn from all sites of all examples.

        Parameters
        ----------
        X : sequence of examples, or table of shape (n_samples, n_features)
            What the class takes, or rows.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted transformer.
        """
        return self._learn(X, y, self._fit_examples, reset=True)

    def _learn(self, X, y, learn, *, reset):
        context = self._init_callback_context()
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        with all_or_nothing(self):
            learn(self._read(X, reset=reset))
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})
        return self

    def transform(self, X):
        """Transform the sites of examples.

        Parameters
        ----------
        X : sequence of examples, or table of shape (n_samples, n_features)
            What the class takes, or rows.

        Returns
        -------
        X_out : sequence of examples, or table of shape (n_samples, n_features_out)
            Examples in the kind of container that X is, or rows.
        """
        check_is_fitted(self)
        if self._is_table(X):
            (example,) = self._read(X, reset=False)
            return _wrap_data_with_container("transform", dense(self._transform_rows(example)), X, self)
        return self._through(X, self._reader)

    def _through(self, X, reader, **how):
        """Change examples, which the reader reads."""
        given = list(X) if is_lazy(X) else X  # so that none is loaded twice
        pairs = zip(given, read_all(given, reader)[0], strict=True)
        return like_container(X, [self._changed(one, read, **how) for one, read in pairs])

    def fit_transform(self, X, y=None):
        """Learn from all sites of all examples, then transform them.

        Parameters
        ----------
        X : sequence of examples, or table of shape (n_samples, n_features)
            What the class takes, or rows.
        y : None
            Ignored.

        Returns
        -------
        X_out : sequence of examples, or table of shape (n_samples, n_features_out)
            Examples in the kind of container that X is, or rows.
        """
        return self.fit(X, y).transform(X)

    @abstractmethod
    def _fit_examples(self, examples):
        """Learn from a list of Example, which for a table is one that `is_rows`."""

    @abstractmethod
    def _transform_rows(self, example):
        """Compute the rows (n_sites, n_features_out) of an Example."""

    def _changed(self, given, example, **how):
        """Make an example of new rows, like the given one, which was read as Example."""
        rows = dense(self._transform_rows(example, **how))
        return rows.reshape(*example.shape, rows.shape[1])

    def _is_table(self, X):
        return is_table(X, self._reads.is_example, self._reads.many)

    @property
    def _reader(self):
        """The reader of examples that go with those of the fit."""
        return type(self._reads)(self.n_features_in_)

    def _read(self, X, *, reset):
        if self._is_table(X):
            self._reads.check_table(X)
            return [Example(validate_data(self, X, reset=reset, dtype=(np.float64, np.float32)), (), None)]
        examples, reader = read_all(X, self._reads if reset else self._reader)
        if reset:
            self._keep(reader)
            vars(self).pop("feature_names_in_", None)  # of an earlier fit, to a table with names
        return examples

    def _keep(self, reader):
        """Remember what examples must have in common with those of the fit."""
        self.n_features_in_ = reader.n_features


def read_all(X, reader):
    """Read examples.

    Parameters
    ----------
    X : sequence of examples
        What the user passed.
    reader : BaseReader
        What reads the first; the others must go with it.

    Returns
    -------
    examples : list of Example
        The same, as arrays.
    reader : BaseReader
        What reads further ones.
    """
    if len(X) == 0:
        raise ValueError(f"X is empty: expected at least one {reader.one}.")
    examples = []
    for i, one in enumerate(X):
        examples.append(reader(one, f"X[{i}]"))
        reader = reader.like(examples[i], f"X[{i}]")
    return examples, reader


def is_rows(example):
    """Tell whether an example is the rows of a table, each of which is a field of one site.

    Parameters
    ----------
    example : Example
        What was read.

    Returns
    -------
    is_rows : bool
        Whether it is.
    """
    return example.shape == ()


def dense(rows):
    """Make an array of what a transformer gives.

    Parameters
    ----------
    rows : ndarray, sparse matrix or data frame of shape (n_sites, n_features)
        The rows.

    Returns
    -------
    rows : ndarray of shape (n_sites, n_features)
        The same.
    """
    return rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
