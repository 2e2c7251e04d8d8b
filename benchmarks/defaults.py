"""Measure the CPU time to a given test error, to choose the defaults of inference and L-BFGS.

    python benchmarks/defaults.py --data DIR

Fits `GridCRFClassifier` to three sets of real images, with each combination of edge weights, iterations of
the inference and L-BFGS memory. A callback keeps the weights and the CPU time of each iteration; the test
error of these weights is computed afterwards. The goal is the lowest error of all settings plus 2 %.
"""

import argparse
import itertools
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcrf import GridCRFClassifier
from skcrf.inference import TRW
from skcrf.optimizers import LBFGS
from skcrf.preprocessing import FourierFeatures, PixelWise

#: Weights of edges: a distribution over spanning trees, and one over the rows and the columns.
RHO = {"trees": "spanning_trees", "forests": 0.5}
#: Iterations and tolerance of the inference.
ITERATIONS = {"5": (5, 0.0), "10": (10, 0.0), "20": (20, 0.0), "tol 1e-3": (100, 1e-3)}


def denoising(folder, n_train, n_test):
    """Make binary images with noise of level 1.25 (D13 section 8.1)."""
    with np.load(folder / "bsds" / "bsds_train200_gray_200x300.npz") as data:
        images, split = data["images"], data["split"]
    labels = (images > images.mean(axis=(1, 2), keepdims=True)).astype(np.int64)
    t = np.random.default_rng(0).random(labels.shape) ** 1.25
    noisy = np.where(labels == 1, 1 - t, t)
    return [
        (noisy[part, ::2, ::2], labels[part, ::2, ::2])
        for part in (np.flatnonzero(split == 0)[:n_train], np.flatnonzero(split == 1)[:n_test])
    ]


def colour_images(file, is_train, n_train, n_test):
    """Read colour images and labels at half resolution, with Fourier features of colours and positions."""
    with np.load(file) as data:
        images, labels, sizes, train = data["images"], data["labels"], data["sizes"], is_train(data)
    chosen = [np.flatnonzero(train)[:n_train], np.flatnonzero(~train)[:n_test]]
    X = [[images[i, : sizes[i][0] : 2, : sizes[i][1] : 2] / 255.0 for i in part] for part in chosen]
    Y = [
        [np.ma.masked_less(labels[i, : sizes[i][0] : 2, : sizes[i][1] : 2], 0) for i in part]
        for part in chosen
    ]
    features = make_pipeline(FourierFeatures(), PixelWise(StandardScaler())).fit(X[0])
    return [(features.transform(x), y) for x, y in zip(X, Y, strict=True)]


def load(folder, quick):
    """Return training and test set of each problem, by name."""
    n_train, n_test = (4, 6) if quick else (12, 24)
    return {
        "denoising, 2 labels": denoising(folder, n_train, n_test),
        "horses, 2 labels": colour_images(
            folder / "weizmann_horses" / "horses.npz", lambda data: data["is_train"], 2 * n_train, n_test
        ),
        "scenes, 8 labels": colour_images(
            folder / "stanford_background" / "stanford_background_half.npz",
            lambda data: data["fold"] != 5,
            2 * n_train,
            n_test,
        ),
    }


class Recorder:
    """Callback that keeps the weights and the CPU time of each iteration."""

    def __init__(self):
        self.fits, self.seconds = [], []

    def setup(self, estimator, context):
        """Start the clock."""
        self.start = time.process_time()

    def on_fit_task_begin(self, estimator, context):
        """Do nothing."""

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        """Keep the fit."""
        if context.task_name == "iteration":
            self.seconds.append(time.process_time() - self.start)
            self.fits.append(fitted_estimator)

    def teardown(self, estimator, context):
        """Do nothing."""


def run(train, test, rho, iterations, memory, steps):
    """Fit with one setting; return the CPU time and the test error of each iteration."""
    max_iter, tol = iterations
    crf = GridCRFClassifier(
        inference=TRW(rho=rho, max_iter=max_iter, tol=tol), optimizer=LBFGS(memory=memory), max_iter=steps
    )
    recorder = Recorder()
    crf.set_callbacks(recorder).fit(*train)
    every = range(0, len(recorder.fits), max(1, len(recorder.fits) // 20))
    errors = np.array([1 - recorder.fits[i].score(*test) for i in every])
    return np.array(recorder.seconds)[every], errors


def main():
    """Run all settings and print a table per set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--quick", action="store_true", help="fewer images and settings")
    parser.add_argument("--steps", type=int, default=60, help="iterations of L-BFGS")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    memories = (10,) if args.quick else (5, 10, 20)
    for name, (train, test) in load(args.data, args.quick).items():
        curves = {
            (rho, iterations, memory): run(
                *(train, test), RHO[rho], ITERATIONS[iterations], memory, args.steps
            )
            for rho, iterations, memory in itertools.product(RHO, ITERATIONS, memories)
        }
        goal = 1.02 * min(errors.min() for _, errors in curves.values())
        print(f"{name}: CPU seconds to a test error of {goal:.4f}", flush=True)
        print(f"  {'rho':<9}{'iterations':<12}{'memory':>6}{'seconds':>9}{'in all':>9}{'error':>9}")
        for (rho, iterations, memory), (seconds, errors) in curves.items():
            reached = np.flatnonzero(errors <= goal)
            to_goal = f"{seconds[reached[0]]:9.1f}" if len(reached) else f"{'-':>9}"
            print(f"  {rho:<9}{iterations:<12}{memory:>6}{to_goal}{seconds[-1]:9.1f}{errors[-1]:9.4f}")


if __name__ == "__main__":
    main()
