"""
Label superpixels
=================

This example segments images into superpixels with scikit-image and labels the graph of superpixels: each
superpixel is a node, and touching superpixels are connected by an edge. A few hundred nodes replace
thousands of pixels.
"""

# %%
# Data
# ----
#
# Mosaics of grass, gravel and brick, from photographs of scikit-image. Training and test images use
# different parts of the photographs.

import numpy as np
from skimage import data

textures = [image / 255 for image in (data.grass(), data.gravel(), data.brick())]


def make_mosaic(rng, side=160, n_patches=9, left=True):
    """Make an image of patches, each with one texture, and its label image."""
    centres, kinds = rng.uniform(0, side, size=(n_patches, 2)), rng.permutation(np.arange(n_patches) % 3)
    pixels = np.stack(np.mgrid[:side, :side], axis=-1)
    labels = kinds[np.linalg.norm(pixels[:, :, None] - centres, axis=-1).argmin(axis=-1)]
    cuts = []
    for texture in textures:
        top = rng.integers(texture.shape[0] - side)
        start = rng.integers(0, texture.shape[1] // 2 - side) + (0 if left else texture.shape[1] // 2)
        cut = texture[top : top + side, start : start + side]
        cuts.append((cut - cut.mean()) / cut.std())  # brightness is not informative
    image = np.choose(labels, cuts) + rng.normal(scale=0.7, size=(side, side))
    return image, labels


# %%
# From an image to a graph
# ------------------------
#
# The features of a node are statistics of its pixels: the strength of variations at three scales and in
# two directions. The features of an edge are a constant and the length of the common border.

from scipy import ndimage
from skimage.segmentation import slic


def as_graph(image, labels):
    """Compute the graph of an image, the label of each node, and the superpixel of each pixel."""
    smooth = ndimage.gaussian_filter(image, 1)
    segments = slic(smooth, n_segments=250, compactness=0.3, channel_axis=None, start_label=0)
    n_nodes = segments.max() + 1
    bands = [smooth - ndimage.gaussian_filter(smooth, scale) for scale in (1, 2, 4)]
    slopes = [ndimage.sobel(smooth, axis=axis) for axis in (0, 1)]
    strength = [np.log(ndimage.mean(band**2, segments, np.arange(n_nodes))) for band in (*bands, *slopes)]
    beside = np.stack([segments[:, :-1], segments[:, 1:]], axis=-1).reshape(-1, 2)
    below = np.stack([segments[:-1], segments[1:]], axis=-1).reshape(-1, 2)
    pairs = np.sort(np.concatenate([beside, below]), axis=1)
    edges, border = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0, return_counts=True)
    edge_features = np.column_stack([np.ones(len(edges)), border / border.mean()])
    votes = [ndimage.sum(labels == k, segments, np.arange(n_nodes)) for k in range(3)]
    return (np.column_stack(strength), edges, edge_features), np.argmax(votes, axis=0), segments


rng = np.random.default_rng(0)
train = [as_graph(*make_mosaic(rng)) for _ in range(10)]
mosaics = [make_mosaic(rng, left=False) for _ in range(6)]
test = [as_graph(*mosaic) for mosaic in mosaics]

# %%
# Fit
# ---
#
# An example is ``(node_features, edges, edge_features)``. Edges have no direction, so their tables are
# symmetric, which is the default.

from skcrf import GraphCRFClassifier
from skcrf.inference import BP

X_train, Y_train, _ = zip(*train, strict=True)
X_test, Y_test, segments = zip(*test, strict=True)
alone = GraphCRFClassifier(inference=BP(max_iter=0)).fit(X_train, Y_train)
crf = GraphCRFClassifier(tol=1e-2).fit(X_train, Y_train)


def painted(model):
    """Give each pixel the label of its superpixel."""
    return [labels[nodes] for labels, nodes in zip(model.predict(list(X_test)), segments, strict=True)]


truth = np.stack([labels for _, labels in mosaics])
for name, model in [("independent", alone), ("graph CRF", crf)]:
    pixels = np.mean(truth == np.stack(painted(model)))
    print(f"{name:<22} superpixels {model.score(X_test, Y_test):.3f}, pixels {pixels:.3f}")

# %%
# Predictions
# -----------
#
# Each colour is a texture. Single superpixels are often confused with another texture; the CRF corrects
# many of these errors. The remaining ones are mostly along borders, and sometimes a whole patch is wrong.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(3, 4, figsize=(9, 7), layout="constrained")
for row, (image, labels), *answers in zip(axes, mosaics, painted(alone), painted(crf), strict=False):
    row[0].imshow(image, cmap="gray")
    for axis, picture in zip(row[1:], (labels, *answers), strict=True):
        axis.imshow(picture, cmap="viridis", vmin=0, vmax=2, interpolation="nearest")
for axis, title in zip(axes[0], ("image", "labels", "independent", "graph CRF"), strict=True):
    axis.set_title(title)
for axis in axes.ravel():
    axis.set(xticks=[], yticks=[])

# sphinx_gallery_start_ignore
import sys
from pathlib import Path

if "sphinx_gallery" not in sys.modules:
    picture = Path("superpixels.png").resolve()
    figure.savefig(picture, dpi=80)
    print(f"labels: {picture}")
# sphinx_gallery_end_ignore
