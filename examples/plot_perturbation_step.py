"""
Step size of perturbation gradients
===================================

``gradient="perturbation"`` computes a gradient from inference alone: it perturbs the potentials along the
derivative of the loss with respect to the marginals and differences the resulting marginals. This example
shows how the error depends on the size of the perturbation, as in Domke (2013), figure 3.

Run as a script, it prints the best multipliers and saves a figure in the current folder.
"""

# %%
# Random fields
# -------------
#
# Grids of 10 x 10 binary nodes with normal unary potentials, and normal pairwise potentials with a
# standard deviation of ``s``. The loss is the univariate logistic loss of random labels. Inference runs
# to convergence.

import numpy as np

from skcrf.gradients import Backprop, Perturbation
from skcrf.graph import Potentials, lattice, pack
from skcrf.inference import TRW, MeanField
from skcrf.losses import UnivariateLogistic

N_FIELDS = 4
graph = pack([lattice(10, 10, tied=False)] * N_FIELDS)


def random_fields(s, seed=0):
    rng = np.random.default_rng(seed)
    theta = Potentials(rng.normal(size=(graph.n_nodes, 2)), s * rng.normal(size=(graph.n_tables, 2, 2)))
    return theta, rng.integers(2, size=graph.n_nodes)


# %%
# Error of the gradient
# ---------------------
#
# The reference is back-propagation at the fixed point, which needs no step. ``Perturbation`` chooses its
# step automatically; ``multiplier`` scales it. One-sided, two-sided and four-sided differences use one,
# two and four perturbed inferences.


def gradient_of(strategy, inference, theta, y):
    _, d_theta, _ = UnivariateLogistic()(strategy.wrap(inference), graph, theta, y)
    return np.concatenate([part.reshape(N_FIELDS, -1) for part in d_theta], axis=1)


def relative_errors(inference, theta, y, sides, multipliers):
    exact = gradient_of(Backprop(), inference, theta, y)
    errors = []
    for multiplier in multipliers:
        found = gradient_of(Perturbation(sides=sides, multiplier=multiplier), inference, theta, y)
        # one error per field; the median is shown
        errors.append(np.median(np.abs(found - exact).sum(axis=1) / np.abs(exact).sum(axis=1)))
    return np.array(errors)


multipliers = 10.0 ** np.arange(-3, 6)
strengths = [0.5, 1.0, 2.0]
methods = {"TRW": TRW(max_iter=3000, tol=1e-15), "mean field": MeanField(max_iter=3000, tol=1e-15)}
found = {
    (name, s, sides): relative_errors(method, *random_fields(s), sides, multipliers)
    for name, method in methods.items()
    for s in strengths
    for sides in (1, 2, 4)
}
for (name, s, sides), errors in found.items():
    best = np.argmin(errors)
    print(f"{name:<10} s = {s}, {sides}-sided: error {errors[best]:.0e} at multiplier {multipliers[best]:g}")

# %%
# Results
# -------
#
# The default, two-sided differences with a multiplier of 1, is close to the best for every strength. If
# the step is too small, rounding errors dominate: they are inversely proportional to the step and the
# same for all differences. If the step is too large, truncation errors dominate: they grow with the
# first, second and fourth power of the step. More sides have their minimum at larger steps and a lower
# error.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(
    len(methods), len(strengths), figsize=(9, 5.4), sharex=True, sharey=True, layout="constrained"
)
for row, name in zip(axes, methods, strict=True):
    for ax, s in zip(row, strengths, strict=True):
        for sides, style in ((1, "o-"), (2, "s-"), (4, "^-")):
            ax.loglog(multipliers, found[name, s, sides], style, markersize=4, label=f"{sides}-sided")
        ax.axvline(1.0, color="0.8", zorder=0)
        ax.grid(alpha=0.3)
        ax.set_title(f"{name}, s = {s:g}", fontsize="medium")
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
figure.supxlabel("multiplier of the step")
figure.supylabel("relative error of the gradient")

# sphinx_gallery_start_ignore
# Save the figure, unless the gallery shows it.
import sys
from pathlib import Path

if "sphinx_gallery" not in sys.modules:
    picture = Path("perturbation_step.png").resolve()
    figure.savefig(picture, dpi=80)
    print(f"errors: {picture}")
# sphinx_gallery_end_ignore
