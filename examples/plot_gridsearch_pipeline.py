"""
Grid search over a pipeline for images of different sizes
=========================================================

This example uses a pipeline, a grid search and scorers on images of different sizes with hidden labels.
Images need not be padded or cropped, and labels need not be filled in.
"""

# %%
# Data
# ----
#
# Noisy images of different sizes. About a third of the labels are hidden, in blocks, by masked arrays.
# Hidden pixels take part in inference but do not count in the loss.

import matplotlib.pyplot as plt
import numpy as np

from skcrf.datasets import make_binary_denoising

X, Y = make_binary_denoising(n_images=13, shape=(24, 24), noise=1.5, ragged=True, random_state=0)
rng = np.random.default_rng(0)


def hide_blocks(y, share=1 / 3, size=5):
    """Mask a fraction of the size x size blocks of a label image."""
    blocks = rng.uniform(size=np.ceil(np.divide(y.shape, size)).astype(int)) < share
    mask = np.kron(blocks, np.ones((size, size), dtype=bool))[: y.shape[0], : y.shape[1]]
    return np.ma.masked_array(y, mask)


Y_seen = [hide_blocks(y) for y in Y]

figure, axes = plt.subplots(2, 4, figsize=(8, 4.2), layout="constrained")
figure.suptitle("Images and labels; hidden labels in grey")
cmap = plt.get_cmap("cividis").with_extremes(bad="lightgrey")
for column, (x, y) in enumerate(zip(X, Y_seen[:4], strict=False)):
    axes[0, column].imshow(x, cmap="gray")
    axes[0, column].set_title(f"{x.shape[0]} x {x.shape[1]}")
    axes[1, column].imshow(y, cmap=cmap, interpolation="nearest")
for ax in axes.flat:
    ax.set_axis_off()

# %%
# Pipeline and grid
# -----------------
#
# ``PixelWise`` applies a scikit-learn transformer to the pixels of all images. The grid contains the
# strength of the penalty and the number of iterations of the inference. Zero iterations give the
# independent model, so the search also compares the CRF with it.

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
# Results
# -------
#
# Each cell is the mean over the folds; only labelled pixels are scored. The first iteration gives most of
# the improvement. With the strongest penalty the weights of edges vanish, and the CRF equals the
# independent model.

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
# The held-out images are fully labelled: here all pixels are scored.

print(f"held-out accuracy: {SCORERS['accuracy'](search, X[9:], Y[9:]):.3f}")
