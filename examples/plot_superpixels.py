"""
Label superpixels
=================

A graph need not be a lattice. Here an image is cut into superpixels by scikit-image, each superpixel is a
node, and superpixels that touch are joined by an edge. A label is inferred for a few hundred nodes in place
of thousands of pixels.
"""

# %%
# The data
# --------
#
# Patches of grass, gravel and brick, photographs that come with scikit-image. The images to test on are cut
# from other parts of the photographs than those to learn from.

import numpy as np
from skimage import data

textures = [image / 255 for image in (data.grass(), data.gravel(), data.brick())]


def make_mosaic(rng, side=160, n_patches=9, left=True):
    """Make an image of patches, each of one texture, and the texture of each pixel."""
    centres, kinds = rng.uniform(0, side, size=(n_patches, 2)), rng.permutation(np.arange(n_patches) % 3)
    pixels = np.stack(np.mgrid[:side, :side], axis=-1)
    labels = kinds[np.linalg.norm(pixels[:, :, None] - centres, axis=-1).argmin(axis=-1)]
    cuts = []
    for texture in textures:
        top = rng.integers(texture.shape[0] - side)
        start = rng.integers(0, texture.shape[1] // 2 - side) + (0 if left else texture.shape[1] // 2)
        cut = texture[top : top + side, start : start + side]
        cuts.append((cut - cut.mean()) / cut.std())  # brightness alone tells nothing
    image = np.choose(labels, cuts) + rng.normal(scale=0.7, size=(side, side))
    return image, labels


# %%
# From an image to a graph
# ------------------------
#
# A node knows some statistics of its pixels: how strongly the image varies at three scales, and in which
# direction. An edge knows a constant, and how long the border is: its features tell the model how much two
# nodes have to do with each other.

from scipy import ndimage
from skimage.segmentation import slic


def as_graph(image, labels):
    """Make node features, edges and edge features; also the label of each node, and its pixels."""
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
# The graph of an example is ``(node_features, edges, edge_features)``. Edges have no direction, so their
# weights are symmetric.

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
for name, model in [("each superpixel alone", alone), ("graph", crf)]:
    pixels = np.mean(truth == np.stack(painted(model)))
    print(f"{name:<22} superpixels {model.score(X_test, Y_test):.3f}, pixels {pixels:.3f}")

# %%
# What it sees
# ------------
#
# Each colour is a texture. A superpixel by itself is often mistaken for another texture; its neighbours, the
# more so the longer their common border, set it right. What is wrong then is along borders for the most part,
# and sometimes a whole patch that looked like another from the start.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(3, 4, figsize=(9, 7), layout="constrained")
for row, (image, labels), *answers in zip(axes, mosaics, painted(alone), painted(crf), strict=False):
    row[0].imshow(image, cmap="gray")
    for axis, picture in zip(row[1:], (labels, *answers), strict=True):
        axis.imshow(picture, cmap="viridis", vmin=0, vmax=2, interpolation="nearest")
for axis, title in zip(axes[0], ("image", "truth", "each superpixel alone", "graph"), strict=True):
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
