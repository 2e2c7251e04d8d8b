"""PixelWise and FourierFeatures: scikit-learn's checks, results on images and tables, pipelines."""

import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.callback import CallbackSupportMixin, ProgressBar, with_callbacks
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcrf.preprocessing import FourierFeatures, PixelWise


@parametrize_with_checks(
    [
        PixelWise(),
        PixelWise(StandardScaler()),
        PixelWise(PCA()),
        FourierFeatures(),
        FourierFeatures(position=False, scale=2.0),
    ]
)
def test_sklearn_checks(estimator, check):
    check(estimator)


def make_images(n_features=3, dtype=np.float64, seed=0):
    rng = np.random.RandomState(seed)
    shapes = [(4, 5), (3, 3), (1, 6)]
    return [rng.normal(3, 2, size=(*shape, n_features)).astype(dtype) for shape in shapes]


def stack_pixels(images):
    return np.concatenate([image.reshape(-1, image.shape[2]) for image in images])


@pytest.mark.parametrize(
    "inner",
    [
        StandardScaler(),
        PCA(2),
        PolynomialFeatures(2),
        Normalizer(),
        KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"),
    ],
    ids=repr,
)
def test_pixelwise_equals_transformer_on_all_pixels(inner):
    X = make_images()
    out = PixelWise(inner).fit_transform(X)
    expected = clone(inner).fit_transform(stack_pixels(X))  # sparse for KBinsDiscretizer
    expected = expected.toarray() if hasattr(expected, "toarray") else expected
    assert [image.shape[:2] for image in out] == [image.shape[:2] for image in X]
    assert_allclose(stack_pixels(out), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", [lambda: PixelWise(StandardScaler()), FourierFeatures])
def test_output_container_is_that_of_input(make):
    images = make_images()
    equal = np.stack([images[0], images[0] + 1])
    objects = np.empty(3, dtype=object)
    objects[:] = images
    as_list = make().fit_transform(images)
    assert isinstance(as_list, list)
    as_objects = make().fit_transform(objects)
    assert as_objects.dtype == object and as_objects.shape == (3,)
    for a, b in zip(as_list, as_objects, strict=True):
        assert_array_equal(a, b)
    as_array = make().fit_transform(equal)
    assert isinstance(as_array, np.ndarray) and as_array.shape[:3] == (2, 4, 5)
    assert isinstance(make().fit_transform(list(equal)), list)
    assert_array_equal(as_array, make().fit_transform(list(equal)))


def test_grey_images_get_one_feature():
    X = [image[..., 0] for image in make_images()]
    (out, *_) = PixelWise(StandardScaler()).fit_transform(X)
    assert out.shape == (4, 5, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [lambda: PixelWise(StandardScaler()), PixelWise, FourierFeatures])
def test_dtype_is_preserved(make, dtype):
    assert {image.dtype for image in make().fit_transform(make_images(dtype=dtype))} == {np.dtype(dtype)}


def test_input_is_not_changed():
    X = make_images()
    before = [image.copy() for image in X]
    PixelWise(StandardScaler(copy=False)).fit(X)
    FourierFeatures().fit_transform(X)
    for a, b in zip(X, before, strict=True):
        assert_array_equal(a, b)


def test_nested_parameters_do_not_change_the_given_transformer():
    scaler = StandardScaler()
    est = PixelWise(scaler).set_params(transformer__with_mean=False).fit(make_images())
    assert est.transformer is scaler and not hasattr(scaler, "scale_")
    assert est.transformer_.with_mean is False
    assert stack_pixels(est.transform(make_images())).mean() > 1


def test_passthrough_leaves_features_unchanged():
    X = make_images()
    est = PixelWise().fit(X)
    for a, b in zip(X, est.transform(X), strict=True):
        assert_array_equal(a, b)
    assert list(est.get_feature_names_out()) == ["x0", "x1", "x2"]


def test_partial_fit_equals_fit_to_all_images():
    X = make_images()
    whole = PixelWise(StandardScaler()).fit(X)
    parts = PixelWise(StandardScaler()).partial_fit(X[:1]).partial_fit(X[1:])
    assert_allclose(parts.transformer_.mean_, whole.transformer_.mean_, rtol=1e-12)
    assert_allclose(parts.transformer_.var_, whole.transformer_.var_, rtol=1e-12)
    with pytest.raises(ValueError, match=r"X\[0\] must have 3 features per pixel, as in fit, got 2"):
        parts.partial_fit(make_images(n_features=2))


def test_inverse_transform_restores_images_and_tables():
    X = make_images()
    est = PixelWise(MinMaxScaler()).fit(X)
    back = est.inverse_transform(est.transform(X))
    assert isinstance(back, list)
    for a, b in zip(X, back, strict=True):
        assert_allclose(a, b, rtol=1e-12)
    rows = stack_pixels(X)
    assert_allclose(est.inverse_transform(est.transform(rows)), rows, rtol=1e-12)


@pytest.mark.parametrize(
    "method, has, has_not",
    [
        ("partial_fit", StandardScaler(), Normalizer()),
        ("inverse_transform", StandardScaler(), Normalizer()),
        ("get_feature_names_out", StandardScaler(), FunctionTransformer()),
    ],
)
def test_methods_are_those_of_the_inner_transformer(method, has, has_not):
    assert hasattr(PixelWise(has), method)
    assert not hasattr(PixelWise(has_not), method)
    assert hasattr(PixelWise(has).fit(make_images()), method)
    assert not hasattr(PixelWise(has_not).fit(make_images()), method)


@pytest.mark.parametrize("transformer", [None, 3, StandardScaler, "scale"])
def test_invalid_transformer_is_refused(transformer):
    with pytest.raises(TypeError, match="transformer must be a transformer or 'passthrough'"):
        PixelWise(transformer).fit(make_images())


@pytest.mark.parametrize("make", [lambda: PixelWise(StandardScaler()), FourierFeatures])
def test_errors_give_the_index_of_the_image(make):
    X = make_images()
    est = make().fit(X)
    with pytest.raises(ValueError, match=r"X\[0\] must have 3 features per pixel, as in fit, got 2"):
        est.transform(make_images(n_features=2))
    with pytest.raises(ValueError, match=r"X\[2\] must have 3 features per pixel, as in X\[0\], got 2"):
        make().fit([*X[:2], X[2][..., :2]])
    X[1][0, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"X\[1\] contains NaN"):
        make().fit(X)


def test_table_and_images_give_the_same_rows():
    X = make_images()
    est = PixelWise(StandardScaler()).fit(X)
    assert_allclose(est.transform(stack_pixels(X)), stack_pixels(est.transform(X)), rtol=1e-12)
    fourier = FourierFeatures(position=False).fit(X)
    assert_allclose(fourier.transform(stack_pixels(X)), stack_pixels(fourier.transform(X)), rtol=1e-12)


@pytest.mark.parametrize("transformer", [PixelWise(StandardScaler()), FourierFeatures(position=False)])
def test_set_output_applies_to_tables_only(transformer):
    pd = pytest.importorskip("pandas")
    X = make_images()
    table = pd.DataFrame(stack_pixels(X), columns=["red", "green", "blue"])
    plain = clone(transformer).fit(table)
    est = clone(transformer).set_output(transform="pandas").fit(table)
    frame = est.transform(table)
    assert list(frame.columns) == list(est.get_feature_names_out())
    assert_array_equal(frame.to_numpy(), plain.transform(table))
    # Images stay arrays with set_output and with the global setting.
    out = est.fit_transform(X)
    assert isinstance(out, list) and all(type(image) is np.ndarray for image in out)
    assert not hasattr(est, "feature_names_in_")
    with sklearn.config_context(transform_output="pandas"):
        assert all(type(image) is np.ndarray for image in plain.fit_transform(X))


def test_fourier_features_of_one_pixel():
    est = FourierFeatures(position=False, scale=2.0).fit([np.zeros((1, 1, 2))])
    a, b = 0.3, -0.4
    (out,) = est.transform([[[[a, b]]]])
    sums = np.array([0, a, b, a + b])
    assert_allclose(out[0, 0], [*np.sin(2 * sums), *np.cos(2 * sums)], rtol=1e-12)
    assert list(est.get_feature_names_out(["a", "b"])) == [
        *["sin(0)", "sin(a)", "sin(b)", "sin(a + b)"],
        *["cos(0)", "cos(a)", "cos(b)", "cos(a + b)"],
    ]


def test_fourier_features_of_positions():
    X = [np.zeros((3, 5)), np.zeros((1, 2))]
    est = FourierFeatures().fit(X)
    assert list(est.get_feature_names_out()[[2, 4]]) == ["sin(row)", "sin(column)"]
    tall, flat = est.transform(X)
    assert_allclose(tall[:, 1, 2], np.sin([0, 0.5, 1]), rtol=1e-12)
    assert_allclose(tall[1, :, 4], np.sin([0, 0.25, 0.5, 0.75, 1]), rtol=1e-12)
    assert_allclose(flat[0, :, 4], np.sin([0, 1]), rtol=1e-12)
    with pytest.raises(ValueError, match="X must be images, as in fit, got a table without positions"):
        est.transform(np.zeros((4, 1)))
    # RGB and two positions make 64 features, as in D13.
    assert FourierFeatures().fit_transform(make_images())[0].shape == (4, 5, 64)


def test_too_many_fourier_features_are_refused():
    X = [np.zeros((2, 2, 10))]
    assert FourierFeatures(position=False, max_features=2048).fit_transform(X)[0].shape == (2, 2, 2048)
    with pytest.raises(ValueError, match=r"at least 2 \* 2\*\*12 for 10 features per pixel and 2 pos"):
        FourierFeatures().fit(X)
    with pytest.raises(ValueError, match=r"max_features must be .* 10 features per pixel, got 2047"):
        FourierFeatures(position=False, max_features=2047).fit(X)
    with pytest.raises(TypeError, match="scale must be an instance of"):
        FourierFeatures(scale="big").fit(X)


class MeanThreshold(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Classifier of pixels by the sum of their features, in place of a random field."""

    def __init__(self, bias=0.0):
        self.bias = bias

    @with_callbacks
    def fit(self, X, Y):
        context = self._init_callback_context()
        context.call_on_fit_task_begin(estimator=self, X=X, y=Y)
        self.classes_ = np.array([0, 1])
        context.call_on_fit_task_end(estimator=self, X=X, y=Y)
        return self

    def predict(self, X):
        return [(np.sum(x, axis=2) > self.bias).astype(int) for x in X]

    def score(self, X, Y):
        return np.mean([np.mean(p == y) for p, y in zip(self.predict(X), Y, strict=True)])


def test_pixelwise_in_pipeline_and_search():
    X = make_images() + make_images(seed=1)
    center = stack_pixels(X).mean(axis=0)
    Y = [(np.sum(x - center, axis=2) > 0).astype(int) for x in X]
    pipeline = make_pipeline(PixelWise(StandardScaler()), MeanThreshold())
    assert pipeline.fit(X, Y).score(X, Y) > 0.9
    search = GridSearchCV(pipeline, {"pixelwise__transformer__with_mean": [True, False]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"pixelwise__transformer__with_mean": True}


def test_progress_bar_shows_transformers(capsys):
    pytest.importorskip("rich")
    X = make_images()
    pipeline = make_pipeline(PixelWise(StandardScaler()), FourierFeatures(), MeanThreshold())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline.set_callbacks(ProgressBar()).fit(X, [np.zeros(x.shape[:2], dtype=int) for x in X])
    shown = capsys.readouterr().out
    assert "PixelWise" in shown and "FourierFeatures" in shown


class Recorder:
    """Callback that records its calls."""

    def __init__(self):
        self.events = []

    def setup(self, estimator, context):
        self.events.append("setup")

    def on_fit_task_begin(self, estimator, context, *, X=None):
        self.events.append(("begin", len(X)))

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.events.append(("end", fitted_estimator.n_features_in_))

    def teardown(self, estimator, context):
        self.events.append("teardown")


@pytest.mark.parametrize("make", [lambda: PixelWise(StandardScaler()), FourierFeatures])
def test_callback_hooks_are_called_in_order(make):
    recorder = Recorder()
    make().set_callbacks(recorder).fit(make_images())
    assert recorder.events == ["setup", ("begin", 3), ("end", 3), "teardown"]
    recorder.events.clear()
    with pytest.raises(ValueError, match="X must hold at least one image, got none"):
        make().set_callbacks(recorder).fit([])
    assert recorder.events[-1] == "teardown"
