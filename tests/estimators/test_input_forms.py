"""Forms of examples, labels and weights that estimators accept."""

import numpy as np
import pandas as pd
import pytest
from joblib import dump, load
from sklearn.base import clone
from small_images import flat, quick, ragged_images

from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising, make_potts
from skcrf.inference import BP, TRW
from skcrf.losses import LOSSES
from skcrf.optimizers import Subgradient
from skcrf.training import Evaluation


@pytest.fixture(scope="module")
def images():
    """Draw ragged images with three classes and two features."""
    return ragged_images()


# Containers, shapes and dtypes


def test_predictions_have_the_container_of_the_examples(images):
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


def test_series_of_images_are_accepted(images):
    X, Y = images
    est = quick().fit(pd.Series(X), pd.Series(Y))
    np.testing.assert_array_equal(est.coef_, quick().fit(X, Y).coef_)
    assert len(est.predict(pd.Series(X))) == len(X)


def test_labels_may_be_objects(images):
    X, Y = images
    est = quick().fit(X, [y.astype(object) for y in Y])
    assert est.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(est.coef_, quick().fit(X, Y).coef_)


def test_images_without_a_feature_axis_have_one_feature():
    X, Y = make_binary_denoising(n_images=3, shape=(6, 5), random_state=0)
    flat_axis, with_axis = quick().fit(X, Y), quick().fit(X[..., None], Y)
    assert flat_axis.n_features_in_ == 1
    np.testing.assert_array_equal(flat_axis.coef_, with_axis.coef_)


def test_single_precision_gives_the_weights_of_double_precision(images):
    X, Y = images
    single = [np.ascontiguousarray(x, dtype=np.float32) for x in X]
    double = quick(tol=1e-6, max_iter=200).fit([x.astype(np.float64) for x in single], Y)
    found = quick(tol=1e-6, max_iter=200).fit(single, Y)
    assert found.converged_ and double.converged_
    # Gradients are in float32, so that the last steps differ; potentials are in float64.
    np.testing.assert_allclose(found.loss_curve_[-1], double.loss_curve_[-1], rtol=1e-8)
    np.testing.assert_allclose(found.coef_, double.coef_, rtol=1e-3, atol=1e-4)


def test_memory_maps_are_accepted(images, tmp_path):
    X, Y = images
    dump((X, Y), tmp_path / "images.joblib")
    mapped = load(tmp_path / "images.joblib", mmap_mode="r")
    np.testing.assert_array_equal(quick().fit(*mapped).coef_, quick().fit(X, Y).coef_)


@pytest.fixture
def evaluated(monkeypatch):
    """Record the batches that a fit evaluates."""
    batches, evaluate = [], Evaluation.__call__

    def recorded(self, batch):
        batches.append(batch)
        return evaluate(self, batch)

    monkeypatch.setattr(Evaluation, "__call__", recorded)
    return batches


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edge_features", ["bias", "contrast"])
@pytest.mark.parametrize("container", [list, np.array, tuple])
def test_fit_does_not_copy_the_features_of_large_images(evaluated, dtype, edge_features, container):
    X, Y = make_potts(n_images=3, shape=(50, 50), random_state=0)
    X = container([np.ascontiguousarray(x, dtype=dtype) for x in X])
    quick(edge_features=edge_features, max_iter=1).fit(X, Y, sample_weight=[1.0, 2.0, 1.0])
    assert {int(batch.index[0]) for batch in evaluated} == {0, 1, 2}
    for batch in evaluated:
        x = X[batch.index[0]]
        assert batch.X.dtype == dtype
        assert np.shares_memory(batch.X, x)
        assert np.shares_memory(batch.without_edges.X, x)
    assert len({id(batch.graph) for batch in evaluated}) == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fit_does_not_copy_tables(evaluated):
    X = np.random.default_rng(0).normal(size=(5000, 2))
    quick(max_iter=1).fit(X, np.arange(5000) % 2)
    assert len({int(batch.index[0]) for batch in evaluated}) > 1
    assert all(np.shares_memory(batch.X, X) for batch in evaluated)


# Labels


def test_labels_may_be_strings(images):
    X, Y = images
    names = np.array(["sky", "grass", "road"])
    est, by_name = quick().fit(X, Y), quick().fit(X, [names[y] for y in Y])
    assert by_name.classes_.tolist() == ["grass", "road", "sky"]
    order = [1, 2, 0]  # of the sorted names
    np.testing.assert_allclose(by_name.coef_, est.coef_[order], rtol=1e-6, atol=1e-8)
    assert by_name.predict(X)[0].dtype.kind == "U"
    assert by_name.score(X, [names[y] for y in Y]) == pytest.approx(est.score(X, Y), abs=0.02)


#: Subgradient steps never converge.
NEVER_CONVERGES = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


