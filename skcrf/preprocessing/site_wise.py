"""Transformation of the items of sequences and the nodes of graphs by a scikit-learn transformer."""

import numpy as np
from scipy import sparse

from skcrf.data import SiteReader
from skcrf.preprocessing._base import has_table_rows, to_dense
from skcrf.preprocessing._row_wise import BaseRowWise

# Position of the edge features in a graph (node_features, edges, edge_features).
_EDGE_FEATURES = 2


class SiteWise(BaseRowWise):
    """Site-wise application of a scikit-learn transformer to sequences or graphs.

    The sites are the items of a sequence or the nodes of a graph. The transformer is fitted to the sites of
    all examples as the rows of one table, and then applied to each example. Use it in a pipeline before
    `ChainCRFClassifier`, `GraphCRFClassifier` or `DAGMClassifier`.

    X is a sequence of arrays or CSR matrices of shape (length, n_features), or of graphs: tuples
    ``(node_features, edges)`` or ``(node_features, edges, edge_features)``, either with booleans of shape
    (n_nodes,) last. Everything in a graph but the node features is left unchanged. Rows are sparse if the
    transformer returns sparse rows. X may also be a table of shape (n_samples, n_features). Lists of
    dictionaries of features need a transformer that accepts them, such as `DictVectorizer` or a pipeline that
    starts with it; `ChainCRFClassifier` accepts such lists without any transformer.

    Parameters
    ----------
    transformer : transformer or "passthrough", default="passthrough"
        The transformer of the rows of features. It must return one row per input row, and is fitted without
        labels. "passthrough" leaves the features unchanged.
    edge_transformer : transformer or None, default=None
        The transformer of the rows of edge features. None leaves them unchanged.

    Attributes
    ----------
    transformer_ : transformer
        The fitted clone of `transformer`.
    edge_transformer_ : transformer or None
        The fitted clone of `edge_transformer`; None without one, or after a fit to a table.
    n_features_in_ : int
        Number of features per item or node. Not set if X holds dictionaries.
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

    _unfitted_reader = SiteReader()

    def __init__(self, transformer="passthrough", edge_transformer=None):
        super().__init__(transformer)
        self.edge_transformer = edge_transformer

    @property
    def _fitted_reader(self):
        n_edge_features = getattr(self.edge_transformer_, "n_features_in_", None)
        n_features = getattr(self, "n_features_in_", None)
        return SiteReader(n_features, n_edge_features=n_edge_features, named=n_features is None)

    def _set_n_features_in(self, reader):
        super()._set_n_features_in(reader)
        if reader.named:
            del self.n_features_in_

    def _fit_examples(self, examples, method="fit"):
        edge_transformer = getattr(self, "edge_transformer_", None) if method == "partial_fit" else None
        if self.edge_transformer is not None and not has_table_rows(examples[0]):
            edge_features = _edge_features(examples)
            if edge_features:
                edge_transformer = self._fit_inner("edge_transformer", edge_features, method)
            elif edge_transformer is None:
                raise ValueError(
                    f"edge_transformer must be None if X has no edge features, got {self.edge_transformer!r}."
                )
        try:
            super()._fit_examples(examples, method)
        except (TypeError, ValueError) as error:
            if not isinstance(examples[0].X, list):
                raise
            raise TypeError(
                f"transformer must accept dictionaries of features, as in X[0], got {self.transformer!r} "
                f"({error}). Use DictVectorizer, or ChainCRFClassifier without SiteWise."
            ) from error
        self.edge_transformer_ = edge_transformer

    def _transform_example(self, x, example, method="transform"):
        rows = self._transform_rows(example, method)
        if not isinstance(rows, list):
            rows = rows.tocsr() if sparse.issparse(rows) else np.asarray(rows)
        if not self._unfitted_reader.is_graph(x):
            return rows
        parts, edge_features = [rows, *x[1:]], example.outline.edge_features
        if self.edge_transformer_ is not None and edge_features is not None:
            transform = getattr(self.edge_transformer_, method)
            # scikit-learn refuses tables without rows.
            transformed = to_dense(transform(edge_features)) if len(edge_features) else np.zeros((0, 0))
            parts[_EDGE_FEATURES] = transformed
        return parts if isinstance(x, list) else tuple(parts)


def _edge_features(examples):
    """Collect the edge features of all graphs that have any."""
    features = [example.outline.edge_features for example in examples]
    return [one for one in features if one is not None and len(one)]
