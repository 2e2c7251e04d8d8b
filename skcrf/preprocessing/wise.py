"""scikit-learn transformers of rows, applied to sites."""

from copy import deepcopy
from functools import partial

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.callback import with_callbacks
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_array, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from skcrf.data import ImageReader
from skcrf.preprocessing._base import BaseSiteTransformer, dense, is_rows
from skcrf.preprocessing._sites import Sites, is_graph


def _inner_has(method, *names):
    def check(self):
        for name in names:
            inner = getattr(self, f"{name}_", self._inner(name))
            if inner is not None or name != "edge_transformer":  # which there may be none of
                getattr(inner, method)  # raises its own AttributeError, which names what is missing
        return True

    return check


def _stacked(parts):
    """Put rows, which are arrays, CSR matrices or lists of dictionaries, below one another."""
    if isinstance(parts[0], list):
        return [item for part in parts for item in part]
    return sparse.vstack(parts, format="csr") if any(map(sparse.issparse, parts)) else np.concatenate(parts)


class BaseWise(BaseSiteTransformer):
    """Base class of what applies a transformer of rows to sites.

    Parameters
    ----------
    transformer : transformer or "passthrough", default="passthrough"
        What to apply to the rows of features.
    """

    def __init__(self, transformer="passthrough"):
        self.transformer = transformer

    def _inner(self, name="transformer"):
        inner = getattr(self, name, None)
        if isinstance(inner, str) and inner == "passthrough":
            return FunctionTransformer(feature_names_out="one-to-one")
        return inner

    def _taught(self, name, rows, method):
        """Fit the transformer that a parameter holds to rows, or let the fitted one learn more."""
        inner = getattr(self, f"{name}_", None) if method == "partial_fit" else None
        if inner is not None:
            inner = deepcopy(inner)  # what fails later leaves the one before as it was
        else:
            inner = self._inner(name)
            if isinstance(inner, type) or not (hasattr(inner, "fit") and hasattr(inner, "transform")):
                raise TypeError(f"{name} must be a transformer or 'passthrough', got {inner!r}.")
            inner = clone(inner)
        return getattr(inner, method)(_stacked(rows))

    def _fit_examples(self, examples, method="fit"):
        self.transformer_ = self._taught("transformer", [example.X for example in examples], method)

    def _transform_rows(self, example, method="transform"):
        rows, n_rows = getattr(self.transformer_, method)(example.X), np.shape(example.X)[0]
        # Dictionaries are lists of rows, as are those that a vectorizer gives back.
        if not isinstance(rows, list) and (len(np.shape(rows)) != 2 or np.shape(rows)[0] != n_rows):
            raise ValueError(
                f"transformer made an array of shape {np.shape(rows)} of {n_rows} rows, expected one row a "
                f"row: ({n_rows}, n_features_out)."
            )
        return rows

    @available_if(_inner_has("partial_fit", "transformer", "edge_transformer"))
    @with_callbacks
    def partial_fit(self, X, y=None):
        """Learn from more examples; only if the inner transformer can.

        Parameters
        ----------
        X : sequence of examples, or table of shape (n_samples, n_features)
            What the class takes, or rows.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The transformer.
        """
        return self._learn(
            X, y, partial(self._fit_examples, method="partial_fit"), reset=not hasattr(self, "transformer_")
        )

    @available_if(_inner_has("inverse_transform", "transformer", "edge_transformer"))
    def inverse_transform(self, X):
        """Undo `transform`; only if the inner transformer can.

        Parameters
        ----------
        X : sequence of examples, or table of shape (n_samples, n_features_out)
            Transformed examples, or rows.

        Returns
        -------
        X_original : sequence of examples, or table of shape (n_samples, n_features)
            Examples in the kind of container that X is, or rows.
        """
        check_is_fitted(self)
        if self._is_table(X):
            rows = check_array(X, dtype=(np.float64, np.float32))
            return dense(self.transformer_.inverse_transform(rows))
        return self._through(X, self._reads, method="inverse_transform")

    @available_if(_inner_has("get_feature_names_out", "transformer"))
    def get_feature_names_out(self, input_features=None):
        """Name the features of a transformed site.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features; None for those seen in fit, or x0, x1, ...

        Returns
        -------
        names : ndarray of str
            One name a feature.
        """
        check_is_fitted(self)
        if hasattr(self, "n_features_in_"):  # else dictionaries have named them
            input_features = _check_feature_names_in(self, input_features)
        return self.transformer_.get_feature_names_out(input_features)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if hasattr(self._inner(), "__sklearn_tags__"):
            inner = get_tags(self._inner())
            tags.input_tags.positive_only = inner.input_tags.positive_only
            tags.non_deterministic = inner.non_deterministic
            tags.transformer_tags = inner.transformer_tags or tags.transformer_tags
        return tags


