"""Errors for bad parameters of estimators and components, and for components that do not go together."""

import numpy as np
import pytest
from messages import says
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skcrf import GridCRFClassifier
from skcrf.datasets import make_potts
from skcrf.gradients import GRADIENTS, Backprop, Implicit, Perturbation
from skcrf.inference import TRW, MeanField
from skcrf.losses import (
    EM,
    LOSSES,
    CliqueSmoothed,
    PatchPseudolikelihood,
    Piecewise,
    SmoothedClassification,
)
from skcrf.training.compatibility import calls_inference

X, Y = make_potts(n_images=3, shape=(4, 5), n_classes=2, random_state=0)
X, Y = list(X), list(Y)


def est(**params):
    return GridCRFClassifier(**{"tol": 0.1, "inference": TRW(max_iter=2), **params})


PARAMETERS = {
    "inference": ["belief", 3, TRW, None],
    "loss": ["perceptron", MeanField()],
    "gradient": ["forward"],
    "optimizer": ["newton"],
    "alpha": [-1.0, "small"],
    "connectivity": [6],
    "edge_features": ["colour", 3],
    "max_iter": [0, 1.5],
    "tol": [-1e-3],
    "class_weight": ["fair"],
    "classes": [3],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in PARAMETERS for value in PARAMETERS[name]]
)
def test_fit_refuses_bad_parameters(name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of GridCRFClassifier"):
        est(**{name: value}).fit(X, Y)


@pytest.mark.parametrize(
    ("inference", "message"),
    [
        (TRW(max_iter=-1), "The 'max_iter' parameter of TRW"),
        (TRW(rho=0.0), "The 'rho' parameter of TRW"),
        (TRW(rho=1.5), "The 'rho' parameter of TRW"),
        (TRW(damping=1.0), "The 'damping' parameter of TRW"),
        (MeanField(tol=-1.0), "The 'tol' parameter of MeanField"),
    ],
)
def test_fit_refuses_bad_parameters_of_inferences(inference, message):
    with pytest.raises(ValueError, match=message):
        est(inference=inference).fit(X, Y)


LOSS_PARAMETERS = {
    "step that is flat": (
        SmoothedClassification(alpha=0.0),
        "The 'alpha' parameter of SmoothedClassification",
    ),
    "step that is steep": (CliqueSmoothed(alpha="steep"), "The 'alpha' parameter of CliqueSmoothed"),
    "unknown clamped": (EM(clamped="belief"), "The 'clamped' parameter of EM"),
    "class as clamped": (EM(clamped=MeanField), "The 'clamped' parameter of EM"),
    "strategy as clamped": (EM(clamped=Backprop()), "clamped must be one of"),
    "bad clamped": (EM(clamped=MeanField(tol=-1.0)), "The 'tol' parameter of MeanField"),
    "no patch": (PatchPseudolikelihood(size=0), "The 'size' parameter of PatchPseudolikelihood"),
    "half a patch": (PatchPseudolikelihood(size=1.5), "The 'size' parameter of PatchPseudolikelihood"),
    "unknown pieces": (Piecewise(pieces="edges"), "The 'pieces' parameter of Piecewise"),
}


@pytest.mark.parametrize("case", LOSS_PARAMETERS)
def test_fit_refuses_bad_parameters_of_losses(case):
    loss, message = LOSS_PARAMETERS[case]
    hidden = [np.ma.masked_array(y, mask=np.indices(y.shape)[0] == 0) for y in Y]
    with pytest.raises(ValueError, match=message):
        est(loss=loss).fit(X, hidden)


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (Perturbation(sides=3), "The 'sides' parameter of Perturbation"),
        (Perturbation(sides="two"), "The 'sides' parameter of Perturbation"),
        (Perturbation(multiplier=0.0), "The 'multiplier' parameter of Perturbation"),
        (Perturbation(multiplier=-1), "The 'multiplier' parameter of Perturbation"),
        (Implicit(solver="lu"), "The 'solver' parameter of Implicit"),
        (Implicit(tol=0.0), "The 'tol' parameter of Implicit"),
        (Implicit(max_iter=0), "The 'max_iter' parameter of Implicit"),
        (Backprop(mode="implicit"), "The 'mode' parameter of Backprop"),
    ],
)
def test_fit_refuses_bad_parameters_of_gradients(gradient, message):
    with pytest.raises(ValueError, match=message):
        est(inference=TRW(tol=1e-4), gradient=gradient).fit(X, Y)


