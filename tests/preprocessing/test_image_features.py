"""Features of pixels from the whole image, and stacks of features."""

import pickle
import sys
import warnings

import numpy as np
import pytest
from joblib import parallel_config
from lazy_sequences import LazyList
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.callback import ProgressBar
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from small_images import quick

from skcrf.preprocessing import (
    FeatureStack,
    FilterBank,
    FourierFeatures,
    HOGFeatures,
    PixelPositions,
    PixelWise,
    make_feature_stack,
)

FEATURES = {
    "positions": lambda: PixelPositions(degree=2),
    "HOG": HOGFeatures,
    "filter bank": lambda: FilterBank(sigmas=[1.0, 3.0]),
    "stack": lambda: make_feature_stack("passthrough", make_pipeline(FilterBank([1.0]), PixelWise(PCA(2)))),
}
every = pytest.mark.parametrize("make", FEATURES.values(), ids=FEATURES)


@parametrize_with_checks([PixelPositions(), HOGFeatures(), FilterBank(sigmas=[1.0])])
def test_sklearn_checks(estimator, check):
    check(estimator)


def colour_images(dtype=np.float64, n_channels=3, shapes=((20, 13), (9, 30), (1, 1), (1, 6))):
    rng = np.random.default_rng(0)
    return [rng.random((*shape, n_channels)).astype(dtype) for shape in shapes]


@every
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
@pytest.mark.parametrize("n_channels", [1, 3])
def test_images_keep_size_container_and_type(make, dtype, n_channels):
    X = [np.round(100 * x).astype(dtype) for x in colour_images(np.float64, n_channels)]
    est = make().fit(X)
    out = est.transform(X)
    names = est.get_feature_names_out()
    assert isinstance(out, list)
    assert [x.shape for x in out] == [(*x.shape[:2], len(names)) for x in X]
    assert {x.dtype for x in out} == {np.dtype(np.float64 if dtype == np.float64 else np.float32)}
    assert all(np.isfinite(x).all() for x in out)
    assert len(set(names)) == len(names)
    if n_channels == 1:
        grey = est.transform([x[:, :, 0] for x in X])
        for one, other in zip(grey, out, strict=True):
            assert_array_equal(one, other)
    equal = np.stack([X[0], X[0]])
    assert_array_equal(est.transform(equal), np.stack([out[0]] * 2))
    objects = np.empty(len(X), dtype=object)
    objects[:] = X
    assert est.transform(objects).dtype == object
    for one, other in zip(est.transform(LazyList(X)), out, strict=True):
        assert_array_equal(one, other)
    again = pickle.loads(pickle.dumps(est))
    for one, other in zip(again.transform(X), clone(est).fit_transform(X), strict=True):
        assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@every
def test_errors_name_the_image(make):
    X = colour_images()
    est = make().fit(X)
    with pytest.raises(ValueError, match=r"X\[0\] must have 3 features per pixel, as in fit, got 2"):
        est.transform([x[:, :, :2] for x in X])
    X[1] = X[1].copy()
    X[1][0, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"X\[1\] contains NaN"):
        make().fit(X)


@pytest.mark.parametrize(
    "est, message",
    [
        (PixelPositions(degree=0), "degree == 0, must be >= 1"),
        (HOGFeatures(orientations=0), "orientations == 0, must be >= 1"),
        (HOGFeatures(pixels_per_cell=0), "pixels_per_cell == 0, must be >= 1"),
        (HOGFeatures(block_norm="L3"), "block_norm must be one of .* got 'L3'"),
        (FilterBank(sigmas=[]), "sigmas must be a list of numbers above 0"),
        (FilterBank(sigmas=[0.0]), "sigmas must be a list of numbers above 0"),
        (FilterBank(sigmas="wide"), "sigmas must be a list of numbers above 0"),
        (FilterBank(intensity=False, edges=False, texture=False), "intensity, edges or texture must be True"),
        (FeatureStack([("a", "drop")]), "transformer_list must hold at least one transformer"),
    ],
    ids=str,
)
def test_bad_parameters_are_refused(est, message):
    with pytest.raises(ValueError, match=message):
        est.fit(colour_images())


def test_positions_are_scaled_to_the_unit_square():
    (out,) = PixelPositions(degree=2).fit_transform([np.zeros((3, 5))])
    row, column = np.meshgrid([0, 0.5, 1], [0, 0.25, 0.5, 0.75, 1], indexing="ij")
    expected = [row, column, row**2, row * column, column**2]
    assert_allclose(out, np.stack(expected, axis=2), rtol=1e-15)


