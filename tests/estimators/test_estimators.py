"""The contract of the estimators: data, scikit-learn behaviour, callbacks, promised numerics."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import zoo
from joblib import dump, load, parallel_config
from loss_definitions import OF_ONE_CONFIGURATION
from sklearn.base import clone
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, Normalizer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import skcrf
from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising, make_potts
from skcrf.gradients import Backprop
from skcrf.graph import Potentials, isolated, lattice
from skcrf.inference import BP, TRW, BruteForce, MeanField, Tree
from skcrf.losses import LOSSES
from skcrf.metrics import SCORERS
from skcrf.optimizers import LBFGS, OPTIMIZERS, Adam, Subgradient, lbfgs
from skcrf.preprocessing import PixelWise
from skcrf.training.objective import Objective, workers

ESTIMATORS = [getattr(skcrf, name) for name in skcrf.__all__ if name.endswith("Classifier")]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([estimator() for estimator in ESTIMATORS])
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def images():
    """Ragged images with three classes and two features."""
    X, Y = make_potts(n_images=6, shape=(6, 7), n_classes=3, coupling=0.8, random_state=0)
    crop = [(6, 7), (5, 7), (6, 4), (3, 3), (1, 7), (6, 1)]
    return [x[:h, :w] for x, (h, w) in zip(X, crop, strict=True)], [
        y[:h, :w] for y, (h, w) in zip(Y, crop, strict=True)
    ]


def quick(**params):
    return GridCRFClassifier(**{"max_iter": 60, "tol": 1e-2, "inference": TRW(max_iter=3), **params})


def flat(P):
    return np.concatenate([np.ravel(p) for p in P])


# Agreement with logistic regression


def cost_of_a_site(loss, probability):
    theta = Potentials(np.log([[probability, 1 - probability]]), np.zeros((0, 2, 2)))
    return LOSSES[loss]()(Backprop().wrap(BP()), isolated(1), theta, np.array([0]))[0][0]


#: The losses that cost minus the log of the probability of the label where a field has one site.
LOG_LOSSES = [loss for loss in LOSSES if np.isclose(cost_of_a_site(loss, 0.2), -np.log(0.2))]


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss not in OF_ONE_CONFIGURATION])
def test_loss_of_one_site(loss):
    """Minus the log of the probability, unless its name or a margin says otherwise."""
    other = re.search("quadratic|smoothed", loss) or "cost" in LOSSES[loss]().get_params()
    assert (loss in LOG_LOSSES) == (not other)
    assert 0 <= cost_of_a_site(loss, 0.9) < cost_of_a_site(loss, 0.2)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0, 1: 0.5}])
@pytest.mark.parametrize("loss", LOG_LOSSES)
def test_one_site_fields_are_logistic_regression(fit_intercept, weighted, class_weight, loss, seed):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)[20:]
    y = y[20:]
    rng = np.random.RandomState(seed)
    sample_weight = rng.uniform(0.2, 2.0, size=len(y)) if weighted else np.ones(len(y))
    alpha = 0.01
    est = GridCRFClassifier(
        loss=loss,
        alpha=alpha,
        tol=1e-9,
        max_iter=1000,
        fit_intercept=fit_intercept,
        class_weight=class_weight,
    ).fit(X, y, sample_weight=sample_weight)
    peer = LogisticRegression(
        C=1 / (alpha * sample_weight.sum()),
        tol=1e-9,
        max_iter=10_000,
        fit_intercept=fit_intercept,
        class_weight=class_weight,
    ).fit(X, y, sample_weight=sample_weight)
    np.testing.assert_allclose(est.coef_, peer.coef_, atol=1e-5)
    np.testing.assert_allclose(est.predict_proba(X), peer.predict_proba(X), atol=1e-5)
    assert not est.edge_coef_.any()


def test_two_classes_are_a_binary_logistic_regression():
    # The penalty is shared by the coefficients of both classes, each of which has half of the difference.
    X, y = load_iris(return_X_y=True)
    X, y = X[:100], y[:100]
    est = GridCRFClassifier(alpha=0.02, tol=1e-10, max_iter=1000).fit(X, y)
    peer = LogisticRegression(C=2 / (0.02 * len(y)), tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(est.coef_[1] - est.coef_[0], peer.coef_[0], atol=1e-5)


def test_images_of_one_pixel_are_a_table():
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    table = quick().fit(X, y)
    pixels = quick().fit(list(X[:, None, None]), list(y[:, None, None]))
    np.testing.assert_allclose(pixels.coef_, table.coef_, rtol=1e-8)


# Containers, shapes and dtypes


def test_containers(images):
    X, Y = images
    est = quick().fit(X, Y)
    as_list = est.predict_proba(X)
    assert isinstance(as_list, list)
    assert [p.shape for p in as_list] == [(*y.shape, 3) for y in Y]
    objects = np.empty(len(X), dtype=object)
    objects[:] = X
    labels = np.empty(len(Y), dtype=object)
    labels[:] = Y
    again = quick().fit(objects, labels)
    np.testing.assert_array_equal(again.coef_, est.coef_)
    as_objects = again.predict(objects)
    assert as_objects.dtype == object
    assert as_objects.shape == (len(X),)
    same = [X[0], X[0] + 1]
    assert isinstance(est.predict(same), list)
    assert est.predict_proba(np.stack(same)).shape == (2, 6, 7, 3)
    assert est.predict(np.stack(same)).shape == (2, 6, 7)
    assert est.predict_edge_proba(np.stack(same)).shape == (2, 6, 7, 2, 3, 3)


def test_pandas_series_of_images(images):
    X, Y = images
    est = quick().fit(pd.Series(X), pd.Series(Y))
    np.testing.assert_array_equal(est.coef_, quick().fit(X, Y).coef_)
    assert len(est.predict(pd.Series(X))) == len(X)


def test_labels_of_object_dtype(images):
    X, Y = images
    est = quick().fit(X, [y.astype(object) for y in Y])
    assert est.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(est.coef_, quick().fit(X, Y).coef_)


def test_images_without_a_feature_axis_have_one_feature():
    X, Y = make_binary_denoising(n_images=3, shape=(6, 5), random_state=0)
    flat_axis, with_axis = quick().fit(X, Y), quick().fit(X[..., None], Y)
    assert flat_axis.n_features_in_ == 1
    np.testing.assert_array_equal(flat_axis.coef_, with_axis.coef_)


def test_single_precision_is_kept_and_not_copied(images):
    X, Y = images
    single = [np.ascontiguousarray(x, dtype=np.float32) for x in X]
    large = np.zeros((50, 50, 2), dtype=np.float32)
    est = quick()
    batches, _ = est._prepare([large], [np.arange(2500).reshape(50, 50) % 2], None, reset=True)
    assert np.shares_memory(batches[0].X, large)
    fields = quick()._read(single, reset=True)
    assert all(np.shares_memory(a, b) for a, b in zip((x.X for x in fields.examples), single, strict=True))
    assert all(x.X.dtype == np.float32 for x in fields.examples)
    double = quick(tol=1e-6, max_iter=200).fit([x.astype(np.float64) for x in single], Y)
    np.testing.assert_allclose(quick(tol=1e-6, max_iter=200).fit(single, Y).coef_, double.coef_, rtol=1e-9)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.uint16, np.float16, np.int32, np.float64])
def test_single_precision_is_taken_where_it_is_exact(dtype, images):
    rng = np.random.default_rng(0)
    coarse = [(rng.random(x.shape) * 100).astype(dtype) for x in images[0]]
    fields = quick()._read(coarse, reset=True)
    exact = np.dtype(dtype).itemsize < 4
    assert all(x.X.dtype == (np.float32 if exact else np.float64) for x in fields.examples)
    for (image, *_), given in zip(fields.examples, coarse, strict=True):
        np.testing.assert_array_equal(image.reshape(given.shape), given.astype(np.float64))


def test_memory_maps(images, tmp_path):
    X, Y = images
    dump((X, Y), tmp_path / "images.joblib")
    mapped = load(tmp_path / "images.joblib", mmap_mode="r")
    np.testing.assert_array_equal(quick().fit(*mapped).coef_, quick().fit(X, Y).coef_)


# Labels


def test_string_labels(images):
    X, Y = images
    names = np.array(["sky", "grass", "road"])
    est, by_name = quick().fit(X, Y), quick().fit(X, [names[y] for y in Y])
    assert by_name.classes_.tolist() == ["grass", "road", "sky"]
    order = [1, 2, 0]  # of the sorted names
    np.testing.assert_allclose(by_name.coef_, est.coef_[order], rtol=1e-6, atol=1e-8)
    assert by_name.predict(X)[0].dtype.kind == "U"
    assert by_name.score(X, [names[y] for y in Y]) == pytest.approx(est.score(X, Y), abs=0.02)


#: Steps along subgradients do not end by themselves.
ENDLESS = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
KINKS = {loss for loss in LOSSES if not LOSSES[loss]().is_smooth}


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(loss, marks=[ENDLESS] if loss in KINKS else [])
        for loss in LOSSES
        if LOSSES[loss].takes_hidden_labels
    ],
)
def test_hidden_labels_in_all_their_forms(images, loss, seed):
    X, Y = images
    optimizer = Subgradient(best="last") if loss in KINKS else "lbfgs"
    given = {"loss": loss, "inference": BP(max_iter=5), "optimizer": optimizer}
    rng = np.random.RandomState(seed)
    hidden = [rng.uniform(size=y.shape) < 0.3 for y in Y]
    masked = [np.ma.masked_array(y, mask) for y, mask in zip(Y, hidden, strict=True)]
    by_mask = quick(**given).fit(X, masked)
    marked = [np.where(mask, -1, y) for y, mask in zip(Y, hidden, strict=True)]
    by_value = quick(**given, missing_label=-1).fit(X, marked)
    np.testing.assert_array_equal(by_value.coef_, by_mask.coef_)
    assert by_value.classes_.tolist() == [0, 1, 2]
    float_nan = quick(**given, missing_label=np.float32("nan"))
    nans = [np.where(mask, np.nan, y) for y, mask in zip(Y, hidden, strict=True)]
    by_nan = quick(**given, missing_label=np.nan).fit(X, nans)
    np.testing.assert_array_equal(by_nan.coef_, by_mask.coef_)
    np.testing.assert_array_equal(float_nan.fit(X, nans).coef_, by_mask.coef_)
    known = by_mask.score(X, masked)
    right = flat([p == y for p, y in zip(by_mask.predict(X), Y, strict=True)])[~flat(hidden)]
    assert known == pytest.approx(right.mean())


def test_examples_without_labels_teach_nothing(images):
    X, Y = images
    unlabelled = np.ma.masked_all((4, 4), dtype=int)
    with_one_more = quick().fit([*X, np.zeros((4, 4, 2))], [*Y, unlabelled])
    np.testing.assert_array_equal(with_one_more.coef_, quick().fit(X, Y).coef_)


def test_minus_one_is_a_label_by_default():
    X, Y = make_binary_denoising(n_images=3, shape=(6, 5), random_state=0)
    assert quick().fit(X, 2 * Y - 1).classes_.tolist() == [-1, 1]


def test_a_fold_that_lacks_a_class(images):
    X, Y = images
    few = [np.minimum(y, 1) for y in Y]
    est = quick(classes=[2, 0, 1]).fit(X, few)
    assert est.classes_.tolist() == [0, 1, 2]
    assert est.predict_proba(X)[0].shape == (6, 7, 3)
    assert quick().fit(X, few).score(X, Y) < 1  # classes unseen in training are errors


def test_one_class_only(images):
    X, Y = images
    ones = [np.full(y.shape, "only") for y in Y]
    est = quick().fit(X, ones)
    assert (est.predict(X)[0] == "only").all()
    np.testing.assert_array_equal(est.predict_proba(X)[0], 1.0)


# Weights


def test_sample_weight_is_repetition(images):
    X, Y = images
    est = quick(alpha=0.1, tol=1e-7, max_iter=1000)
    weighted = clone(est).fit(X, Y, sample_weight=[2, 1, 0, 1, 3, 1])
    repeat = [0, 0, 1, 3, 4, 4, 4, 5]
    repeated = clone(est).fit([X[i] for i in repeat], [Y[i] for i in repeat])
    np.testing.assert_allclose(weighted.edge_coef_, repeated.edge_coef_, atol=1e-5)


def test_class_weight_moves_predictions(images):
    X, Y = images
    favoured = quick(class_weight={0: 50.0}).fit(X, Y)
    plain = quick().fit(X, Y)
    assert np.mean(flat(favoured.predict(X)) == 0) > np.mean(flat(plain.predict(X)) == 0)


# Models


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("edge_features", ["bias", "contrast", KBinsDiscretizer(3, quantile_method="linear")])
def test_edge_features(images, connectivity, edge_features):
    X, Y = images
    est = quick(connectivity=connectivity, edge_features=edge_features).fit(X, Y)
    of_a_direction = {"bias": 1, "contrast": 2}.get(edge_features, 7) if isinstance(edge_features, str) else 7
    assert est.edge_coef_.shape == (connectivity // 2 * of_a_direction, 3, 3)
    assert np.abs(est.edge_coef_).sum() > 0
    assert est.score(X, Y) > 1 / 3
    np.testing.assert_allclose(flat(p.sum(axis=-1) for p in est.predict_proba(X)), 1.0, rtol=1e-12)


def test_edge_features_when_the_first_image_has_no_edges(images):
    X, Y = images
    X, Y = [X[0][:1, :1], *X], [Y[0][:1, :1], *Y]
    for edge_features in ("contrast", Normalizer(), StandardScaler()):
        assert quick(edge_features=edge_features).fit(X, Y).score(X, Y) > 1 / 3


def test_parameters_set_after_a_fit_do_not_change_predictions(images):
    X, Y = images
    est = quick().fit(X, Y)
    before = est.predict_proba(X)
    est.set_params(connectivity=8, inference="mean_field", edge_features="contrast")
    np.testing.assert_array_equal(flat(est.predict_proba(X)), flat(before))


def test_contrast_survives_a_first_chunk_without_edges(images):
    X, Y = images
    est = quick(optimizer="adam", edge_features="contrast")
    est.partial_fit([x[:1, :1] for x in X], [y[:1, :1] for y in Y], classes=[0, 1, 2])
    assert est.partial_fit(X, Y).edge_coef_.shape == (4, 3, 3)


def test_contrast_is_the_norm_of_the_difference(images):
    X, Y = images
    est = quick(edge_features="contrast").fit(X, Y)
    graph = lattice(*X[0].shape[:2], tied=False)
    V = est._structure.edge_values(graph, X[0].shape[:2], X[0].reshape(-1, 2))
    at = int(np.flatnonzero((graph.edges == [0, 7]).all(axis=1))[0])  # pixel (0, 0) and the one below
    np.testing.assert_allclose(V[at], [1.0, np.linalg.norm(X[0][0, 0] - X[0][1, 0])])


@pytest.mark.parametrize("name", zoo.LEARNING)
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if LOSSES[loss]().is_smooth])
def test_every_inference_learns_with_every_loss(name, loss):
    # Chains as images of one row, so that all methods apply.
    X, Y = make_potts(n_images=8, shape=(1, 6), n_classes=2, coupling=1.0, signal=0.5, random_state=1)
    est = quick(inference=name, loss=loss, tol=1e-3, max_iter=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(X, Y)
    assert est.loss_curve_[-1] <= est.loss_curve_[0]
    assert est.score(X, Y) > 0.6


def test_marginals_are_those_of_the_model(images):
    X, Y = images
    est = quick(inference=BruteForce()).fit([X[3], X[4]], [Y[3], Y[4]])
    trees = quick(inference=Tree()).fit([X[4]], [Y[4]])
    np.testing.assert_allclose(
        trees.predict_proba([X[4]])[0],
        clone(trees).set_params(inference="bp").fit([X[4]], [Y[4]]).predict_proba([X[4]])[0],
    )
    P = est.predict_edge_proba([X[3]])[0]
    node = est.predict_proba([X[3]])[0]
    np.testing.assert_allclose(P[:, :-1, 0].sum(axis=-1), node[:, :-1], atol=1e-12)
    np.testing.assert_allclose(P[:-1, :, 1].sum(axis=-2), node[1:], atol=1e-12)
    assert np.isnan(P[:, -1, 0]).all()
    assert np.isnan(P[-1, :, 1]).all()


def test_prediction_given_known_labels(images):
    X, Y = images
    est = quick(alpha=0.3, inference=BruteForce(), classes=[0, 1, 2]).fit(X[3:5], Y[3:5])
    given = np.ma.masked_array(Y[3], mask=True)
    given[1, 1] = Y[3][1, 1]
    free, clamped = est.predict_proba(X[3:4])[0], est.predict_proba(X[3:4], Y=[given])[0]
    assert clamped[1, 1, Y[3][1, 1]] == pytest.approx(1.0, abs=1e-12)
    pair = est.predict_edge_proba(X[3:4])[0][1, 0, 0][:, Y[3][1, 1]]  # (1, 0) and its right neighbour
    np.testing.assert_allclose(clamped[1, 0], pair / pair.sum(), atol=1e-12)
    assert np.abs(free - clamped).max() > 1e-3
    everything = est.predict(X[3:5], Y=Y[3:5])
    assert all((a == b).all() for a, b in zip(everything, Y[3:5], strict=True))


def test_log_proba(images):
    X, Y = images
    est = quick().fit(X, Y)
    np.testing.assert_allclose(np.exp(est.predict_log_proba(X)[2]), est.predict_proba(X)[2])


# Optimisation


@pytest.mark.filterwarnings("ignore:LBFGS did not converge")  # a dozen iterations are enough to see it
def test_truncated_learning_halves_the_independent_error():
    X, Y = make_binary_denoising(n_images=52, shape=(64, 64), noise=1.25, random_state=0)
    train, test = slice(0, 32), slice(32, 52)
    independent = GridCRFClassifier(inference=BP(max_iter=0)).fit(X[train], Y[train])
    est = GridCRFClassifier(inference=TRW(max_iter=10), max_iter=12, n_jobs=2).fit(X[train], Y[train])
    error, baseline = 1 - est.score(X[test], Y[test]), 1 - independent.score(X[test], Y[test])
    assert baseline > 0.4
    assert error < 0.5 * baseline


def test_jobs_do_not_change_a_bit(images):
    X, _ = images
    big = make_potts(n_images=3, shape=(50, 50), random_state=0)
    for data in (images, big):
        one = quick(n_jobs=1, edge_features="contrast", max_iter=4, tol=0.1).fit(*data)
        two = quick(n_jobs=2, edge_features="contrast", max_iter=4, tol=0.1).fit(*data)
        np.testing.assert_array_equal(one.coef_, two.coef_)
        np.testing.assert_array_equal(one.edge_coef_, two.edge_coef_)
        np.testing.assert_array_equal(one.loss_curve_, two.loss_curve_)
        np.testing.assert_array_equal(flat(one.predict_proba(X)), flat(two.predict_proba(X)))


def test_other_backends_do_not_matter(images):
    X, Y = images
    with parallel_config(backend="loky", n_jobs=2):
        est = quick().fit(X, Y)
    np.testing.assert_array_equal(est.coef_, quick().fit(X, Y).coef_)


def test_an_example_does_not_depend_on_its_company(images):
    X, Y = images
    est = quick().fit(X, Y)
    together = est.predict_proba(X)
    for i in range(len(X)):
        np.testing.assert_allclose(est.predict_proba([X[i]])[0], together[i], rtol=1e-12)


def test_starts_from_the_independent_model(images, monkeypatch):
    X, Y = images
    seen = []
    evaluate = Objective.__call__

    def recorded(self, w, batches=None):
        seen.append((self.batches[0].graph.n_edges, w.copy()))
        return evaluate(self, w, batches)

    monkeypatch.setattr(Objective, "__call__", recorded)
    quick(tol=1e-3).fit(X, Y)
    start = next(w for n_edges, w in seen if n_edges > 0)
    independent = quick(tol=1e-3).fit(np.concatenate([x.reshape(-1, 2) for x in X]), flat(Y))
    np.testing.assert_allclose(start[:6], independent.coef_.ravel(), rtol=1e-6)
    assert not start[9:].any()  # of the edges


def test_warm_start(images):
    X, Y = images
    est = quick(warm_start=True, tol=1e-3, max_iter=100).fit(X, Y)
    steps, coef = est.n_iter_, est.coef_
    est.fit(X, Y)
    assert est.n_iter_ < steps
    np.testing.assert_allclose(est.coef_, coef, atol=1e-2)
    est.fit([x[..., :1] for x in X], Y)  # other shapes: from scratch
    assert est.coef_.shape == (3, 1)


def test_warm_start_of_another_model(images):
    X, Y = images
    est = quick(warm_start=True).fit(X, Y)
    other = est.set_params(fit_intercept=False).fit(X, Y)
    assert not other.intercept_.any()
    renamed = [y + 10 for y in Y]
    afresh = quick(fit_intercept=False).fit(X, renamed)
    np.testing.assert_array_equal(est.fit(X, renamed).coef_, afresh.coef_)


def test_not_converging_is_one_warning(images):
    X, Y = images
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        est = quick(max_iter=2, tol=1e-8).fit(X, Y)
    assert [w.category for w in caught] == [ConvergenceWarning]
    assert not est.converged_
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        est = quick(inference=BP(max_iter=1, tol=1e-9)).fit(X, Y)
    assert [w.category for w in caught] == [ConvergenceWarning]
    assert "BP" in str(caught[0].message)
    assert not est.converged_
    with pytest.warns(ConvergenceWarning, match="BP"):
        assert np.isfinite(flat(est.predict_proba(X))).all()


def test_learning_to_convergence(images):
    X, Y = images
    est = quick(inference=TRW(max_iter=500, tol=1e-9), tol=1e-4, max_iter=200).fit(X, Y)
    assert est.converged_
    truncated = quick(inference=TRW(max_iter=60), tol=1e-4, max_iter=200).fit(X, Y)
    np.testing.assert_allclose(est.loss_curve_[-1], truncated.loss_curve_[-1], rtol=1e-5)


#: A loss for optimizers that take any, or any that is convex.
TAKEN = {"any": "univariate_logistic", "convex": "pseudolikelihood"}
TAKE_MANY = [(name, TAKEN[cls.objectives]) for name, cls in OPTIMIZERS.items() if cls.objectives in TAKEN]


@pytest.mark.parametrize("optimizer, loss", TAKE_MANY)
def test_optimizers_reach_the_same_minimum(images, optimizer, loss):
    X, Y = images
    est = GridCRFClassifier(
        TRW(max_iter=2), loss, optimizer=optimizer, alpha=0.1, max_iter=300, random_state=0
    )
    reference = clone(est).set_params(optimizer="lbfgs", tol=1e-8).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(X, Y)
        again = clone(est).fit(X, Y)
    assert min(est.loss_curve_) == pytest.approx(reference.loss_curve_[-1], rel=0.02)
    assert again.coef_.tolist() == est.coef_.tolist()  # same seed, same fit


def test_partial_fit(images):
    X, Y = images
    est = quick(optimizer=Adam(batch_size=2, learning_rate=0.05), random_state=0)
    for _ in range(60):
        est.partial_fit(X[:3], Y[:3], classes=[0, 1, 2])
        est.partial_fit(X[3:], Y[3:])
    assert est.n_iter_ == 120
    whole = quick(tol=1e-4, max_iter=200).fit(X, Y)
    assert est.score(X, Y) == pytest.approx(whole.score(X, Y), abs=0.05)
    with pytest.raises(AttributeError, match="partial_fit"):
        quick(optimizer="lbfgs").partial_fit(X, Y)
    with pytest.raises(ValueError, match=r"y\[0\] holds the label 7"):
        est.partial_fit([X[0]], [np.full((6, 7), 7)])


def test_partial_fit_after_a_fit_takes_the_parameters_of_now(images):
    X, Y = images
    est = quick(inference="mean_field").fit(X, Y)
    est.set_params(optimizer="adam", inference="bp").partial_fit(X, Y)
    assert isinstance(est.inference_, BP)
    assert isinstance(est.optimizer_, Adam)
    with pytest.raises(ValueError, match=r"classes=\[0, 1\] differs from \[0, 1, 2\]"):
        est.partial_fit(X, Y, classes=[0, 1])


def test_partial_fit_of_a_chunk_without_labels_changes_nothing(images):
    X, Y = images
    est = quick(optimizer="adam").partial_fit(X, Y)
    before = est.coef_
    est.partial_fit(X[:1], [np.ma.masked_all(Y[0].shape, int)])
    assert est.coef_ is before


def test_saturated_sites_still_teach():
    X, y = np.array([[-600.0], [600.0]]), np.array([1, 0])
    est = GridCRFClassifier(alpha=0.0)
    batches, shape = est._prepare(X, y, None, reset=True)
    wrong = shape._replace(coef=np.array([[-0.5], [0.5]])).ravel()
    with workers(None) as run:
        value, gradient = est._objective(batches, shape, run)(wrong)
    np.testing.assert_allclose(value, 600.0)
    np.testing.assert_allclose(gradient[:2], [-600.0, 600.0])


def test_mini_batches_mix_sorted_examples():
    X, y = load_iris(return_X_y=True)  # sorted by class
    est = GridCRFClassifier(optimizer=Adam(batch_size=10), random_state=0)
    batches, _ = est._prepare(X, y, None, reset=True)
    assert max(batch.graph.n_examples for batch in batches) == 10
    assert np.mean([len(np.unique(batch.y)) for batch in batches]) > 2.5


def test_convergence_is_that_of_all_examples():
    # One image on which BP cannot converge, among single pixels on which it does; whichever comes last.
    rng = np.random.RandomState(0)
    X = [rng.normal(size=(8, 8, 1)), *rng.normal(size=(5, 1, 1, 1))]
    Y = [rng.randint(2, size=x.shape[:2]) for x in X]
    for seed in range(3):
        est = quick(
            inference=BP(max_iter=1, tol=1e-12), optimizer=Adam(batch_size=1), max_iter=3, random_state=seed
        )
        with pytest.warns(ConvergenceWarning):
            est.fit(X, Y)
        assert not est.converged_


class Bowl:
    """A steep quadratic objective of one batch."""

    def __init__(self, batch):
        self.batches = [batch]

    def __call__(self, w, batches=None):
        return float(5e3 * w @ w), 1e4 * w


@pytest.mark.parametrize("learning_rate, success", [(0.005, True), (10.0, False)])
def test_adam_is_never_worse_than_its_start(images, learning_rate, success):
    X, Y = images
    batches, _ = quick()._prepare(X, Y, None, reset=True)
    objective, start = Bowl(batches[0]), np.full(3, 0.01)
    result = Adam(learning_rate=learning_rate).minimize(
        objective,
        start,
        max_iter=300,
        tol=1e-6,
        callback=lambda w, value, **known: False,
        rng=np.random.RandomState(0),
    )
    assert result.success == success
    assert result.fun == objective(result.x)[0] <= objective(start)[0]
    assert (result.fun < objective(start)[0]) == success
    assert ("learning_rate" in result.message) != success


def test_lbfgs_does_not_take_bad_scaling_for_convergence():
    X, Y = make_binary_denoising(n_images=4, shape=(12, 14), noise=1.5, random_state=0)
    with pytest.warns(ConvergenceWarning, match="scale the features"):
        est = GridCRFClassifier().fit(1e8 * X, Y)
    assert not est.converged_


def test_lbfgs_starts_afresh_after_a_bad_direction(monkeypatch):
    runs, calls = [], []
    scipy_minimize = lbfgs.scipy_minimize

    def counted(*args, **kwargs):
        runs.append(len(calls))
        return scipy_minimize(*args, **kwargs)

    def objective(w):
        # In the first run the gradient turns wrong after a few steps, until the line search gives up.
        calls.append(w.copy())
        wrong = len(runs) == 1 and len(calls) > 5
        return float(np.sum((w - 1) ** 4)), (-1.0 if wrong else 1.0) * 4 * (w - 1) ** 3

    monkeypatch.setattr(lbfgs, "scipy_minimize", counted)
    result = LBFGS().minimize(
        objective, np.full(3, 5.0), max_iter=200, tol=1e-8, callback=lambda w, value, **known: False, rng=None
    )
    assert len(runs) > 1
    np.testing.assert_allclose(result.x, 1.0, atol=1e-2)
    assert result.success
    once = LBFGS(max_restarts=0)
    runs.clear()
    calls.clear()
    stopped = once.minimize(
        objective, np.full(3, 5.0), max_iter=200, tol=1e-8, callback=lambda w, value, **known: False, rng=None
    )
    assert np.abs(stopped.x - 1.0).max() > 0.1  # without a fresh start it stays where it gave up


def test_lbfgs_tells_where_it_is_stuck():
    """A gradient that is wrong by a little, as that of inference with a large `tol` is."""

    def objective(w):
        return float(np.sum((w - 1) ** 2)), np.sign(w - 1) * np.maximum(2 * np.abs(w - 1), 0.01)

    result = LBFGS().minimize(
        objective,
        np.array([0.0, -0.3, 2.7]),
        max_iter=200,
        tol=1e-5,
        callback=lambda w, value, **known: False,
        rng=None,
    )
    assert not result.success
    assert "no step lowers the objective, though its gradient is" in result.message


# scikit-learn


def test_clone_pickle_repr(images):
    X, Y = images
    est = quick(edge_features="contrast").fit(X, Y)
    assert clone(est).get_params()["inference__max_iter"] == 3
    again = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(again.predict_proba(X)[0], est.predict_proba(X)[0])
    assert "GridCRFClassifier" in est._repr_html_()
    assert "max_iter=3" in repr(est)


def test_nested_parameters_of_named_components():
    est = GridCRFClassifier().set_params(inference__max_iter=7, optimizer__memory=3)
    assert est.inference.max_iter == 7
    assert est.optimizer.memory == 3
    est = GridCRFClassifier().set_params(inference="mean_field", inference__max_iter=4)
    assert isinstance(est.inference, MeanField)
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        GridCRFClassifier().set_params(inference__nonsense=1)


def test_fit_leaves_parameters_alone(images):
    X, Y = images
    inference = TRW(max_iter=2)
    est = quick(inference=inference)
    before = {name: repr(value) for name, value in est.get_params().items()}
    est.fit(X, Y)
    assert {name: repr(value) for name, value in est.get_params().items()} == before
    assert est.inference is inference
    assert est.inference_ is not inference


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_grid_search_in_a_pipeline(images):
    X, Y = images
    pipe = make_pipeline(PixelWise(StandardScaler()), make_pipeline(quick(inference="trw")))
    grid = {
        "pipeline__gridcrfclassifier__alpha": [1e-3, 10.0],
        "pipeline__gridcrfclassifier__inference__max_iter": [1, 3],
        "pixelwise__transformer__with_mean": [True, False],
    }
    search = GridSearchCV(pipe, grid, cv=2).fit(X, Y)
    assert search.best_params_["pipeline__gridcrfclassifier__alpha"] == 1e-3
    assert search.score(X, Y) > 0.4
    for scorer in SCORERS.values():
        scores = cross_val_score(pipe, X, Y, cv=KFold(3), scoring=scorer)
        assert np.isfinite(scores).all()


def test_metadata_routing(images):
    X, Y = images
    import sklearn

    with sklearn.config_context(enable_metadata_routing=True):
        est = quick().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(est, {"alpha": [1e-2]}, cv=2, error_score="raise")
        search.fit(X, Y, sample_weight=np.array([1.0, 2, 1, 1, 1, 1]))
    direct = quick(alpha=1e-2).fit(X, Y, sample_weight=[1, 2, 1, 1, 1, 1])
    np.testing.assert_array_equal(search.best_estimator_.coef_, direct.coef_)


# Callbacks


class Recorder:
    """Counts tasks, and asks to stop, or interrupts, after a number of them."""

    def __init__(self, stop_after=None, interrupt_after=None):
        self.stop_after = stop_after
        self.interrupt_after = interrupt_after
        self.tasks, self.scores, self.torn_down = [], [], 0

    def setup(self, estimator, context):
        self.max_subtasks = context.max_subtasks

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.tasks.append(context.task_name)
        if context.task_name == "iteration":
            self.scores.append(fitted_estimator.score(X, y))
            if len(self.scores) == self.interrupt_after:
                raise KeyboardInterrupt
        return len(self.scores) == self.stop_after

    def teardown(self, estimator, context):
        self.torn_down += 1


def test_a_task_an_iteration(images):
    X, Y = images
    recorder = Recorder()
    est = quick().set_callbacks(recorder).fit(X, Y)
    assert recorder.tasks == ["iteration"] * est.n_iter_ + ["fit"]
    assert recorder.max_subtasks == est.max_iter
    assert recorder.scores[-1] == est.score(X, Y)
    assert recorder.torn_down == 1


def test_a_callback_can_stop_the_fit(images):
    X, Y = images
    recorder = Recorder(stop_after=2)
    est = quick(tol=1e-8).set_callbacks(recorder).fit(X, Y)  # no warning: it was asked for
    assert est.n_iter_ == 2
    assert not est.converged_


@pytest.mark.parametrize("optimizer, loss", TAKE_MANY)
def test_an_interrupted_fit_keeps_the_best_weights(images, optimizer, loss):
    X, Y = images
    recorder = Recorder(interrupt_after=3)
    est = quick(tol=1e-8, optimizer=optimizer, loss=loss, random_state=0).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.fit(X, Y)
    assert est.n_iter_ == 3
    assert recorder.torn_down == 1
    assert est.score(X, Y) == recorder.scores[int(np.argmin(est.train_error_curve_ or est.loss_curve_))]


def test_scikit_learn_callbacks(images, capsys):
    X, Y = images
    monitor = ScoringMonitor(scoring=SCORERS["mean_iou"])
    pipe = make_pipeline(PixelWise(StandardScaler()), quick().set_callbacks(monitor))
    pipe.set_callbacks(ProgressBar()).fit(X, Y)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "iteration"]
    assert len(rows) == pipe[-1].n_iter_
    assert "GridCRFClassifier" in capsys.readouterr().out


def test_verbose(images, capsys):
    X, Y = images
    est = quick(verbose=1).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    starts = [line for line in lines if "] start from the model without edges, iteration " in line]
    assert lines[: len(starts)] == starts and len(starts) > 0
    assert len(lines) == len(starts) + est.n_iter_
    assert lines[len(starts)].startswith("[GridCRFClassifier] iteration 1: objective ")