@pytest.mark.parametrize("class_weight", [{7: 2.0}, {0: -1.0}, {0: np.nan}, {0: 0.0, 1: 0.0}])
def test_class_weights_must_be_of_known_classes_and_not_all_zero(class_weight):
    with pytest.raises(ValueError, match="class_weight"):
        est(class_weight=class_weight).fit(X, Y)


@pytest.mark.parametrize("init", ["likelihood", "clique_smoothed"])
def test_class_weights_are_refused_if_the_start_has_no_weights_of_sites(init):
    with pytest.raises(
        ValueError,
        match=says(
            "class_weight='balanced'",
            "asked for by init",
            type(LOSSES[init]()).__name__,
            "univariate_logistic",
        ),
    ):
        est(class_weight="balanced", init=init).fit(X, Y)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_gradients_are_refused_as_inference(gradient):
    with pytest.raises(ValueError, match=says("'inference' parameter", "'BaseGradient'")):
        est(inference=GRADIENTS[gradient]()).fit(X, Y)
    with pytest.raises(ValueError, match="'inference' parameter"):
        est(inference=GRADIENTS[gradient]().wrap(TRW(tol=1e-3))).fit(X, Y)


@pytest.mark.parametrize("loss", [name for name, cls in LOSSES.items() if not calls_inference(cls())])
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_losses_without_inference_accept_any_gradient(loss, gradient):
    expected = est(loss=loss).fit(X, Y)
    np.testing.assert_array_equal(est(loss=loss, gradient=gradient).fit(X, Y).coef_, expected.coef_)


def test_starts_with_inference_need_a_suitable_gradient():
    with pytest.raises(ValueError, match=says("Implicit", "TRW", "tol=0")):
        est(loss="pseudolikelihood", init="likelihood", gradient="implicit").fit(X, Y)


def test_numpy_integers_are_accepted_as_parameters():
    one, other = (
        est(inference=TRW(tol=1e-3, max_iter=100), gradient=Perturbation(sides=sides)).fit(X, Y)
        for sides in (2, np.int64(2))
    )
    np.testing.assert_array_equal(one.coef_, other.coef_)


#: Estimators whose fit is refused after the data were read, with the message.
LATE = {
    "a cycle": (est(inference="tree"), says("Tree", "example 0", "cycle")),
    "too many configurations": (est(inference="bruteforce"), says("BruteForce", r"4\*\*20")),
    "rho of another graph": (est(inference=TRW(rho=[0.5] * 7)), says("rho", "7", "example 0", "31")),
    "too large patches": (
        est(loss=PatchPseudolikelihood(size=20), classes=[*range(20)]),
        says("20 nodes", "20 labels", r"20 \* 20\*\*5 = 64000000 steps", "smaller size"),
    ),
    "no fixed point": (est(gradient=Backprop(mode="fixed_point")), says("TRW", "tol=0", "above 0")),
    "nothing to perturb": (
        est(gradient="perturbation"),
        says("Perturbation", "converge", "TRW", "tol=0", "above 0", "backprop"),
    ),
    "nothing implicit": (
        est(gradient="implicit"),
        says("Implicit", "converge", "TRW", "tol=0", "above 0", "backprop"),
    ),
    "no curvature": (
        est(inference="bruteforce", gradient="implicit"),
        says("Implicit", "curvature", "BruteForce", "backprop", "perturbation"),
    ),
}


@pytest.mark.parametrize("case", LATE)
def test_fit_refused_late_leaves_estimator_unchanged(case):
    bad, message = LATE[case]
    fitted = est().fit(X, Y)
    before, state = fitted.predict_proba(X), set(vars(fitted))
    three = [y + (np.arange(20).reshape(4, 5) == 0) * 2 for y in Y]
    with pytest.raises(ValueError, match=message):
        fitted.set_params(**bad.get_params(deep=False)).fit(X, three)
    assert set(vars(fitted)) == state
    np.testing.assert_array_equal(fitted.predict_proba(X), before)
    with pytest.raises(ValueError, match=message):
        bad.fit(X, three)
    with pytest.raises(NotFittedError):
        bad.predict(X)


def test_fixed_point_gradients_need_a_tolerance():
    bad = est(gradient=Backprop(mode="fixed_point"))
    with pytest.raises(ValueError, match=says("TRW", "tol=0", "above 0")):
        bad.fit(X, Y)
    clone(bad).set_params(inference=TRW(max_iter=200, tol=1e-6)).fit(X, Y)