def test_hog_at_the_centre_of_a_block_is_that_of_scikit_image():
    hog = pytest.importorskip("skimage.feature").hog
    (image,) = colour_images(shapes=[(25, 33)])
    est = HOGFeatures().fit([image])
    assert len(est.get_feature_names_out()) == est.transform([image])[0].shape[2] == 36
    odd = HOGFeatures(pixels_per_cell=3, cells_per_block=1).fit_transform([image])[0]
    blocks = hog(
        np.pad(image, [(0, 2), (0, 0), (0, 0)], mode="edge"),
        pixels_per_cell=(3, 3),
        cells_per_block=(1, 1),
        feature_vector=False,
        channel_axis=2,
    )
    assert_allclose(odd[1::3, 1::3], blocks.reshape(9, 11, 9)[:8], rtol=1e-10)


def test_filter_bank_responds_to_slopes_and_curvature():
    row, column = np.meshgrid(np.arange(61.0), np.arange(61.0), indexing="ij")
    image = np.stack([3 * row + 4 * column, (row - 30) ** 2], axis=2)
    (out,) = FilterBank(sigmas=[2.0]).fit_transform([image])
    slope, curved = out[30, 30, :4], out[30, 30, 4:]
    assert_allclose(slope, [7 * 30, 2.0 * 5, 0, 0], rtol=0.02, atol=1e-6)
    assert_allclose(curved[[2, 3]], [4 * 2, 0], rtol=0.05, atol=1e-6)
    assert curved[1] < 1e-9


def test_missing_scikit_image_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage", None)
    monkeypatch.setitem(sys.modules, "skimage.feature", None)
    with pytest.raises(ImportError, match=r"HOGFeatures requires scikit-image.*skcrf\[image\]"):
        HOGFeatures().fit(colour_images())


# Stacks


def test_stack_has_the_features_of_its_transformers_in_order():
    X = colour_images()
    stack = make_feature_stack("passthrough", FourierFeatures(), HOGFeatures())
    out = stack.fit_transform(X)
    parts = [X, FourierFeatures().fit_transform(X), HOGFeatures().fit_transform(X)]
    for found, *expected in zip(out, *parts, strict=True):
        assert_array_equal(found, np.concatenate(expected, axis=2))
    assert stack.get_feature_names_out()[3] == "fourierfeatures__sin(0)"
    assert stack.n_features_in_ == 3
    with parallel_config(backend="threading"):
        threaded = clone(stack).set_params(n_jobs=2).fit_transform(X)
    for one, other in zip(threaded, out, strict=True):
        assert_array_equal(one, other)
    weighted = FeatureStack([("a", "passthrough"), ("b", PixelPositions())], transformer_weights={"a": 2.0})
    found = weighted.fit_transform(X)[0]
    assert_array_equal(found[:, :, :3], 2 * X[0])
    assert stack.set_params(fourierfeatures="drop").fit_transform(X)[0].shape == (20, 13, 39)


def test_stack_joins_tables_as_feature_union_does():
    pd = pytest.importorskip("pandas")
    rows = np.random.default_rng(0).random((6, 2))
    stack = FeatureStack([("a", PixelWise(StandardScaler())), ("b", PixelPositions())])
    assert stack.fit_transform(rows).shape == (6, 4)
    frame = pd.DataFrame(rows, columns=["u", "v"])
    found = stack.set_output(transform="pandas").fit_transform(frame)
    assert list(found.columns) == ["a__u", "a__v", "b__row", "b__column"]
    assert isinstance(stack.fit_transform(colour_images()), list)


class Cropped(PixelPositions):
    def transform(self, X):
        return [x[1:] for x in super().transform(X)]


def test_transformers_that_change_the_size_are_refused():
    with pytest.raises(ValueError, match=r"transformer 'crop' must keep the size .* in X\[0\]"):
        FeatureStack([("a", "passthrough"), ("crop", Cropped())]).fit_transform(colour_images())


def test_parameters_of_a_stack_are_searched_through_a_pipeline(capsys):
    X = colour_images(shapes=[(6, 5), (5, 6), (4, 4), (5, 5)])
    Y = [(x.mean(axis=2) > 0.5).astype(int) for x in X]
    stack = make_feature_stack("passthrough", PixelPositions())
    pipe = make_pipeline(stack, quick(max_iter=3, tol=1.0))
    choices = {"pixelpositions__degree": [1, 2], "passthrough": ["drop", "passthrough"]}
    grid = {f"featurestack__{name}": values for name, values in choices.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = GridSearchCV(pipe, grid, cv=2).fit(X, Y)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        pipe.set_callbacks(ProgressBar()).fit(X, Y)
    assert "FeatureStack" in capsys.readouterr().out