NOT_SMOOTH = {loss for loss in LOSSES if not LOSSES[loss]().is_smooth}


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(loss, marks=[NEVER_CONVERGES] if loss in NOT_SMOOTH else [])
        for loss in LOSSES
        if LOSSES[loss]().takes_hidden_labels
    ],
)
def test_all_forms_of_hidden_labels_give_the_same_fit(images, loss, seed):
    X, Y = images
    optimizer = Subgradient(best="last") if loss in NOT_SMOOTH else "lbfgs"
    params = {"loss": loss, "inference": BP(max_iter=5), "optimizer": optimizer}
    rng = np.random.RandomState(seed)
    hidden = [rng.uniform(size=y.shape) < 0.3 for y in Y]
    masked = [np.ma.masked_array(y, mask) for y, mask in zip(Y, hidden, strict=True)]
    by_mask = quick(**params).fit(X, masked)
    marked = [np.where(mask, -1, y) for y, mask in zip(Y, hidden, strict=True)]
    by_value = quick(**params, missing_label=-1).fit(X, marked)
    np.testing.assert_array_equal(by_value.coef_, by_mask.coef_)
    assert by_value.classes_.tolist() == [0, 1, 2]
    float_nan = quick(**params, missing_label=np.float32("nan"))
    nans = [np.where(mask, np.nan, y) for y, mask in zip(Y, hidden, strict=True)]
    by_nan = quick(**params, missing_label=np.nan).fit(X, nans)
    np.testing.assert_array_equal(by_nan.coef_, by_mask.coef_)
    np.testing.assert_array_equal(float_nan.fit(X, nans).coef_, by_mask.coef_)
    known = by_mask.score(X, masked)
    right = flat([p == y for p, y in zip(by_mask.predict(X), Y, strict=True)])[~flat(hidden)]
    assert known == pytest.approx(right.mean())


def test_examples_without_labels_do_not_change_the_fit(images):
    X, Y = images
    unlabelled = np.ma.masked_all((4, 4), dtype=int)
    with_one_more = quick().fit([*X, np.zeros((4, 4, 2))], [*Y, unlabelled])
    np.testing.assert_array_equal(with_one_more.coef_, quick().fit(X, Y).coef_)


def test_minus_one_is_a_class_by_default():
    X, Y = make_binary_denoising(n_images=3, shape=(6, 5), random_state=0)
    assert quick().fit(X, 2 * Y - 1).classes_.tolist() == [-1, 1]


def test_classes_may_be_missing_in_the_training_set(images):
    X, Y = images
    few = [np.minimum(y, 1) for y in Y]
    est = quick(classes=[2, 0, 1]).fit(X, few)
    assert est.classes_.tolist() == [0, 1, 2]
    assert est.predict_proba(X)[0].shape == (6, 7, 3)
    assert quick().fit(X, few).score(X, Y) < 1  # classes unseen in training are errors


def test_a_single_class_is_predicted_with_probability_one(images):
    X, Y = images
    ones = [np.full(y.shape, "only") for y in Y]
    est = quick().fit(X, ones)
    assert (est.predict(X)[0] == "only").all()
    np.testing.assert_array_equal(est.predict_proba(X)[0], 1.0)


# Weights


def test_integer_sample_weights_are_repetitions(images):
    X, Y = images
    est = quick(alpha=0.1, tol=1e-7, max_iter=1000)
    weighted = clone(est).fit(X, Y, sample_weight=[2, 1, 0, 1, 3, 1])
    repeat = [0, 0, 1, 3, 4, 4, 4, 5]
    repeated = clone(est).fit([X[i] for i in repeat], [Y[i] for i in repeat])
    np.testing.assert_allclose(weighted.edge_coef_, repeated.edge_coef_, atol=1e-5)


def test_class_weights_favour_a_class(images):
    X, Y = images
    favoured = quick(class_weight={0: 50.0}).fit(X, Y)
    plain = quick().fit(X, Y)
    assert np.mean(flat(favoured.predict(X)) == 0) > np.mean(flat(plain.predict(X)) == 0)


def test_integer_sample_weights_are_repetitions_in_batches_of_any_size():
    X, Y = make_potts(n_images=4, shape=(6, 5), random_state=0)
    big, labels = make_potts(n_images=1, shape=(50, 50), random_state=1)
    X, Y = [*X, *big], [*Y, *labels]
    options = {"inference": TRW(max_iter=2), "tol": 1e-5, "max_iter": 300}
    weighted = GridCRFClassifier(**options).fit(X, Y, sample_weight=[1, 3, 1, 2, 2])
    repeated = [0, 1, 1, 1, 2, 3, 3, 4, 4]
    plain = GridCRFClassifier(**options).fit([X[i] for i in repeated], [Y[i] for i in repeated])
    np.testing.assert_allclose(weighted.coef_, plain.coef_, rtol=1e-3)
    np.testing.assert_allclose(weighted.loss_curve_[-1], plain.loss_curve_[-1], rtol=1e-6)
