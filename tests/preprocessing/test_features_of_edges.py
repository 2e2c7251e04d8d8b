"""Features of pairs of neighbouring pixels: thresholds, unions, channels, and fits with them."""

import pickle
import warnings

import numpy as np
import pytest
from lazy_sequences import LazyList
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from small_images import quick

from skcrf import GridCRFClassifier, GridDAGMClassifier
from skcrf.data import LatticeTopology, MeshTopology
from skcrf.preprocessing import (
    BaseEdgeFeatures,
    Contrast,
    ContrastThresholds,
    EdgeUnion,
    PixelWise,
    SobelThresholds,
    make_edge_union,
)

D13 = make_edge_union(
    ContrastThresholds(np.linspace(0.05, 0.5, 10)), SobelThresholds(np.linspace(0.02, 0.2, 10))
)
LEARNED = make_edge_union(ContrastThresholds(4), SobelThresholds(3, channels=[0, 1]))


@pytest.fixture(autouse=True)
def few_iterations():
    """Compare fits of a few iterations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def colour_images(dtype=np.float64, shapes=((6, 7), (5, 4), (1, 1), (1, 6), (4, 1))):
    """Draw ragged colour images, one of a single pixel, and labels of their brightness."""
    rng = np.random.default_rng(0)
    X = [rng.random((*shape, 3)).astype(dtype) for shape in shapes]
    return X, [(x.mean(axis=2) > 0.5).astype(int) for x in X]


def view(image, topology=None):
    topology = topology or LatticeTopology(4, None, 1)
    shape = image.shape[:2]
    return topology.view(topology.graph(shape), shape, image.reshape(-1, image.shape[2]))


class Direction(BaseEdgeFeatures):
    """The row and column offsets of an edge, and the first channel at both ends."""

    def transform_edges(self, image, edges, offsets):
        return np.hstack([offsets, image[:, :, 0].ravel()[edges]])


def test_features_see_both_ends_the_image_and_the_direction():
    image = np.arange(6.0).reshape(2, 3, 1)
    found = Direction().transform_edges(*view(image))
    rights, downs = found[:4], found[4:]
    assert_array_equal(rights[:, :2], [[0, 1]] * 4)
    assert_array_equal(downs[:, :2], [[1, 0]] * 3)
    assert_array_equal(rights[:, 3] - rights[:, 2], 1)
    assert_array_equal(downs[:, 3] - downs[:, 2], 3)
    on_mesh = Direction().transform_edges(*view(image, MeshTopology(("above_right", "left"), None, 1)))
    assert_array_equal(on_mesh[:, :2], [[1, -1]] * 2 + [[0, 1]] * 4)
    eight = Direction().transform_edges(*view(image, LatticeTopology(8, None, 1)))
    assert {tuple(row) for row in eight[:, :2]} == {(0, 1), (1, 0), (1, 1), (1, -1)}


def test_contrast_thresholds_are_exceeded_by_the_norm_of_the_difference():
    (image, *_), _ = colour_images()
    thresholds = ContrastThresholds([0.3, 0.6]).fit_edges([], 3)
    pixels = image.reshape(-1, 3)
    _, edges, _ = view(image)
    norms = np.linalg.norm(pixels[edges[:, 0]] - pixels[edges[:, 1]], axis=1)
    found = thresholds.transform_edges(*view(image))
    assert found.dtype == bool
    assert_array_equal(found, np.stack([norms > 0.3, norms > 0.6], axis=1))
    assert_allclose(Contrast().transform_edges(*view(image))[:, 0], norms, rtol=1e-15)


def test_sobel_thresholds_use_the_larger_response_of_the_two_pixels():
    ramp = np.tile(0.3 * np.arange(5.0), (4, 1))[..., None]
    found = SobelThresholds([0.29, 0.31]).fit_edges([], 1).transform_edges(*view(ramp))
    inside = (view(ramp)[1] % 5 % 4 > 0).any(axis=1)  # at the border, the filter sees half of the slope
    assert_array_equal(found, np.stack([inside, np.zeros_like(inside)], axis=1))
    step = np.zeros((4, 6, 2))
    step[:, 3:] = 1.0
    found = SobelThresholds([0.4]).fit_edges([], 2).transform_edges(*view(step))[:, 0]
    _, edges, _ = view(step)
    assert_array_equal(found, (np.isin(edges % 6, [2, 3])).any(axis=1))


def test_number_of_thresholds_gives_quantiles_of_the_training_edges():
    X, Y = colour_images()
    est = quick(edge_features=ContrastThresholds(3), max_iter=2).fit(X, Y)
    values = [Contrast().transform_edges(*view(x))[:, 0] for x in X if x.size > 3]
    expected = np.quantile(np.concatenate(values), [0.25, 0.5, 0.75])
    assert_allclose(est.edge_features_.thresholds_, expected, rtol=1e-12)
    assert est.edge_features_.get_feature_names_out()[1] == f"contrast>{expected[1]:.4g}"


def test_d13_has_42_features_on_horses_and_22_on_backgrounds():
    X, Y = colour_images()
    assert quick(edge_features=D13, max_iter=2).fit(X, Y).edge_coef_.shape == (42, 2, 2)
    backgrounds = ContrastThresholds(np.linspace(0.05, 0.5, 10))
    assert quick(edge_features=backgrounds, max_iter=2).fit(X, Y).edge_coef_.shape == (22, 2, 2)


@pytest.mark.parametrize(
    "features", [LEARNED, Direction(), Contrast(slice(1, 3))], ids=["learned", "own", "contrast"]
)
@pytest.mark.parametrize("model", ["crf", "8 neighbours", "dagm"])
def test_fits_do_not_depend_on_threads_laziness_or_pickles(features, model):
    X, Y = colour_images()
    make = {
        "crf": lambda **p: quick(edge_features=features, max_iter=2, **p),
        "8 neighbours": lambda **p: quick(edge_features=features, connectivity=8, max_iter=2, **p),
        "dagm": lambda **p: GridDAGMClassifier(edge_features=features, max_iter=2, **p),
    }[model]
    est = make().fit(X, Y)
    assert np.abs(est.edge_coef_).sum() > 0
    for other in (make(n_jobs=2).fit(X, Y), make().fit(LazyList(X), LazyList(Y)), clone(est).fit(X, Y)):
        assert_array_equal(other.edge_coef_, est.edge_coef_)
        assert_array_equal(other.coef_, est.coef_)
    if not isinstance(features, Direction):
        again = pickle.loads(pickle.dumps(est))
        for one, other in zip(again.predict_proba(X), est.predict_proba(X), strict=True):
            assert_array_equal(one, other)


def test_indicators_take_one_byte_and_give_the_potentials_of_wide_features():
    X, Y = colour_images()
    topology = LatticeTopology(4, D13.fit_edges([], 3), 21)
    graph = topology.graph((6, 7))
    V = topology.edge_features(graph, (6, 7), X[0].reshape(-1, 3))
    assert V.dtype == np.uint8 and (V[:, 0] == 1).all() and V[:, 1:].max() == 1

    class Wide(EdgeUnion):
        def transform_edges(self, *view):
            return super().transform_edges(*view).astype(np.float64)

    narrow, wide = (
        quick(edge_features=make(D13.features), max_iter=8).fit(X, Y) for make in (EdgeUnion, Wide)
    )
    # The derivatives of narrow features are summed in single precision.
    assert_allclose(narrow.edge_coef_, wide.edge_coef_, rtol=1e-3, atol=1e-5)
    one, other = (est.potentials(X[:1])[0][1].tables for est in (narrow, wide))
    assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_union_joins_features_of_any_kind_and_their_names():
    X, Y = colour_images()
    union = EdgeUnion(
        [("c", "contrast"), ("t", ContrastThresholds([0.5])), ("d", StandardScaler()), ("b", "bias")]
    )
    est = quick(edge_features=union, max_iter=3).fit(X, Y)
    assert est.edge_coef_.shape == (2 * (1 + 1 + 1 + 3), 2, 2)
    assert list(est.edge_features_.get_feature_names_out(["r", "g", "b"])) == [
        *["c__contrast", "t__contrast>0.5", "d__r", "d__g", "d__b"]
    ]
    assert not hasattr(union, "features_")  # the parameter is cloned
    assert [name for name, _ in make_edge_union("contrast", Contrast(), Contrast()).features][1:] == [
        *["contrast-2", "contrast-3"]
    ]


def test_parameters_of_edge_features_are_searched_through_a_pipeline():
    X, Y = colour_images()
    X, Y = [X[0], X[0][::-1], X[1], X[1][::-1]], [Y[0], Y[0][::-1], Y[1], Y[1][::-1]]
    crf = quick(edge_features=make_edge_union(ContrastThresholds(3), "bias"), max_iter=2, tol=0.5)
    pipe = make_pipeline(PixelWise(StandardScaler()), crf)
    prefix = "gridcrfclassifier__edge_features__contrastthresholds"
    search = GridSearchCV(pipe, [{f"{prefix}__thresholds": [1, 2]}, {prefix: ["contrast"]}], cv=2)
    search.fit(X, Y)
    assert len(search.cv_results_["mean_test_score"]) == 3


def test_unary_channels_leave_the_others_to_the_edges():
    X, Y = colour_images()
    doubled = [np.concatenate([x, x + 1], axis=2) for x in X]
    for make in (quick, GridDAGMClassifier):
        options = {"max_iter": 5, "tol": 1e-2}
        split = make(edge_features=Contrast(slice(3)), unary_channels=slice(3, None), **options).fit(
            doubled, Y
        )
        assert split.coef_.shape == (2, 6) and (split.coef_[:, :3] == 0).all()
        # The same as a pixel's own features, with a distance of the others.
        alone = make(edge_features="contrast", **options).fit([x + 1 for x in X], Y)
        assert_allclose(split.coef_[:, 3:], alone.coef_, rtol=1e-6, atol=1e-9)
        assert_allclose(split.edge_coef_, alone.edge_coef_, rtol=1e-6, atol=1e-9)
    # 100 features of pixels as in D13, beside three that only edges see.
    est = quick(unary_channels=[False] * 3 + [True] * 3, max_iter=2).fit(doubled, Y)
    assert (est.coef_[:, :3] == 0).all() and (est.coef_[:, 3:] != 0).all()
    with pytest.raises(ValueError, match="unary_channels must be a slice or positions of the 6 features"):
        quick(unary_channels=[6]).fit(doubled, Y)


@pytest.mark.parametrize(
    "features, message",
    [
        (ContrastThresholds(0), "thresholds must be at least 1, got 0"),
        (ContrastThresholds([]), "thresholds must be an integer or a list of finite numbers"),
        (ContrastThresholds("many"), "thresholds must be an integer or a list of finite numbers"),
        (SobelThresholds([np.nan]), "thresholds must be an integer or a list of finite numbers"),
        (ContrastThresholds(channels=[3]), "channels must be a slice or positions of the 3 features"),
        (Contrast(channels=slice(3, 3)), "channels must choose at least one of the 3 features"),
        (EdgeUnion([]), "features must be pairs of a name and features"),
        (EdgeUnion([Contrast()]), "features must be pairs of a name and features"),
        (EdgeUnion([("a", "colour")]), "edge_features must be one of .* got 'colour'"),
    ],
    ids=str,
)
def test_bad_parameters_are_refused(features, message):
    X, Y = colour_images()
    est = GridCRFClassifier(edge_features=features)
    with pytest.raises(ValueError, match=message):
        est.fit(X, Y)
    assert not hasattr(est, "n_features_in_")


class WrongRows(BaseEdgeFeatures):
    def transform_edges(self, image, edges, offsets):
        return np.zeros((3, 1))


class Words(BaseEdgeFeatures):
    def transform_edges(self, image, edges, offsets):
        return np.array([["edge"]] * len(edges))


def test_features_of_a_wrong_shape_or_type_are_refused():
    X, Y = colour_images()
    with pytest.raises(ValueError, match=r"one row per edge, shape \(1, n_features\), got shape \(3, 1\)"):
        GridCRFClassifier(edge_features=WrongRows()).fit(X, Y)
    with pytest.raises(TypeError, match="edge_features must return numbers"):
        GridCRFClassifier(edge_features=Words()).fit(X, Y)


class Broken(BaseEdgeFeatures):
    """Features of small images that differ from those of others."""

    def __init__(self, value=1.0, n_features=1):
        self.value = value
        self.n_features = n_features

    def transform_edges(self, image, edges, offsets):
        small = len(image) < 6
        return np.full((len(edges), self.n_features if small else 1), self.value if small else 1.0)


def test_errors_of_edge_features_name_the_image():
    X, Y = colour_images(shapes=((6, 7), (7, 6), (5, 5)))
    with pytest.raises(ValueError, match="finite numbers, got nan or inf in example 2"):
        quick(edge_features=Broken(value=np.nan)).fit(X, Y)
    with pytest.raises(ValueError, match="return 2 features per edge, as in fit, got 1 in example 1"):
        quick(edge_features=Broken(n_features=2)).fit(X[::-1], Y[::-1])


def test_images_without_edges_leave_the_constant():
    X, Y = [np.zeros((1, 1, 3)), np.ones((1, 1, 3))], [[[0]], [[1]]]
    est = quick(edge_features=ContrastThresholds(5)).fit(X, Y)
    assert est.n_edge_features_ == 1 and est.edge_features_.get_feature_names_out().tolist() == []
    assert est.predict([np.zeros((2, 2, 3))])[0].shape == (2, 2)
    assert quick(edge_features=ContrastThresholds([0.1, 0.2])).fit(X, Y).n_edge_features_ == 3
    table = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert quick(edge_features=ContrastThresholds(5)).fit(table, [0, 1]).n_edge_features_ == 1


def test_only_features_that_learn_load_images_again():
    X, Y = colour_images()
    counts = []
    for features in (
        "bias",
        "contrast",
        FunctionTransformer(),
        ContrastThresholds([0.1]),
        ContrastThresholds(2),
    ):
        lazy = LazyList(X)
        quick(edge_features=features, max_iter=1, init="zeros").fit(lazy, Y)
        counts.append(lazy.loaded[0])
    assert counts[0] == counts[1] == counts[2] == counts[3] == counts[4] - 1
