"""From weights to potentials and back: the linear map of the features, and its transpose.

``theta(x_i) = coef . x_i + intercept`` and ``theta(x_i, x_j) = edge_coef . v_ij`` (D13 section 8.1).
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.preprocessing import FunctionTransformer

from skcrf._scratch import empty
from skcrf.graph import FactorGraph, Graph, Potentials, without_edges
from skcrf.models import conditionals, conditionals_vjp, families
from skcrf.models.weights import Weights

# Rows of single-precision features that are widened at a time: small enough to stay in the cache.
_ROWS = 2048
# Rows that a constant is added to at a time.
_TOGETHER = 64


class _Arrays(NamedTuple):
    graph: Graph
    X: np.ndarray
    V: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    site_weight: np.ndarray | None
    factors: FactorGraph | None = None
    given: np.ndarray | None = None
    numbers: np.ndarray | None = None


class Batch(_Arrays):
    """Several examples, ready for evaluation.

    What every evaluation needs and none changes is computed when first asked for, and kept.

    Attributes
    ----------
    graph : Graph
        Structure: sites and edges, which have the features.
    X : ndarray or CSR matrix of shape (n_nodes, n_features)
        Features of the sites, float32 or float64.
    V : ndarray of shape (n_tables, n_edge_features_of_a_group)
        Features of the tables.
    y : ndarray of shape (n_nodes,)
        Labels, -1 where hidden or unknown.
    weight : ndarray of shape (n_examples,)
        Weight of each example.
    site_weight : ndarray of shape (n_nodes,) or None
        Weight of each site.
    factors : FactorGraph or None
        What `skcrf.graph.families` makes of the graph where the model is directed; None where it is not.
    given : ndarray of shape (n_nodes,) or None
        The labels that `factors` take for granted in parents; None for none.
    numbers : ndarray of shape (n_examples,) or None
        The numbers by which the user knows the examples.
    """

    #: Whether the examples have to be loaded before each evaluation.
    is_lazy = False
    #: ``recipe(X)`` gives graph, V and factors again, if it is known how: then these are not sent to other
    #: processes.
    recipe = None

    def __reduce__(self):
        if self.recipe is None:
            return Batch, tuple(self)
        return _remade, (self.recipe, self.X, self.y, self.weight, self.site_weight, self.numbers)

    def made(self, loaded):
        """Return the batch itself: nothing has to be loaded."""
        return self

    @property
    def field(self):
        """Graph or FactorGraph: the structure that inference and losses see."""
        return self.graph if self.factors is None else self.factors

    @property
    def is_linear(self):
        """Whether the potentials are linear in the weights: not those of a directed model."""
        return self.factors is None

    @cached_property
    def hidden(self):
        """Ndarray of shape (n_nodes,) or None: which sites are hidden variables; None if none is."""
        return None if self.recipe is None else self.recipe.hidden

    @property
    def n_examples(self):
        """Number of examples."""
        return self.graph.n_examples

    @property
    def n_sites(self):
        """Number of sites of all examples."""
        return self.graph.n_nodes

    @property
    def nbytes(self):
        """Size of the features and labels."""
        sites = [self.X.data, self.X.indices, self.X.indptr] if sparse.issparse(self.X) else [self.X]
        return sum(array.nbytes for array in [*sites, self.V, self.y])

    @cached_property
    def starts(self):
        """Dict: where inference ended in the last evaluation, if that is kept."""
        return {}

    @cached_property
    def n_labels(self):
        """Weight of the labelled sites; class weights do not count, as in `LogisticRegression`."""
        labelled = self.graph.node_example[self.y >= 0]
        return float(self.weight @ np.bincount(labelled, minlength=self.n_examples))

    @cached_property
    def scale(self):
        """Potentials: what the derivative of the potentials is multiplied by; None if it is all 1."""
        if (self.weight == 1.0).all():
            return None
        if self.n_examples == 1:
            return Potentials(self.weight[0], self.weight[0])
        unary, tables = self.weight[self.graph.node_example], self.weight[self.graph.table_example]
        return Potentials(unary[:, None], tables[:, None, None])

    @cached_property
    def groups(self):
        """List: the tables of each group of edges, a slice where they follow one another."""
        groups = []
        for group in range(int(self.graph.table_group.max(initial=-1)) + 1):
            tables = np.flatnonzero(self.graph.table_group == group)
            if len(tables) and tables[-1] - tables[0] + 1 == len(tables):
                tables = slice(int(tables[0]), int(tables[-1]) + 1)  # a view instead of a copy
            groups.append(tables)
        return groups

    @cached_property
    def given_labels(self):
        """Batch: that of a directed model whose factors know the known labels of parents, and are small.

        It is right for what clamps these labels anyway. Of other models it is the batch itself.
        """
        if self.factors is None or (self.y < 0).all():
            return self
        factors = families(self.graph, int(self.factors.cards.max(initial=1)), self.y)
        return self._replace(factors=factors, given=self.y)

    def without_edges(self):
        """Return the batch of the independent model: the same sites, no edges."""
        return self._replace(graph=without_edges(self.graph), V=self.V[:0], factors=None)


def _remade(recipe, X, y, weight, site_weight, numbers):
    graph, V, factors = recipe(X)
    batch = Batch(graph, X, V, y, weight, site_weight, factors, numbers=numbers)
    batch.recipe = recipe
    return batch


def stacked(arrays):
    """Put the rows of arrays below one another.

    Parameters
    ----------
    arrays : sequence of ndarray or of CSR matrix
        The arrays.

    Returns
    -------
    rows : ndarray or CSR matrix
        All rows, sparse where any are; the array itself where it is the only one.
    """
    if len(arrays) == 1:
        return arrays[0]
    if any(sparse.issparse(array) for array in arrays):
        return sparse.vstack(arrays, format="csr")
    return np.concatenate(arrays)


def scores(weights, batch):
    """Compute what is linear in the weights: the potentials of sites and edges.

    Parameters
    ----------
    weights : Weights
        Parameters.
    batch : Batch
        Features.

    Returns
    -------
    theta : Potentials
        Pairwise potentials, float64.
    """
    n_classes = len(weights.intercept)
    unary = empty((batch.X.shape[0], n_classes))
    coef = np.ascontiguousarray(weights.coef.T)
    if sparse.issparse(batch.X):
        unary[:] = batch.X @ coef
    else:
        for rows, X in _pieces(batch.X):
            np.matmul(X, coef, out=unary[rows])
    _add_to_rows(unary, weights.intercept)
    tables = np.empty((batch.graph.n_tables, n_classes, n_classes))
    for tables_of_group, features in _groups(batch):
        coef = weights.edge_coef[features].reshape(-1, n_classes**2)
        tables[tables_of_group] = (batch.V[tables_of_group] @ coef).reshape(-1, n_classes, n_classes)
    return Potentials(unary, tables)


def potentials(weights, batch):
    """Compute the potentials: the scores, or in a directed model the conditionals that they make.

    Parameters
    ----------
    weights : Weights
        Parameters.
    batch : Batch
        Features.

    Returns
    -------
    theta : Potentials
        Potentials on ``batch.field``, float64.
    """
    theta = scores(weights, batch)
    return theta if batch.factors is None else conditionals(batch.graph, batch.factors, theta, batch.given)


def pull_back(d_theta, batch, weights, theta=None):
    """Compute the gradient with respect to the weights: that of `potentials`, examples counting by weight.

    Parameters
    ----------
    d_theta : Potentials
        Derivative with respect to the potentials, which may be changed.
    batch : Batch
        Features.
    weights : Weights
        Parameters, for their shapes.
    theta : Potentials, default=None
        What `potentials` gave, for directed models.

    Returns
    -------
    gradient : Weights
        Derivative with respect to the weights.
    """
    if batch.factors is not None:
        d_theta = conditionals_vjp(batch.graph, batch.factors, theta, d_theta, batch.given)
    if batch.scale is not None:
        for part, scale in zip(d_theta, batch.scale, strict=True):
            np.multiply(part, scale, out=part)
    if sparse.issparse(batch.X):
        coef = np.ascontiguousarray((batch.X.T @ d_theta.unary).T)
    else:
        coef = np.zeros_like(weights.coef)
        for rows, X in _pieces(batch.X):
            coef += d_theta.unary[rows].T @ X
    intercept = np.ones(len(d_theta.unary)) @ d_theta.unary  # BLAS adds up columns faster than a sum does
    edge_coef = np.zeros_like(weights.edge_coef)
    d_tables = d_theta.tables.reshape(len(d_theta.tables), len(weights.intercept) ** 2)
    for tables_of_group, features in _groups(batch):
        d_coef = batch.V[tables_of_group].T @ d_tables[tables_of_group]
        edge_coef[features] = d_coef.reshape(edge_coef[features].shape)
    return Weights(coef, intercept, edge_coef)


def _pieces(X):
    """Cut rows so that widening single precision never copies all features at once."""
    if X.dtype == np.float64:
        yield slice(None), X
        return
    wide = np.empty((min(_ROWS, len(X)), X.shape[1]))
    for start in range(0, len(X), _ROWS):
        piece = X[start : start + _ROWS]
        np.copyto(wide[: len(piece)], piece)
        yield slice(start, start + len(piece)), wide[: len(piece)]


def _add_to_rows(rows, values):
    """Add the same values to each row, in place, many rows at a time: short rows are slow one by one."""
    whole = len(rows) - len(rows) % _TOGETHER
    rows[:whole].reshape(-1, _TOGETHER * len(values))[:] += np.tile(values, _TOGETHER)
    rows[whole:] += values


def _groups(batch):
    """For each group of edges that the batch has, its tables and its edge features."""
    n_features = batch.V.shape[1]
    for group, tables in enumerate(batch.groups):
        yield tables, slice(group * n_features, (group + 1) * n_features)


def _norm(differences):
    return np.linalg.norm(differences, axis=1, keepdims=True)


#: Transformers of the absolute differences of features across an edge; None for no such features.
EDGE_FEATURES = {"bias": None, "contrast": FunctionTransformer(_norm)}


def differences(graph, X):
    """Compute how much the features differ between the two ends of each edge.

    Parameters
    ----------
    graph : Graph
        Structure.
    X : ndarray of shape (n_nodes, n_features)
        Features of the sites.

    Returns
    -------
    differences : ndarray of shape (n_edges, n_features)
        Absolute differences.
    """
    return np.abs(X[graph.edges[:, 0]] - X[graph.edges[:, 1]])
