"""Features of edges of grids."""

import numpy as np
import pytest
from sklearn.preprocessing import KBinsDiscretizer, Normalizer, StandardScaler
from small_images import flat, quick, ragged_images


@pytest.fixture(scope="module")
def images():
    """Draw ragged images with three classes and two features."""
    return ragged_images()


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("edge_features", ["bias", "contrast", KBinsDiscretizer(3, quantile_method="linear")])
def test_each_direction_has_weights_for_its_edge_features(images, connectivity, edge_features):
    X, Y = images
    est = quick(connectivity=connectivity, edge_features=edge_features).fit(X, Y)
    n_per_direction = {"bias": 1, "contrast": 2}[edge_features] if isinstance(edge_features, str) else 7
    assert est.edge_coef_.shape == (connectivity // 2 * n_per_direction, 3, 3)
    assert np.abs(est.edge_coef_).sum() > 0
    assert est.score(X, Y) > 1 / 3
    np.testing.assert_allclose(flat(p.sum(axis=-1) for p in est.predict_proba(X)), 1.0, rtol=1e-12)


def test_edge_features_are_learned_if_the_first_image_has_no_edges(images):
    X, Y = images
    X, Y = [X[0][:1, :1], *X], [Y[0][:1, :1], *Y]
    for edge_features in ("contrast", Normalizer(), StandardScaler()):
        assert quick(edge_features=edge_features).fit(X, Y).score(X, Y) > 1 / 3


def test_partial_fit_may_see_images_without_edges_first(images):
    X, Y = images
    est = quick(optimizer="adam", edge_features="contrast")
    est.partial_fit([x[:1, :1] for x in X], [y[:1, :1] for y in Y], classes=[0, 1, 2])
    assert est.partial_fit(X, Y).edge_coef_.shape == (4, 3, 3)


def test_contrast_is_the_norm_of_the_difference_of_neighbours(images):
    X, Y = images
    est = quick(edge_features="contrast").fit(X, Y)
    graph, theta = est.potentials(X[:1])[0]
    at = int(np.flatnonzero((graph.edges == [0, 7]).all(axis=1))[0])  # pixel (0, 0) and the one below
    bias, contrast = est.edge_coef_[2:]  # of vertical edges
    expected = bias + np.linalg.norm(X[0][0, 0] - X[0][1, 0]) * contrast
    np.testing.assert_allclose(theta.tables[graph.edge_table[at]], expected, rtol=1e-12)
