"""Displays: the arrays, titles and legends that they draw."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcrf.plotting import LossCurveDisplay, MarginalsDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


class RandomMarginals(ClassifierMixin, BaseEstimator):
    """Classifier with random marginals, in place of a random field."""

    def __init__(self, n_classes=2, missing_label=None):
        self.n_classes = n_classes
        self.missing_label = missing_label

    def fit(self, X, Y):
        self.classes_ = np.array(["a", "b", "c", "d"])[: self.n_classes]
        self.loss_curve_ = [0.9, 0.5, 0.4]
        return self

    def predict_proba(self, X):
        return [
            np.random.RandomState(i).dirichlet(np.ones(self.n_classes), x.shape[:2]) for i, x in enumerate(X)
        ]

    def predict(self, X):
        return [self.classes_[p.argmax(axis=2)] for p in self.predict_proba(X)]


def make_case(n_classes=2, n_images=3, n_features=1):
    rng = np.random.RandomState(0)
    X = [rng.uniform(size=(4 + i, 5, n_features)) for i in range(n_images)]
    est = RandomMarginals(n_classes, missing_label="?").fit(X, None)
    Y = [rng.choice(est.classes_, size=x.shape[:2]) for x in X]
    return est, X, Y


def shown(display):
    return [[ax.images[0].get_array() for ax in row] for row in display.axes_]


def test_panels_of_two_classes():
    est, X, Y = make_case()
    display = MarginalsDisplay.from_estimator(est, X, Y)
    display.figure_.canvas.draw()  # computes the layout, which warns if it does not fit
    assert display.axes_.shape == (3, 4)
    titles = [ax.get_title() for ax in display.axes_[0]]
    assert titles[:2] == ["Input", "True labels"] and titles[3] == "P(y = b)"
    for i, (image, labels, predicted, marginal) in enumerate(shown(display)):
        assert_array_equal(image, X[i][..., 0])
        assert_array_equal(labels, Y[i] == "b")
        assert_array_equal(predicted, est.predict(X)[i] == "b")
        assert_array_equal(marginal, est.predict_proba(X)[i][..., 1])
        wrong = np.mean(est.predict(X)[i] != Y[i])
        assert f"{wrong:.1%} wrong" in display.axes_[i, 2].get_title()
    assert (display.colorbar_.vmin, display.colorbar_.vmax) == (0, 1)
    assert [text.get_text() for text in display.legend_.get_texts()] == ["a", "b"]


def test_panels_of_four_classes():
    est, X, Y = make_case(n_classes=4, n_features=3)
    display = MarginalsDisplay.from_estimator(est, X, Y, n_images=2)
    assert display.axes_.shape == (2, 4)
    assert display.axes_[0, 3].get_title() == "Largest marginal"
    image, labels, _, marginal = shown(display)[1]
    assert_array_equal(image, X[1])
    assert_array_equal(est.classes_[labels], Y[1])
    assert_array_equal(marginal, est.predict_proba(X)[1].max(axis=2))
    assert (display.colorbar_.vmin, display.colorbar_.vmax) == (0.25, 1)


def test_target_chooses_the_marginal():
    est, X, _ = make_case(n_classes=4)
    display = MarginalsDisplay.from_estimator(est, X, target="c", n_images=1)
    assert display.axes_[0, -1].get_title() == "P(y = c)"
    assert_array_equal(shown(display)[0][-1], est.predict_proba(X)[0][..., 2])
    with pytest.raises(ValueError, match=r"target must be one of the classes \[.*\], got 'z'"):
        MarginalsDisplay.from_estimator(est, X, target="z")


def test_labels_and_marginals_have_the_same_colours():
    est, X, _ = make_case()
    for target in ("a", "b"):
        display = MarginalsDisplay.from_estimator(est, X, target=target, cmap="viridis")
        labels, marginals = display.axes_[0, 1].images[0], display.axes_[0, 2].images[0]
        index = list(est.classes_).index(target)
        assert_allclose(labels.to_rgba(np.array([[index]])), marginals.to_rgba(np.array([[1.0]])), rtol=1e-12)


def test_panels_without_true_labels():
    est, X, _ = make_case()
    display = MarginalsDisplay.from_estimator(est, X)
    assert [ax.get_title() for ax in display.axes_[0]] == ["Input", "Predicted", "P(y = b)"]


@pytest.mark.parametrize("how", ["mask", "value"])
def test_hidden_labels_are_hatched(how):
    est, X, Y = make_case()
    hidden = [np.zeros(y.shape, dtype=bool) for y in Y]
    hidden[0][1:3] = True
    hidden[2][:] = True
    given = [np.ma.masked_array(y, h) for y, h in zip(Y, hidden, strict=True)]
    if how == "value":
        given = [np.where(h, "?", y) for y, h in zip(Y, hidden, strict=True)]
    display = MarginalsDisplay.from_estimator(est, X, given)
    for i, row in enumerate(shown(display)):
        assert_array_equal(np.ma.getmaskarray(row[1]), hidden[i])
    assert [bool(ax.patch.get_hatch()) for ax in display.axes_[:, 1]] == [True, False, True]
    assert display.legend_.get_texts()[-1].get_text() == "hidden"
    wrong = np.mean((est.predict(X)[0] != Y[0])[~hidden[0]])
    assert display.axes_[0, 2].get_title() == f"Predicted, {wrong:.1%} wrong"
    assert display.axes_[2, 2].get_title() == ""


def test_defaults_of_from_predictions():
    _, X, _ = make_case()
    proba = [np.full((*x.shape[:2], 2), 0.5) for x in X]
    proba[0][...] = [0.1, 0.9]
    Y = [np.ones(x.shape[:2], dtype=int) for x in X]
    display = MarginalsDisplay.from_predictions(X, proba, Y)
    assert_array_equal(display.classes, [0, 1])
    assert display.axes_[0, 2].get_title() == "Predicted, 0.0% wrong"
    assert display.axes_[1, 2].get_title() == "100.0% wrong"


def test_many_classes_have_distinct_colours():
    X = np.random.RandomState(0).normal(size=(2, 4, 5))
    proba = np.random.RandomState(0).dirichlet(np.ones(12), size=(2, 4, 5))
    display = MarginalsDisplay.from_predictions(X, proba, Y_pred=proba.argmax(axis=3))
    colours = {handle.get_facecolor() for handle in display.legend_.legend_handles}
    assert len(colours) == 12


@pytest.mark.parametrize("n_features, scale", [(1, 50), (3, 255), (3, -2)])
def test_inputs_are_scaled(n_features, scale):
    _, X, _ = make_case(n_features=n_features)
    proba = [np.full((*x.shape[:2], 2), 0.5) for x in X]
    images = [row[0] for row in shown(MarginalsDisplay.from_predictions([scale * x for x in X], proba))]
    assert min(image.min() for image in images) >= 0 and max(image.max() for image in images) <= 1
    if scale == 255:
        assert_allclose(images[1], X[1], rtol=1e-12)


def test_display_in_a_given_figure():
    est, X, Y = make_case()
    left, right = plt.figure(figsize=(8, 4), layout="constrained").subfigures(1, 2)
    display = MarginalsDisplay.from_estimator(est, X, Y, fig=left)
    assert display.figure_ is left and not right.axes
    # Titles of narrow panels are smaller.
    narrow = display.axes_[0, 0].title.get_fontsize()
    assert narrow < MarginalsDisplay.from_estimator(est, X, Y).axes_[0, 0].title.get_fontsize()


def test_display_of_a_pipeline():
    est, X, Y = make_case()
    display = MarginalsDisplay.from_estimator(make_pipeline(FunctionTransformer(), est).fit(X, Y), X, Y)
    assert_array_equal(display.classes, est.classes_)


def test_invalid_input_is_refused():
    est, X, Y = make_case()
    proba = est.predict_proba(X)
    with pytest.raises(NotFittedError):
        MarginalsDisplay.from_estimator(RandomMarginals(), X)
    with pytest.raises(ValueError, match="Y_proba must have 3 examples, as X has, got 2"):
        MarginalsDisplay.from_predictions(X, proba[:2])
    with pytest.raises(ValueError, match=r"Y_proba\[1\] must have shape"):
        MarginalsDisplay.from_predictions(X, [proba[0], proba[0], proba[2]])
    with pytest.raises(ValueError, match=r"Y\[2\] must have shape \(6, 5\), as X\[2\] needs, got \(4, 5\)"):
        MarginalsDisplay.from_predictions(X, proba, [*Y[:2], Y[0]], classes=est.classes_)


def test_loss_curves_share_axes():
    est, X, Y = make_case()
    display = LossCurveDisplay.from_estimator(make_pipeline(FunctionTransformer(), est).fit(X, Y))
    assert_array_equal(display.line_.get_xdata(), [1, 2, 3])
    assert_array_equal(display.line_.get_ydata(), [0.9, 0.5, 0.4])
    assert display.ax_.get_legend().get_texts()[0].get_text() == "RandomMarginals"
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("Iteration", "Objective")
    other = LossCurveDisplay.from_loss_curve([0.8, 0.2], name="other", ax=display.ax_, color="red")
    assert other.ax_ is display.ax_ and other.figure_ is display.figure_
    assert other.line_.get_color() == "red"
    assert [text.get_text() for text in other.ax_.get_legend().get_texts()] == ["RandomMarginals", "other"]
    assert LossCurveDisplay.from_loss_curve([0.8, 0.2]).ax_.get_legend() is None


def test_loss_curve_of_estimator_without_one_is_refused():
    with pytest.raises(NotFittedError):
        LossCurveDisplay.from_estimator(RandomMarginals())
    with pytest.raises(TypeError, match="must have a loss_curve_, got FunctionTransformer without one"):
        LossCurveDisplay.from_estimator(FunctionTransformer().fit([[1.0]]))


def test_matplotlib_is_imported_lazily():
    code = "import sys, skcrf.plotting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
