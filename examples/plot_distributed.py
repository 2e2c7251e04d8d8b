"""
Fit on a cluster
================

Images that are loaded when they are needed, the workers of a dask cluster that do the work, and one of them
that dies on the way: the same ``fit``, and the same weights to the last bit.

The cluster here is two processes on one machine. On a real one, only the line that starts it differs. As a
script, this file is imported again by each process that it starts, which is why what it does stands under
``if __name__ == "__main__"``.
"""

# %%
# Images in a folder
# ------------------
#
# Twelve images with their labels, a file each. ``LazyImages`` knows their paths and how to load one. It looks
# like a list, but nothing is in memory until it is asked for.

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
    print(f"{len(X_train)} images to learn from, {len(X_test)} to predict, none of them loaded")

# %%
# On this machine
# ---------------
#
# First without a cluster. Every evaluation goes through the files once; a thread loads the next image while
# the kernels are busy with this one.

from skcrf import GridCRFClassifier
from skcrf.inference import TRW

crf = GridCRFClassifier(inference=TRW(max_iter=3), tol=1e-2)

if __name__ == "__main__":
    from sklearn.base import clone

    here = clone(crf).fit(X_train, Y_train)
    print(f"local fit: {here.n_iter_} iterations, test accuracy {here.score(X_test, Y_test):.3f}")

# %%
# On a cluster
# ------------
#
# The backend of joblib is the one switch. Of lazy images the paths are sent, and the workers load them; of
# images in memory the pixels are sent, once. Then each evaluation sends the weights and gets gradients back.

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
    print(f"the same bits as the local fit: {np.array_equal(there.edge_coef_, here.edge_coef_)}")

# %%
# When a worker dies
# ------------------
#
# A callback kills one of the two processes after the second iteration. What it looked after is given to
# the other one, and the fit goes on.

import os
import signal


class KillAWorker:
    """Kills a worker after the second iteration."""

    def __init__(self, client):
        self.client = client
        self.iterations = 0

    def setup(self, estimator, context):
        """Nothing to prepare."""

    def on_fit_task_begin(self, estimator, context):
        """Nothing to do before an iteration."""

    def on_fit_task_end(self, estimator, context):
        """Count, and kill."""
        self.iterations += 1
        if self.iterations == 2:
            address, pid = next(iter(self.client.run(os.getpid).items()))
            os.kill(pid, signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
            print(f"killed the worker at {address}")

    def teardown(self, estimator, context):
        """Nothing to clean up."""


if __name__ == "__main__":
    with parallel_config(backend="dask"):
        survivor = clone(crf).set_callbacks(KillAWorker(client)).fit(X_train, Y_train)
        P = survivor.predict_proba(X_test)
    print(f"the same bits again: {np.array_equal(survivor.edge_coef_, here.edge_coef_)}")
    client.close()
    cluster.close()

# %%
# Three fits, one model
# ---------------------
#
# The objective after each iteration, of all three fits, and what the last one believes of an image that it
# has not seen. The curves are drawn from wide to narrow, for they lie on each other.

if __name__ == "__main__":
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 2.7), layout="constrained", width_ratios=[1.3, 1, 1])
    fits = {"local": here, "two workers": there, "one of them killed": survivor}
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
# On a page of the gallery the figure is there to see; on its own the script leaves a picture.
import sys

if __name__ == "__main__" and "sphinx_gallery" not in sys.modules:
    picture = Path("distributed.png").resolve()
    figure.savefig(picture, dpi=80)
    print(f"three fits: {picture}")
# sphinx_gallery_end_ignore
