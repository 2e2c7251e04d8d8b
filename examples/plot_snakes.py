"""
Edge features: count along a snake
==================================

A snake lies on a grid. Each of its cells shows the direction in which the snake continues, and its label
is its number, counted from the start of the snake. The number cannot be predicted from a cell and its
surroundings: it has to be counted along the snake. Edge features make this possible, since the contents
of both ends of an edge tell whether the snake passes through it.
"""

# %%
# From images to graphs
# ---------------------
#
# :func:`~skcrf.datasets.make_snakes` draws the snakes. The features of a node are the contents of the 3 x
# 3 cells around it. The features of an edge are its direction, right or down, and optionally the contents
# of both ends.

import numpy as np

from skcrf.datasets import make_snakes
from skcrf.graph import lattice


def as_graph(image, *, ends):
    """Compute node features, edges and edge features of an image."""
    height, width, _ = image.shape
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)))
    around = [padded[r : r + height, c : c + width] for r in range(3) for c in range(3)]
    grid, shown = lattice(height, width), image.reshape(height * width, -1)
    first, second = grid.edges.T
    known = np.hstack([np.ones((len(first), 1)), *([shown[first], shown[second]] if ends else [])])
    down = (grid.table_group[grid.edge_table] == 1)[:, None]
    return (
        np.concatenate(around, axis=2).reshape(height * width, -1),
        grid.edges,
        np.hstack([known * ~down, known * down]),
    )


images, label_images = make_snakes(n_images=160, length=7, random_state=0)
Y = [labels.ravel() for labels in label_images]
n_train = 120

# %%
# Three models
# ------------
#
# ``BP(max_iter=0)`` is the model without edges. Edges have a direction, so their tables are not
# symmetric: ``symmetric=False``. The scores are the accuracy on cells of a snake, and the fraction of
# snakes without an error.

from skcrf import GraphCRFClassifier
from skcrf.inference import BP
from skcrf.metrics import sequence_accuracy_score

predicted = {}
print(f"{'':34}cells  snakes")
for name, inference, ends in [
    ("without edges", BP(max_iter=0), False),
    ("edges with directions", "trw", False),
    ("edges with contents of both ends", "trw", True),
]:
    X = [as_graph(image, ends=ends) for image in images]
    crf = GraphCRFClassifier(inference=inference, symmetric=False, alpha=1e-3, tol=3e-3, n_jobs=2)
    crf.fit(X[:n_train], Y[:n_train])
    predicted[name] = crf.predict(X[n_train:])
    pairs = list(zip(Y[n_train:], predicted[name], strict=True))
    cells = np.concatenate([labels[truth > 0] == truth[truth > 0] for truth, labels in pairs]).mean()
    print(f"{name:34}{cells:.3f}  {sequence_accuracy_score(Y[n_train:], predicted[name]):.3f}")

# %%
# Without edges, cells with the same surroundings cannot be distinguished. With directions only,
# neighbouring numbers are consistent, but the model does not know along which edges to count. With the
# contents of both ends, nearly all numbers are right. In the figure, the grey level of a cell is its true
# number (darker towards the end of the snake), and wrong numbers are red.

import matplotlib.pyplot as plt

fig, axes = plt.subplots(3, 4, figsize=(8, 6.2), layout="constrained")
arrows = np.array([[1, 0], [0, -1], [-1, 0], [0, 1]])  # right, down, left, up, as (x, y)
for row, i in enumerate(range(n_train, n_train + 3)):
    shape = label_images[i].shape
    r, c = np.nonzero(label_images[i])
    towards = arrows[images[i][r, c].argmax(axis=1)]
    axes[row, 0].quiver(c, r, *towards.T, pivot="mid", scale=1.6, scale_units="xy", color="C0")
    axes[row, 0].set(xlim=(-0.5, shape[1] - 0.5), ylim=(shape[0] - 0.5, -0.5), aspect="equal")
    for ax, labels in zip(axes[row, 1:], (pred[i - n_train] for pred in predicted.values()), strict=True):
        ax.imshow(np.ma.masked_equal(label_images[i], 0), vmin=0, vmax=7, cmap="Greys", alpha=0.25)
        for y, x in np.argwhere((labels.reshape(shape) > 0) | (label_images[i] > 0)):
            found, truth = labels.reshape(shape)[y, x], label_images[i][y, x]
            ax.text(x, y, str(found), ha="center", va="center", color="k" if found == truth else "r")
for ax, title in zip(axes[0], ("input", *predicted), strict=True):
    ax.set_title(title.replace("edges with", "edges with\n"), fontsize=9)
for ax in axes.flat:
    ax.set(xticks=[], yticks=[])

# sphinx_gallery_start_ignore
import sys
from pathlib import Path

if "sphinx_gallery" not in sys.modules:
    picture = Path("snakes.png").resolve()
    fig.savefig(picture, dpi=100)
    print(f"snakes: {picture}")
# sphinx_gallery_end_ignore
