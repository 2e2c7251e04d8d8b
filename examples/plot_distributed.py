"""
Fit on a cluster
================

This example fits a CRF to lazily loaded images, first on one machine, then on a dask cluster, then on a
cluster that loses a worker during the fit. The fitted weights are identical.

The cluster consists of two processes on one machine. On a real cluster only the line that starts it
differs. Every worker process imports this script, so the code that starts a fit is protected by
``if __name__ == "__main__"``.
"""

# %%
# Images in a folder
# ------------------
#
# Twelve images and their label images, one file each. ``LazyImages`` holds their paths and a loader. It
# behaves like a list, but loads an image only on access.

import tempfile
from pathlib import Path

import numpy as np

from skcrf.datasets import LazyImages, make_binary_denoising

if __name__ == "__main__":
    folder = tempfile.TemporaryDirectory()
    noisy, clean = make_binary_denoising(n_images=12, shape=(46, 60), noise=1.5, random_state=0)
    for i, (x, y) in enumerate(zip(noisy, clean, strict=True)):
        np.save(Path(folder.name) / f"image{i:02}.npy", x)
        np.save(Path(folder.name) / f"labels{i:02}.npy", y)

    X = LazyImages(sorted(Path(folder.name).glob("image*.npy")), np.load)
    Y = LazyImages(sorted(Path(folder.name).glob("labels*.npy")), np.load)
    X_train, Y_train, X_test, Y_test = X[:8], Y[:8], X[8:], Y[8:]
    print(f"{len(X_train)} training images, {len(X_test)} test images, none of them loaded")

# %%
# Fit on one machine
# ------------------
#
# Every evaluation reads all files once; a thread loads the next image during the computation.

from skcrf import GridCRFClassifier
from skcrf.inference import TRW

crf = GridCRFClassifier(inference=TRW(max_iter=3), tol=1e-2)

if __name__ == "__main__":
    from sklearn.base import clone

    here = clone(crf).fit(X_train, Y_train)
    print(f"local fit: {here.n_iter_} iterations, test accuracy {here.score(X_test, Y_test):.3f}")

# %%
# Fit on a cluster
# ----------------
#
# Select joblib's dask backend. Lazy images are sent as paths and loaded by the workers; images in memory
# are sent once. Each evaluation then sends the weights and receives gradients.

import logging

from joblib import parallel_config

if __name__ == "__main__":
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
    )
    client = Client(cluster)
    with parallel_config(backend="dask"):
        there = clone(crf).fit(X_train, Y_train)
    print(f"weights identical to the local fit: {np.array_equal(there.edge_coef_, here.edge_coef_)}")

# %%
# Lose a worker
# -------------
#
# A callback kills one of the two processes after the second iteration. Its images are sent to the other
# one, and the fit continues.

import os
import signal


class KillAWorker:
    """Callback that kills a worker after the second iteration."""

    def __init__(self, client):
        self.client = client
        self.iterations = 0

    def setup(self, estimator, context):
        """Do nothing."""

    def on_fit_task_begin(self, estimator, context):
        """Do nothing."""

    def on_fit_task_end(self, estimator, context):
        """Count iterations and kill a worker after the second."""
        self.iterations += 1
        if self.iterations == 2:
            address, pid = next(iter(self.client.run(os.getpid).items()))
            os.kill(pid, signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
            print(f"killed the worker at {address}")

    def teardown(self, estimator, context):
        """Do nothing."""


if __name__ == "__main__":
    with parallel_config(backend="dask"):
        survivor = clone(crf).set_callbacks(KillAWorker(client)).fit(X_train, Y_train)
        P = survivor.predict_proba(X_test)
    print(f"weights identical again: {np.array_equal(survivor.edge_coef_, here.edge_coef_)}")
    client.close()
    cluster.close()

# %%
# Compare the fits
# ----------------
#
# The objective of the three fits after each iteration, and the marginals of the last one on a test image.
# The curves coincide and are drawn with decreasing width.

if __name__ == "__main__":
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 2.7), layout="constrained", width_ratios=[1.3, 1, 1])
    fits = {"local": here, "two workers": there, "one worker killed": survivor}
    for (name, fit), width in zip(fits.items(), [7, 4, 1.2], strict=True):
        steps = np.arange(1, fit.n_iter_ + 1)
        axes[0].plot(steps, fit.loss_curve_, linewidth=width, label=name)
    axes[0].set(xlabel="iteration", ylabel="objective", xticks=np.arange(2, here.n_iter_ + 1, 2))
    axes[0].legend()
    for axis, image, title in zip(axes[1:], [X_test[0], P[0][..., 1]], ["image", "marginals"], strict=True):
        axis.imshow(image, cmap="gray", vmin=0, vmax=1)
        axis.set_title(title)
        axis.set_axis_off()
    folder.cleanup()

# sphinx_gallery_start_ignore
# Save the figure, unless the gallery shows it.
import sys

if __name__ == "__main__" and "sphinx_gallery" not in sys.modules:
    picture = Path("distributed.png").resolve()
    figure.savefig(picture, dpi=80)
    print(f"three fits: {picture}")
# sphinx_gallery_end_ignore
