"""Pairwise fields with potentials that are linear in the features.

``theta(x_i) = coef . x_i + intercept`` and ``theta(x_i, x_j) = edge_coef . v_ij`` (D13 section 8.1).
"""

import numpy as np
from scipy import sparse

from skcrf._numerics import empty, multiply, transposed_product
from skcrf.graph import EQUAL, UNEQUAL, Potentials, is_potts
from skcrf.models._base import (
    BaseModel,
    ChangeOfVariables,
    Scaling,
    SparseColumns,
    largest_variance,
    moments_of,
    purity,
)

# Rows to which the intercept is added at a time: short rows are slow one by one.
_INTERCEPT_ROWS = 64


class PairwiseModel(BaseModel):
    """Undirected pairwise field.

    Parameters
    ----------
    n_classes, n_features : int
        Number of classes and of features of a site.
    n_edge_features : int, default=1
        Number of features of an edge.
    n_groups : int, default=1
        Number of groups of edges that have weights of their own.
    symmetric : bool or "potts", default=False
        Ties between the weights of edges.
    fit_intercept : bool, default=True
        Whether each class has an intercept.
    used : ndarray of shape (n_features,) or None, default=None
        Booleans: the features whose weights may differ from 0; None for all.
    """

    def __init__(
        self,
        n_classes,
        n_features,
        n_edge_features=1,
        n_groups=1,
        symmetric=False,
        fit_intercept=True,
        used=None,
    ):
        self.n_classes = n_classes
        self.n_features = n_features
        self.n_edge_features = n_edge_features
        self.n_groups = n_groups
        self.symmetric = symmetric
        self.fit_intercept = fit_intercept
        self.used = used

    @property
    def shapes(self):
        k = self.n_classes
        return {
            "coef": (k, self.n_features),
            "intercept": (k,),
            "edge_coef": (self.n_groups * self.n_edge_features, k, k),
        }

    def is_penalised(self, name):
        return name != "intercept" or not self.fit_intercept  # fixed at 0, it may as well have a penalty

    def project(self, params):
        if not self.fit_intercept:
            params = params | {"intercept": np.zeros_like(params["intercept"])}
        if self.used is not None:
            params = params | {"coef": np.where(self.used, params["coef"], 0.0)}
        return params | {"edge_coef": TIES[self.symmetric](params["edge_coef"], self.n_groups)}

    def independent(self):
        return IndependentModel(**vars(self))

    def moments(self, params, batch):
        graph, k = batch.graph, self.n_classes
        sites = purity(self._unary(params, batch))
        edges = sites[graph.edges].prod(axis=1)
        if len(edges) != len(batch.V):  # edges share tables
            edges = np.full(len(batch.V), edges.mean())
        weights = batch.weight[graph.node_example], batch.weight[graph.table_example]
        features = moments_of(batch.X, sites, k, weights[0], constant=self.fit_intercept)
        if self.used is not None:
            features = features.only(np.append(self.used, True) if self.fit_intercept else self.used)
        return {"site": features, "edge": moments_of(batch.V, edges, k**2, weights[1])}

    def change_of_variables(self, moments, alpha):
        unit = largest_variance(self.n_classes)  # uncorrelated features of unit variance stay as they are
        scalings = (Scaling.from_moments(moments[name], alpha, unit) for name in ("site", "edge"))
        return PairwiseScaling(self, *scalings)

    def coupling(self, moments):
        mean = moments["edge"].sums / max(moments["edge"].n_rows, 1)
        if not mean.any():
            return None
        weights = np.tile(mean / (mean @ mean), self.n_groups)  # their product with the mean features is 1
        table = np.eye(self.n_classes) - 1.0 / self.n_classes
        return self.zeros() | {"edge_coef": weights[:, None, None] * table}

    def structure(self, batch):
        return batch.graph

    def potentials(self, params, batch, compact=False):
        return batch.graph, self.scores(params, batch, compact)

    def scores(self, params, batch, compact=False):
        """Compute the pairwise potentials."""
        shape, edge_coef = (self.n_classes, self.n_classes), params["edge_coef"]
        coef = edge_coef.reshape(len(edge_coef), -1)
        if compact and self.symmetric == "potts" and self.n_classes > 2:  # with two, ratios are faster
            shape, coef = (2,), potts_coefficients(edge_coef, self.n_groups)
        tables = np.empty((batch.graph.n_tables, *shape))
        for group, features in self._groups(batch):
            V = batch.V[group]
            products = np.empty((len(V), coef.shape[1]))
            multiply(V, coef[features].T, products)
            tables[group] = products.reshape(-1, *shape)
        return Potentials(self._unary(params, batch), tables)

    def pull_back(self, params, batch, theta, d_theta):
        _scale_by_weight(batch, d_theta)
        edge_coef, tables = params["edge_coef"], d_theta.tables
        n_values = int(np.prod(tables.shape[1:]))
        d_tables, d_coef = tables.reshape(len(tables), n_values), np.zeros((len(edge_coef), n_values))
        for group, features in self._groups(batch):
            d_coef[features] = transposed_product(batch.V[group], d_tables[group])
        if is_potts(tables):
            d_coef = potts_coefficients_vjp(d_coef, self.n_classes)
        d_coef = d_coef.reshape(edge_coef.shape)
        return self._unary_vjp(params, batch, d_theta.unary) | {"edge_coef": d_coef}

    def _unary(self, params, batch):
        """Compute the unary potentials, ``coef . x + intercept``."""
        unary = empty((batch.n_sites, self.n_classes))
        if sparse.issparse(batch.X):
            columns, X = batch.stored_columns
            unary[:] = X @ np.ascontiguousarray(params["coef"].take(columns, axis=1).T)
        else:
            multiply(batch.X, params["coef"], unary)
        _add_to_rows(unary, params["intercept"])
        return unary

    def _unary_vjp(self, params, batch, d_unary):
        """Compute the gradient of the parameters of `_unary`."""
        if sparse.issparse(batch.X):
            columns, X = batch.stored_columns
            coef = SparseColumns(np.ascontiguousarray((X.T @ d_unary).T), columns, self.n_features)
        else:
            coef = transposed_product(d_unary, batch.X)
        intercept = np.ones(len(d_unary)) @ d_unary  # faster than a sum over rows
        return {"coef": coef, "intercept": intercept}

    def _groups(self, batch):
        """Yield the tables and the edge features of each group of edges in the batch."""
        n_features = batch.V.shape[1]
        for group, tables in enumerate(batch.groups):
            yield tables, slice(group * n_features, (group + 1) * n_features)


