"""
Search over a pipeline of ragged images
=======================================

Real collections of images are untidy: sizes differ, annotators leave pixels out. This example takes such a
collection through the usual scikit-learn machinery: a pipeline, a grid search, scorers. Nothing is padded,
cropped or filled in.
"""

# %%
# An untidy collection
# --------------------
#
# Noisy images of different sizes, with about a third of the labels hidden in blocks, as if nobody had got
# round to them. A masked array says which: hidden pixels take part in inference and not in the loss.

import matplotlib.pyplot as plt
import numpy as np

from skcrf.datasets import make_binary_denoising

X, Y = make_binary_denoising(n_images=13, shape=(24, 24), noise=1.5, ragged=True, random_state=0)
rng = np.random.default_rng(0)


def hide_blocks(y, share=1 / 3, size=5):
    """Mask a share of the size x size blocks of a label image."""
    blocks = rng.uniform(size=np.ceil(np.divide(y.shape, size)).astype(int)) < share
    mask = np.kron(blocks, np.ones((size, size), dtype=bool))[: y.shape[0], : y.shape[1]]
    return np.ma.masked_array(y, mask)


Y_seen = [hide_blocks(y) for y in Y]

figure, axes = plt.subplots(2, 4, figsize=(8, 4.2), layout="constrained")
figure.suptitle("Images, and their labels; grey is hidden")
cmap = plt.get_cmap("cividis").with_extremes(bad="lightgrey")
for column, (x, y) in enumerate(zip(X, Y_seen[:4], strict=False)):
    axes[0, column].imshow(x, cmap="gray")
    axes[0, column].set_title(f"{x.shape[0]} x {x.shape[1]}")
    axes[1, column].imshow(y, cmap=cmap, interpolation="nearest")
for ax in axes.flat:
    ax.set_axis_off()

# %%
# A pipeline, and what to search
# ------------------------------
#
# ``PixelWise`` lets any scikit-learn transformer see the pixels of all images as rows. The field at the end
# has two things to choose: how strongly to penalise its weights, and how many iterations its inference may
# do. No iteration at all is the independent model, so the search also answers whether a field is worth
# having.

from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcrf import GridCRFClassifier
from skcrf.inference import TRW
from skcrf.metrics import SCORERS
from skcrf.preprocessing import PixelWise

pipeline = make_pipeline(PixelWise(StandardScaler()), GridCRFClassifier(inference=TRW(), tol=1e-2, n_jobs=2))
alphas, iterations = [1e-4, 1e-2, 1e0], [0, 1, 3, 10]
search = GridSearchCV(
    pipeline,
    {"gridcrfclassifier__alpha": alphas, "gridcrfclassifier__inference__max_iter": iterations},
    scoring=SCORERS,
    refit="neg_log_loss",
    cv=3,
)
search.fit(X[:9], Y_seen[:9])
search.best_params_

# %%
# What the search found
# ---------------------
#
# Each square is the mean over the folds, and scores look at labelled pixels only. The first iteration
# already brings most of what neighbours have to say. The strongest penalty leaves nothing of the edges, and
# the field is the independent model again.

shape = (len(alphas), len(iterations))
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for ax, name in zip(axes, ["accuracy", "neg_log_loss"], strict=True):
    scores = search.cv_results_[f"mean_test_{name}"].reshape(shape)
    image = ax.imshow(scores, cmap="cividis")
    for (row, column), score in np.ndenumerate(scores):
        dark = image.norm(score) < 0.6
        ax.text(column, row, f"{score:.3f}", ha="center", va="center", color="white" if dark else "black")
    ax.set_xticks(range(shape[1]), iterations)
    ax.set_yticks(range(shape[0]), [f"{alpha:g}" for alpha in alphas])
    ax.set_xlabel("iterations of inference")
    ax.set_ylabel("alpha")
    ax.set_title(name)

# %%
# The images held out have labels everywhere: here the pixels that nobody had labelled count too.

print(f"held-out accuracy: {SCORERS['accuracy'](search, X[9:], Y[9:]):.3f}")
