"""Every claimed combination of loss, inference and gradient fits, and is worth it."""

from functools import lru_cache

import pytest
import zoo

from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.gradients import GRADIENTS, Backprop, Implicit, Perturbation
from skcrf.inference import BP, INFERENCE
from skcrf.losses import LOSSES
from skcrf.optimizers import Subgradient
from skcrf.training.learning import serves

SIZE = 16
TRUNCATED = {"max_iter": 5, "tol": 0.0, "n_samples": 20, "burn_in": 10}
CONVERGED = {"max_iter": 100, "tol": 1e-4}  # the threshold of D13 section 8.2
#: Every way to obtain a gradient, and the iterations of the inference that it differentiates.
WAYS = {
    "truncated": (Backprop(), TRUNCATED),
    "fixed_point": (Backprop(mode="fixed_point"), CONVERGED),
    "perturbation": (Perturbation(), CONVERGED),
    "iterative": (Implicit(tol=1e-5), CONVERGED),
    "direct": (Implicit(solver="direct"), CONVERGED),
}
#: A combination is better than the model without edges if its test error is lower by this at least.
GAIN = 0.01
#: What is no better, by loss and by whether the inference is truncated or converged, or truncated and
#: learned with by steps; doc/choosing.rst tells why. Noise is strong here, as in the first columns of D13
#: Table 1. Losses without inference learn from true neighbours, and trust them too much. The likelihood makes
#: BP agree with the share of equal neighbours, and BP pulls images towards one colour for it. "converged" is
#: up to `CONVERGED`, which BP does not always reach.
NO_BETTER = {
    ("pseudolikelihood", "truncated"): {"bp"},
    ("pseudolikelihood", "converged"): {"bp", "mean_field", "trw"},
    ("patch_pseudolikelihood", "truncated"): {"bp", "trw", "trw_s"},
    ("patch_pseudolikelihood", "converged"): {"bp", "mean_field", "trw", "trw_s"},
    ("piecewise", "converged"): {"bp", "trw"},
    ("likelihood", "converged"): {"bp"},
    ("em", "converged"): {"bp"},
}
#: Steps for losses that have kinks, by whether these are margins, which want longer ones.
STEPS = {
    True: {"optimizer": Subgradient(learning_rate=5.0), "init": "zeros", "max_iter": 40},
    False: {"optimizer": Subgradient(learning_rate=0.3), "max_iter": 20},
}


def iterates(inference):
    return "max_iter" in INFERENCE[inference]().get_params()


def ways(loss, inference):
    """The ways that claim an inference; one of each kind where none is used, or where all are the same."""
    for way, (gradient, iterations) in WAYS.items():
        used = LOSSES[loss].needs or isinstance(gradient, Backprop)
        differs = iterates(inference) or iterations is CONVERGED
        if used and differs and zoo.claimed(gradient, zoo.build(INFERENCE[inference], **iterations)):
            yield way


COMBINATIONS = [
    pytest.param(loss, inference, way, id=f"{loss}-{inference}-{way}")
    for loss in LOSSES
    if LOSSES[loss]().is_smooth
    for inference in zoo.LEARNING
    for way in ways(loss, inference)
]


#: What is learned by steps: losses with kinks, and likelihoods of methods that have no sums.
STEPPED = [
    pytest.param(loss, inference, id=f"{loss}-{inference}")
    for loss in LOSSES
    for inference, cls in INFERENCE.items()
    if serves(cls, LOSSES[loss]())
    and (not LOSSES[loss]().is_smooth or (LOSSES[loss].needs and "sum" not in cls.tasks))
]


def test_every_gradient_is_here():
    assert {type(gradient) for gradient, _ in WAYS.values()} == set(GRADIENTS.values())


def test_what_is_no_better_exists():
    for (loss, kind), names in NO_BETTER.items():
        assert loss in LOSSES and kind in {"truncated", "converged", "steps"} and names <= set(INFERENCE)


def cut(images, inference):
    """Cut images into what an inference takes.

    Methods that approximate take them whole, `tree` takes rows, and `bruteforce` tiles of eight pixels. Small
    pieces take longer, so that only every third is used, which gets to all columns of tiles.
    """
    if iterates(inference) or INFERENCE[inference].exact_on is None:
        return images
    height, width = (2, 4) if INFERENCE[inference].exact_on == "any" else (1, SIZE)
    tiles = images.reshape(len(images), SIZE // height, height, SIZE // width, width).swapaxes(2, 3)
    return tiles.reshape(-1, height, width)[::3]


@lru_cache
def problem(inference):
    """Training images, test images, and the test error of the model without edges."""
    train, test = (
        [cut(part, inference) for part in make_binary_denoising(n_images, (SIZE, SIZE), random_state=seed)]
        for n_images, seed in ((6, 0), (20, 1))
    )
    independent = GridCRFClassifier(BP(max_iter=0)).fit(*train)
    return train, test, 1 - independent.score(*test)


# Six steps are enough, and BP need not converge on the way. Without inference there is time for all steps.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss, inference, way", COMBINATIONS)
def test_fit_is_better_than_without_edges(loss, inference, way):
    train, test, independent = problem(inference)
    gradient, iterations = WAYS[way]
    est = GridCRFClassifier(zoo.build(INFERENCE[inference], **iterations), loss, gradient=gradient, tol=1e-3)
    est.set_params(max_iter=6 if LOSSES[loss].needs else 100).fit(*train)
    kind = "truncated" if iterations is TRUNCATED else "converged"
    gain = independent - (1 - est.score(*test))
    assert (gain >= GAIN) == (inference not in NO_BETTER.get((loss, kind), set()))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss, inference", STEPPED)
def test_steps_are_better_than_without_edges(loss, inference):
    train, test, independent = problem(inference)
    est = GridCRFClassifier(zoo.build(INFERENCE[inference], **TRUNCATED), loss)
    est.set_params(**STEPS["cost" in LOSSES[loss]().get_params()]).fit(*train)
    gain = independent - (1 - est.score(*test))
    assert (gain >= GAIN) == (inference not in NO_BETTER.get((loss, "steps"), set()))
