"""
Limit cycles of single-configuration losses
===========================================

If the expectation in the gradient of the likelihood is replaced by the features of one configuration, the
gradient is discontinuous and never zero, and fixed steps end in a limit cycle (Kumar, August and Hebert,
2005, Figure 1). This example shows the steps of three ways to learn a discriminative random field.
"""

# %%
# Data
# ----
#
# Smooth shapes with the bimodal noise of the paper: two normal distributions per label, which no single
# threshold separates. Pixels are standardised, so that one step size suits all weights.

import numpy as np

from skcrf.datasets import make_binary_denoising

_, Y = make_binary_denoising(n_images=4, shape=(24, 24), random_state=0)
rng = np.random.default_rng(0)
mode = rng.integers(2, size=Y.shape)
means, scales = np.array([[0.55, 0.42], [0.08, 0.46]]), np.array([[0.02, 0.10], [0.03, 0.03]])
X = rng.normal(means[Y, mode], scales[Y, mode])
X = (X - X.mean()) / X.std()

# %%
# Three gradients of the likelihood
# ---------------------------------
#
# The gradient is the features of the labels minus their expectation under the model. The expectation is
# approximated by
#
# - the marginals of belief propagation (PMA),
# - the most probable configuration, found by a graph cut (SPA),
# - the configuration of the largest marginals (MMA).
#
# A callback records the weights after each step.

import warnings

from sklearn.exceptions import ConvergenceWarning

from skcrf import GridCRFClassifier
from skcrf.inference import BP
from skcrf.optimizers import Subgradient

STEP = 0.3


class WeightsOfEachStep:
    """Callback that records the weights after each iteration."""

    def __init__(self):
        self.weights = []

    def setup(self, estimator, context):
        """Do nothing."""

    def on_fit_task_begin(self, estimator, context):
        """Do nothing."""

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        """Record the weights."""
        if context.task_name == "iteration":
            parts = fitted_estimator.coef_, fitted_estimator.intercept_, fitted_estimator.edge_coef_
            self.weights.append(np.concatenate([part.ravel() for part in parts]))

    def teardown(self, estimator, context):
        """Do nothing."""


def followed(loss, inference):
    """Fit with fixed steps; return the model and its weights after each step."""
    kept = WeightsOfEachStep()
    crf = GridCRFClassifier(
        loss=loss,
        inference=inference,
        optimizer=Subgradient(learning_rate=STEP, decay=0.0, patience=1000),
        edge_features="contrast",
        symmetric="potts",
        init="zeros",
        alpha=0.0,
        max_iter=200,
        tol=1e-5,
    )
    with warnings.catch_warnings():  # the fits are not expected to converge
        warnings.simplefilter("ignore", ConvergenceWarning)
        crf.set_callbacks(kept).fit(X, Y)
    return crf, np.array(kept.weights)


fits = {
    "PMA": followed("likelihood", BP(max_iter=20)),
    "SPA": followed("likelihood", "graph_cut"),
    "MMA": followed("maximum_marginal", BP(max_iter=20)),
}
for name, (crf, _) in fits.items():
    errors = 100 * np.array(crf.train_error_curve_)
    print(f"{name}: lowest training error {errors.min():.1f} %, after step {errors.argmin() + 1}; ", end="")
    print(f"from {errors[-100:].min():.1f} to {errors[-100:].max():.1f} % in the last 100 steps")

# %%
# Weights, gradient, objective and error
# --------------------------------------
#
# Steps have a fixed size, so the norm of the gradient is proportional to the length of a step. The
# objective is ``loss_curve_``, the training error ``train_error_curve_``; a dot marks the weights that
# are kept. The three objectives are different functions, and that of MMA can be negative.
#
# PMA converges smoothly. With SPA and MMA the weight of the pixel decreases slowly until the neighbours
# outweigh it. Then whole images become one colour, half of the pixels are wrong, a few large steps
# increase the weight, and the cycle repeats. The errors are low where the gradient is small, so the last
# weights are rarely the best: ``Subgradient`` keeps those with the lowest training error. By default its
# steps decrease; here they are fixed, as in the paper.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(4, 3, figsize=(10, 8), sharex=True, sharey="row", layout="constrained")
for column, (name, (crf, weights)) in zip(axes.T, fits.items(), strict=True):
    steps = np.arange(1, len(weights) + 1)
    gradient = np.linalg.norm(np.diff(weights, axis=0), axis=1) / STEP
    column[0].plot(steps, weights[:, 1] - weights[:, 0], label="pixel")
    column[0].plot(steps, weights[:, 3] - weights[:, 2], label="constant")
    column[0].plot(steps, weights[:, 4:8] @ [0.5, -0.5, -0.5, 0.5], color="C4", label="neighbours")
    column[1].semilogy(steps[1:], gradient, color="C2", linewidth=1)
    errors = 100 * np.array(crf.train_error_curve_)
    column[2].plot(steps, crf.loss_curve_, color="C0", linewidth=1)
    column[3].semilogy(steps, errors, color="C3", linewidth=1)
    column[3].plot(errors.argmin() + 1, errors.min(), "ko", markersize=5)
    column[3].set_title(f"kept: {errors.min():.1f} %, step {errors.argmin() + 1}", fontsize="medium")
    column[0].set_title(name, fontweight="bold")
    column[3].set_xlabel("step")
axes[0, 0].legend(frameon=False, ncols=3, fontsize="small", loc="upper left", columnspacing=1)
axes[0, 0].set_ylim(top=1.9)
axes[3, 0].set_yticks([5, 10, 20, 50], ["5", "10", "20", "50"])
axes[3, 0].minorticks_off()
labels = ("weights", "norm of the gradient", "objective", "training error in %")
for row, label in zip(axes, labels, strict=True):
    row[0].set_ylabel(label)
for axis in axes.ravel():
    axis.spines[["top", "right"]].set_visible(False)

# sphinx_gallery_start_ignore
import sys
from pathlib import Path

if "sphinx_gallery" not in sys.modules:
    picture = Path("limit_cycles.png").resolve()
    figure.savefig(picture, dpi=80)
    print(f"curves: {picture}")
# sphinx_gallery_end_ignore