class PixelWise(BaseWise):
    """Apply a scikit-learn transformer to the pixels of images.

    The transformer is fitted to all pixels of all images, as rows, and then applied to each image. Images may
    differ in size. A plain table goes through as rows.

    Parameters
    ----------
    transformer : transformer or "passthrough", default="passthrough"
        What to apply to the rows of features. It must give one row a row, and it is not shown the labels:
        supervised transformers are of no use here. "passthrough" leaves the features alone.

    Attributes
    ----------
    transformer_ : transformer
        The fitted clone of `transformer`.
    n_features_in_ : int
        Number of features of a pixel.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if fitted to a table whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skcrf.preprocessing import PixelWise
    >>> X = [np.ones((2, 3, 4)), np.zeros((3, 5, 4))]
    >>> [x.shape for x in PixelWise(StandardScaler()).fit_transform(X)]
    [(2, 3, 4), (3, 5, 4)]
    """

    _reads = ImageReader()


class SiteWise(BaseWise):
    """Apply a scikit-learn transformer to the items of sequences or the nodes of graphs.

    The transformer is fitted to all items or nodes of all examples, as rows, and then applied to each
    example. So it can come before `ChainCRFClassifier`, `GraphCRFClassifier` or `DAGMClassifier` in a
    pipeline. A plain table goes through as rows.

    X is a sequence of arrays or CSR matrices of shape (length, n_features), or of graphs: tuples
    ``(node_features, edges)`` or ``(node_features, edges, edge_features)``, either with booleans of shape
    (n_nodes,) last. Of graphs, all but the features of nodes goes through as it is. Rows are sparse where the
    transformer makes them so. Lists of dictionaries of features are for transformers that take them, such as
    `DictVectorizer`, or a pipeline that starts with one; `ChainCRFClassifier` takes them without any.

    Parameters
    ----------
    transformer : transformer or "passthrough", default="passthrough"
        What to apply to the rows of features. It must give one row a row, and it is not shown the labels:
        supervised transformers are of no use here. "passthrough" leaves the features alone.
    edge_transformer : transformer or None, default=None
        What to apply to the features of edges, as rows. None leaves them alone.

    Attributes
    ----------
    transformer_ : transformer
        The fitted clone of `transformer`.
    edge_transformer_ : transformer or None
        The fitted clone of `edge_transformer`; None if there is none, or the fit was to a table.
    n_features_in_ : int
        Number of features of an item or node, if these are not named by dictionaries.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if fitted to a table whose column names are all strings.

    See Also
    --------
    PixelWise : The same for images.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skcrf import ChainCRFClassifier
    >>> from skcrf.preprocessing import SiteWise
    >>> X = [np.array([[100.0], [900.0], [800.0]]), np.array([[200.0], [100.0]])]
    >>> [x.shape for x in SiteWise(StandardScaler()).fit_transform(X)]
    [(3, 1), (2, 1)]
    >>> crf = make_pipeline(SiteWise(StandardScaler()), ChainCRFClassifier(alpha=0.1))
    >>> crf.fit(X, [[0, 1, 1], [0, 0]]).predict(X)
    [array([0, 1, 1]), array([0, 0])]
    """

    _reads = Sites()

    def __init__(self, transformer="passthrough", edge_transformer=None):
        super().__init__(transformer)
        self.edge_transformer = edge_transformer

    @property
    def _reader(self):
        n_edge_features = getattr(self.edge_transformer_, "n_features_in_", None)
        n_features = getattr(self, "n_features_in_", None)
        return Sites(n_features, n_edge_features=n_edge_features, named=n_features is None)

    def _keep(self, reader):
        super()._keep(reader)
        if reader.named:
            del self.n_features_in_

    def _fit_examples(self, examples, method="fit"):
        edge_transformer = getattr(self, "edge_transformer_", None) if method == "partial_fit" else None
        if self.edge_transformer is not None and not is_rows(examples[0]):
            features = _edge_features(examples)
            if features:
                edge_transformer = self._taught("edge_transformer", features, method)
            elif edge_transformer is None:
                raise ValueError("edge_transformer is for the features of edges, but there are none in X.")
        try:
            super()._fit_examples(examples, method)
        except (TypeError, ValueError) as error:
            if not isinstance(examples[0].X, list):
                raise
            raise TypeError(
                f"X[0] names its features, but transformer could not be fitted to dictionaries ({error}). "
                "DictVectorizer makes numbers of them; ChainCRFClassifier takes them without SiteWise."
            ) from error
        self.edge_transformer_ = edge_transformer

    def _changed(self, given, example, method="transform"):
        rows = self._transform_rows(example, method)
        if not isinstance(rows, list):
            rows = rows.tocsr() if sparse.issparse(rows) else np.asarray(rows)
        if not is_graph(given):
            return rows
        parts, edge_features = [rows, *given[1:]], example.outline.edge_features
        if self.edge_transformer_ is not None and edge_features is not None:
            # No edges have no features: scikit-learn refuses tables without rows.
            change = getattr(self.edge_transformer_, method)
            parts[2] = dense(change(edge_features)) if len(edge_features) else np.zeros((0, 0))
        return parts if isinstance(given, list) else tuple(parts)


def _edge_features(examples):
    """Find the features of the edges of all graphs that have any."""
    found = [example.outline.edge_features for example in examples]
    return [features for features in found if features is not None and len(features)]
