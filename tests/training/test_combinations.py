"""Every supported combination of loss, inference and gradient fits, and improves on independent sites."""

from functools import lru_cache

import methods
import numpy as np
import pytest

from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.gradients import GRADIENTS, Backprop, Implicit, Perturbation
from skcrf.inference import BP, INFERENCE
from skcrf.losses import LOSSES
from skcrf.optimizers import Subgradient
from skcrf.training.compatibility import calls_inference, is_smooth, serves

SIZE = 16
TRUNCATED = {"max_iter": 5, "tol": 0.0, "n_samples": 20, "burn_in": 10}
CONVERGED = {"max_iter": 100, "tol": 1e-4}  # the threshold of D13 section 8.2
#: Gradient strategies with the iterations of the inference that they differentiate.
STRATEGIES = {
    "truncated": (Backprop(), TRUNCATED),
    "fixed_point": (Backprop(mode="fixed_point"), CONVERGED),
    "perturbation": (Perturbation(), CONVERGED),
    "iterative": (Implicit(tol=1e-5), CONVERGED),
    "direct": (Implicit(solver="direct"), CONVERGED),
}
#: A fit improves on the model without edges if its test error is lower by at least this.
GAIN = 0.01
#: Inferences whose fits need not improve, by loss and iterations; the user guide explains why. Noise is
#: strong here, as in the first columns of D13 Table 1. Losses without inference learn from the true labels of
#: neighbours and rely on them too much. With the likelihood, BP matches the frequency of equal neighbours,
#: and pulls images towards one label. "converged" means up to `CONVERGED`, which BP does not always reach.
NEED_NOT_IMPROVE = {
    ("pseudolikelihood", "truncated"): {"bp", "trw", "trw_s"},
    ("pseudolikelihood", "converged"): {"bp", "mean_field", "trw", "trw_s"},
    ("patch_pseudolikelihood", "truncated"): {"bp", "trw", "trw_s"},
    ("patch_pseudolikelihood", "converged"): {"bp", "mean_field", "trw", "trw_s"},
    ("piecewise", "converged"): {"bp", "trw"},
    ("likelihood", "converged"): {"bp"},
    ("em", "converged"): {"bp"},
}
#: Options of subgradient fits by whether the loss has a margin, which needs longer steps.
STEPS = {
    True: {"optimizer": Subgradient(learning_rate=5.0), "init": "zeros", "max_iter": 40},
    False: {"optimizer": Subgradient(learning_rate=0.3), "max_iter": 30},
}


def iterates(inference):
    return "max_iter" in INFERENCE[inference]().get_params()


def strategies(loss, inference):
    """Yield the strategies that support an inference, one per gradient if they do not differ."""
    for name, (gradient, iterations) in STRATEGIES.items():
        used = LOSSES[loss].needs or isinstance(gradient, Backprop)
        differs = iterates(inference) or iterations is CONVERGED
        if used and differs and methods.supports(gradient, methods.build(INFERENCE[inference], **iterations)):
            yield name


COMBINATIONS = [
    pytest.param(loss, inference, strategy, id=f"{loss}-{inference}-{strategy}")
    for loss in LOSSES
    if LOSSES[loss]().is_smooth
    for inference in methods.LEARNING
    for strategy in strategies(loss, inference)
]


#: Fits by subgradients: of losses that are not smooth, or not smooth with a MAP solver.
SUBGRADIENT_FITS = [
    pytest.param(loss, inference, id=f"{loss}-{inference}")
    for loss in LOSSES
    for inference, cls in INFERENCE.items()
    if serves(cls, Backprop(), LOSSES[loss]()) and not is_smooth(LOSSES[loss](), cls(), is_linear=True)
]


def test_every_gradient_is_combined():
    assert {type(gradient) for gradient, _ in STRATEGIES.values()} == set(GRADIENTS.values())


def test_exceptions_name_losses_and_inferences():
    for (loss, iterations), names in NEED_NOT_IMPROVE.items():
        assert loss in LOSSES and iterations in {"truncated", "converged"} and names <= set(INFERENCE)


def cut(images, inference):
    """Cut images into fields that an inference supports.

    Approximate methods take whole images, "tree" rows, and "bruteforce" tiles of eight pixels. Many small
    fields take longer, so that only every third is used, which includes all columns of tiles.
    """
    if iterates(inference) or INFERENCE[inference].exact_on is None:
        return images
    height, width = (2, 4) if INFERENCE[inference].exact_on == "any" else (1, SIZE)
    tiles = images.reshape(len(images), SIZE // height, height, SIZE // width, width).swapaxes(2, 3)
    return tiles.reshape(-1, height, width)[::3]


@lru_cache
def problem(inference):
    """Return training images, test images, and the test error of the model without edges."""
    train, test = (
        [cut(part, inference) for part in make_binary_denoising(n_images, (SIZE, SIZE), random_state=seed)]
        for n_images, seed in ((6, 0), (20, 1))
    )
    independent = GridCRFClassifier(BP(max_iter=0)).fit(*train)
    return train, test, 1 - independent.score(*test)


def check_improves(est, test, independent):
    """Check that the test error is lower than that of the model without edges."""
    assert independent - (1 - est.score(*test)) >= GAIN


def check_fitted(est):
    """Check that weights and objectives are finite and that edges have weights."""
    assert np.isfinite(est.coef_).all() and np.isfinite(est.edge_coef_).all()
    assert np.isfinite(est.loss_curve_).all() and est.n_iter_ > 0
    assert np.abs(est.edge_coef_).max() > 0


# Six iterations are enough, and BP need not converge. Losses without inference have time for all iterations.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss, inference, strategy", COMBINATIONS)
def test_fit_improves_on_independent_sites(loss, inference, strategy):
    train, test, independent = problem(inference)
    gradient, iterations = STRATEGIES[strategy]
    est = GridCRFClassifier(
        methods.build(INFERENCE[inference], **iterations), loss, gradient=gradient, tol=1e-3
    )
    est.set_params(max_iter=6 if calls_inference(LOSSES[loss]()) else 100).fit(*train)
    check_fitted(est)
    assert est.loss_curve_[-1] <= est.loss_curve_[0]
    kind = "truncated" if iterations is TRUNCATED else "converged"
    if inference not in NEED_NOT_IMPROVE.get((loss, kind), set()):
        check_improves(est, test, independent)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss, inference", SUBGRADIENT_FITS)
def test_subgradient_fit_improves_on_independent_sites(loss, inference):
    train, test, independent = problem(inference)
    est = GridCRFClassifier(methods.build(INFERENCE[inference], **TRUNCATED), loss)
    est.set_params(**STEPS["cost" in LOSSES[loss]().get_params()]).fit(*train)
    check_fitted(est)
    check_improves(est, test, independent)
