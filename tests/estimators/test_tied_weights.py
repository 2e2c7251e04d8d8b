"""Fits with tied edge weights: `symmetric=True` and `symmetric="potts"`."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skcrf import GraphCRFClassifier, GridCRFClassifier
from skcrf.datasets import make_potts
from skcrf.inference import BP, TRW
from skcrf.optimizers import OPTIMIZERS

#: Parameters that suit an optimizer, by the objectives that it supports.
SUITABLE = {
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
def test_potts_has_one_weight_for_equal_labels_and_one_for_others(kind, optimizer):
    """Also if the fit starts from weights without ties."""
    est, X, Y = problem(kind)
    est.set_params(
        optimizer=optimizer, random_state=0, symmetric=False, **SUITABLE[OPTIMIZERS[optimizer].objectives]
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


def test_potts_with_contrast_is_the_discriminative_random_field():
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
