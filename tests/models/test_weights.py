"""Ties between weights: what they allow, that they are projections, and that fits stay within them."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skcrf import GraphCRFClassifier, GridCRFClassifier
from skcrf.datasets import make_potts
from skcrf.inference import BP, TRW
from skcrf.models.weights import TIES
from skcrf.optimizers import OPTIMIZERS
from skcrf.training.objective import workers

N_GROUPS, N_FEATURES = 2, 3


def allowed(symmetric, n_classes):
    """Tables that a tie allows, by its definition: a basis of shape (n_free, n_groups * n_features, k, k)."""
    k, n_tables = n_classes, N_GROUPS * N_FEATURES
    if symmetric == "potts":
        basis = np.zeros((N_FEATURES, 2, N_GROUPS, N_FEATURES, k, k))
        for feature in range(N_FEATURES):
            for group in range(N_GROUPS):
                for a in range(k):
                    for b in range(k):
                        basis[feature, int(a == b), group, feature, a, b] = 1.0
        return basis.reshape(-1, n_tables, k, k)
    basis = np.eye(n_tables * k * k).reshape(-1, n_tables, k, k)
    return basis + basis.transpose(0, 1, 3, 2) if symmetric else basis


@pytest.mark.parametrize("n_classes", [1, 2, 3])
@pytest.mark.parametrize("symmetric", TIES, ids=str)
def test_ties_are_orthogonal_projections(symmetric, n_classes, seed):
    """The nearest allowed weights, by least squares in a basis of those."""
    rng = np.random.default_rng(seed)
    given = rng.normal(size=(N_GROUPS * N_FEATURES, n_classes, n_classes))
    basis = allowed(symmetric, n_classes).reshape(-1, given.size).T
    nearest = basis @ np.linalg.lstsq(basis, given.ravel())[0]
    tied = TIES[symmetric](given, N_GROUPS)
    assert tied.shape == given.shape
    assert_allclose(tied.ravel(), nearest, atol=1e-12)


#: Parameters by what an optimizer minimises.
TAKEN = {
    "any": {},
    "convex": {"loss": "hinge"},
    "difference": {"loss": "latent_hinge"},
    "svm": {"loss": "hinge", "fit_intercept": False},
}


def problem(kind):
    X, Y = make_potts(n_images=3, shape=(5, 6), n_classes=3, random_state=0)
    est = GridCRFClassifier(TRW(max_iter=3), edge_features="contrast", max_iter=8)
    if kind is GridCRFClassifier:
        return est, X, Y
    edges = np.array([[i, i + 1] for i in range(29)])
    graphs = [(x.reshape(30, -1), edges, np.c_[np.ones(29), np.arange(29) % 3]) for x in X]
    return GraphCRFClassifier(TRW(max_iter=3), max_iter=8), graphs, [y.ravel() for y in Y]


@pytest.mark.parametrize("kind", [GridCRFClassifier, GraphCRFClassifier])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_potts_fits(kind, optimizer):
    """Fits, also such as start elsewhere, have one weight a feature for equal labels, one for others."""
    est, X, Y = problem(kind)
    est.set_params(
        optimizer=optimizer, random_state=0, symmetric=False, **TAKEN[OPTIMIZERS[optimizer].objectives]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = est.fit(X, Y)
        for init in ("auto", start):
            potts = kind(**{**est.get_params(deep=False), "symmetric": "potts", "init": init}).fit(X, Y)
            equal, other = potts.edge_coef_[:, 0, 0], potts.edge_coef_[:, 0, 1]
            assert np.abs(equal - other).max() > 1e-3
            same = np.eye(3)[None]
            assert_array_equal(
                potts.edge_coef_, equal[:, None, None] * same + other[:, None, None] * (1 - same)
            )
            if kind is GridCRFClassifier:
                assert_array_equal(potts.edge_coef_[:2], potts.edge_coef_[2:])


def test_the_gradient_within_potts():
    """By differences along weights that are allowed."""
    est, X, Y = problem(GridCRFClassifier)
    est.set_params(symmetric="potts")
    batches, shape = est._prepare(X, Y, None, reset=True)
    with workers(1) as run:
        objective = est._objective(batches, shape, run)
        rng = np.random.default_rng(0)
        for _ in range(3):
            w, step = rng.normal(size=(2, shape.ravel().size))
            for vector in (w, step):
                edge_coef = shape.unravel(vector).edge_coef
                edge_coef[:] = TIES["potts"](edge_coef, 2)
            difference = (objective(w + 1e-5 * step)[0] - objective(w - 1e-5 * step)[0]) / 2e-5
            gradient = objective(w)[1]
            assert_allclose(gradient @ step, difference, rtol=1e-6)
            edge_coef = shape.unravel(gradient).edge_coef
            assert_allclose(TIES["potts"](edge_coef, 2), edge_coef, atol=1e-15)


def test_the_discriminative_random_field():
    """Two labels, x of -1 and 1: a pair adds x_i x_j v.mu_ij, whatever its direction (K05)."""
    rng = np.random.default_rng(0)
    Y = np.repeat(np.arange(2), 3)[None, None].repeat(5, axis=1).repeat(3, axis=0)
    X = Y + 0.5 * rng.normal(size=Y.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est = GridCRFClassifier(BP(max_iter=5), edge_features="contrast", symmetric="potts", max_iter=10)
        est.fit(X, Y)
    v = est.edge_coef_[:2, 1, 1]
    (graph, theta), *_ = est.potentials(X[:1])
    first, second = X[0].ravel()[graph.edges].T
    mu = np.c_[np.ones(len(first)), np.abs(first - second)]
    x = np.array([-1, 1])
    assert np.abs(v).max() > 1e-2
    for e, table in enumerate(theta.tables[graph.edge_table]):
        assert_allclose(table, (mu[e] @ v) * np.outer(x, x), atol=1e-12)