class IndependentModel(PairwiseModel):
    """A pairwise field without its edges: logistic regression at every site, with the same parameters."""

    def structure(self, batch):
        return batch.without_edges.graph

    def potentials(self, params, batch, compact=False):
        return super().potentials(params, batch.without_edges, compact)

    def pull_back(self, params, batch, theta, d_theta):
        return super().pull_back(params, batch.without_edges, theta, d_theta)


class PairwiseScaling(ChangeOfVariables):
    """Scaling of the weights of the features of sites and of those of edges, which respects ties.

    Parameters
    ----------
    model : PairwiseModel
        The model.
    site, edge : Scaling
        Scaling of features of sites, the intercept last if it is fitted, and of features of edges.
    """

    def __init__(self, model, site, edge):
        self.model = model
        self.site = site
        self.edge = edge

    def to_weights(self, v):
        return self._change(v, self.site.to_weights, self.edge.to_weights)

    def to_variables(self, w):
        return self._change(w, self.site.to_variables, self.edge.to_variables)

    def pull_back(self, gradient):
        return self._change(gradient, self.site.pull_back, self.edge.pull_back)

    def _change(self, vector, change_sites, change_edges):
        model, params = self.model, self.model.unpack(vector)
        coef, intercept = params["coef"], params["intercept"]
        if model.fit_intercept:
            rows = change_sites(np.column_stack([coef, intercept]))
            coef, intercept = rows[:, :-1], rows[:, -1]
        else:
            coef = change_sites(coef)
        shape = params["edge_coef"].shape
        by_table = params["edge_coef"].reshape(model.n_groups, model.n_edge_features, -1).swapaxes(1, 2)
        edge_coef = change_edges(by_table).swapaxes(1, 2).reshape(shape)
        return model.pack({"coef": coef, "intercept": intercept, "edge_coef": edge_coef})


def _scale_by_weight(batch, d_theta):
    """Multiply the derivative by the weight of each example, in place."""
    if (batch.weight == 1.0).all():
        return
    if batch.n_examples == 1:
        scales = batch.weight[0], batch.weight[0]
    else:
        unary, tables = batch.weight[batch.graph.node_example], batch.weight[batch.graph.table_example]
        scales = unary[:, None], tables.reshape(-1, *[1] * (d_theta.tables.ndim - 1))
    for part, scale in zip(d_theta, scales, strict=True):
        np.multiply(part, scale, out=part)


def _add_to_rows(rows, values):
    """Add the same values to each row in place, many rows at a time."""
    whole = len(rows) - len(rows) % _INTERCEPT_ROWS
    rows[:whole].reshape(-1, _INTERCEPT_ROWS * len(values))[:] += np.tile(values, _INTERCEPT_ROWS)
    rows[whole:] += values


def tie_none(edge_coef, n_groups):
    """Return the weights unchanged: every pair of labels has its own."""
    return edge_coef


def tie_symmetric(edge_coef, n_groups):
    """Average the weights of (a, b) and (b, a), so that the two ends of an edge can be exchanged."""
    return 0.5 * (edge_coef + edge_coef.transpose(0, 2, 1))


def tie_potts(edge_coef, n_groups):
    """Average over equal and over unequal pairs of labels and over all groups of edges.

    With two labels x_i of -1 and 1 this is the form x_i x_j v.mu_ij of K05.
    """
    n_classes = edge_coef.shape[1]
    equal = np.eye(n_classes, dtype=bool)
    by_group = edge_coef.reshape(n_groups, -1, n_classes, n_classes)
    tied = np.empty_like(by_group)
    for labels in (equal, ~equal):
        n_tied = max(n_groups * labels.sum(), 1)  # a single class has no unequal pairs
        tied[:, :, labels] = by_group[:, :, labels].sum(axis=(0, 2))[:, None] / n_tied
    return tied.reshape(edge_coef.shape)


def potts_coefficients(edge_coef, n_groups):
    """Return the weights of unequal and of equal pairs of labels, (n, 2), after `tie_potts`."""
    tied = tie_potts(edge_coef, n_groups)
    return np.stack([tied[:, 0, 1], tied[:, 0, 0]], axis=1)


def potts_coefficients_vjp(d_coef, n_classes):
    """Divide the derivatives of both weights evenly among the pairs of labels, as `tie_potts` would."""
    shares = d_coef / [n_classes * (n_classes - 1), n_classes]
    equal = np.eye(n_classes, dtype=bool)
    return np.where(equal, shares[:, EQUAL, None, None], shares[:, UNEQUAL, None, None])


#: Projections by the value of the parameter `symmetric`.
TIES = {False: tie_none, True: tie_symmetric, "potts": tie_potts}
