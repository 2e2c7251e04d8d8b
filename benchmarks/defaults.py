"""Measure the CPU time to a given test error, to choose the defaults of inference and L-BFGS.

    python benchmarks/defaults.py --data DIR

Fits `GridCRFClassifier` to three sets of real images, with each combination of edge weights and iterations of
the inference, and with several sizes of the L-BFGS memory. A callback keeps the weights and the CPU time of
each iteration; the test error of these weights is computed afterwards. The goal is the lowest error of all
settings plus 5 %.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measuring import rst_table
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcrf import GridCRFClassifier
from skcrf.inference import TRW
from skcrf.optimizers import LBFGS
from skcrf.preprocessing import FourierFeatures, PixelWise

#: Edge weights: those of a distribution over spanning trees, and equal ones.
RHO = {"spanning_trees": "spanning_trees", "0.5": 0.5}
#: Iterations and tolerance of the inference.
ITERATIONS = {"5": (5, 0.0), "10": (10, 0.0), "20": (20, 0.0), "tol=1e-3": (100, 1e-3)}


class Setting(NamedTuple):
    """One row of the table."""

    rho: str
    iterations: str
    memory: int


#: The default memory with all inferences, and other memories with the default inference.
SETTINGS = [Setting(rho, iterations, 10) for rho in RHO for iterations in ITERATIONS]
SETTINGS += [Setting("0.5", "10", memory) for memory in (5, 20)]
HEADER = ("``rho``", "``max_iter``", "L-BFGS ``memory``")


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
    """Read colour images and labels, with Fourier features of colours and positions."""
    with np.load(file) as data:
        images, labels, sizes, train = data["images"], data["labels"], data["sizes"], is_train(data)
    chosen = [np.flatnonzero(train)[:n_train], np.flatnonzero(~train)[:n_test]]
    X = [[images[i, : sizes[i][0], : sizes[i][1]] / 255.0 for i in part] for part in chosen]
    Y = [[np.ma.masked_less(labels[i, : sizes[i][0], : sizes[i][1]], 0) for i in part] for part in chosen]
    features = make_pipeline(FourierFeatures(), PixelWise(StandardScaler())).fit(X[0])
    return [(features.transform(x), y) for x, y in zip(X, Y, strict=True)]


def load(folder, n):
    """Return training and test set of each problem, by name; `n` images are in each test set."""
    return {
        "denoising, 2 labels": denoising(folder, n // 2, n),
        "horses, 2 labels": colour_images(
            folder / "weizmann_horses" / "horses.npz", lambda data: data["is_train"], n, n
        ),
        "scenes, 8 labels": colour_images(
            folder / "stanford_background" / "stanford_background_half.npz",
            lambda data: data["fold"] != 5,
            n,
            n,
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


def fit(train, setting, steps):
    """Fit with one setting; return the Recorder."""
    max_iter, tol = ITERATIONS[setting.iterations]
    crf = GridCRFClassifier(
        inference=TRW(rho=RHO[setting.rho], max_iter=max_iter, tol=tol),
        optimizer=LBFGS(memory=setting.memory, precondition=False),
        init="independent",
        max_iter=steps,
    )
    recorder = Recorder()
    crf.set_callbacks(recorder).fit(*train)
    return recorder


def run(train, test, setting, steps):
    """Fit with one setting; return the CPU time and the test error of each iteration."""
    fit([part[:1] for part in train], setting, 2)  # compile the kernels
    recorder = fit(train, setting, steps)
    every = range(0, len(recorder.fits), max(1, len(recorder.fits) // 20))
    errors = np.array([1 - recorder.fits[i].score(*test) for i in every])
    return np.array(recorder.seconds)[every], errors


def time_to_goal(curves):
    """Return the goal of a problem, and a cell of the table for each setting.

    A cell has the seconds to the goal, or "-", and the last test error.
    """
    goal = 1.05 * min(errors.min() for _, errors in curves.values())
    cells = {}
    for setting, (seconds, errors) in curves.items():
        reached = np.flatnonzero(errors <= goal)
        to_goal = f"{seconds[reached[0]]:.1f} s" if len(reached) else "not reached"
        cells[setting] = f"{to_goal} ({errors[-1]:.4f})"
    return goal, cells


def main():
    """Run all settings and print a table per set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--images", type=int, default=8, help="test images of each set")
    parser.add_argument("--steps", type=int, default=30, help="iterations of L-BFGS")
    parser.add_argument("--rst", type=Path, help="write the table of the documentation")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", "LBFGS did not converge")
    columns = {}
    for name, (train, test) in load(args.data, args.images).items():
        goal, cells = time_to_goal({setting: run(train, test, setting, args.steps) for setting in SETTINGS})
        columns[f"{name}: time to {goal:.3g} (last error)"] = cells
        print(f"{name}: CPU time to a test error of {goal:.4f}, and the last error")
        for setting, cell in cells.items():
            print(f"  {setting.rho:<16}{setting.iterations:<10}{setting.memory:>4}  {cell}", flush=True)
    rows = [(*map(str, setting), *(cells[setting] for cells in columns.values())) for setting in SETTINGS]
    if args.rst:
        args.rst.write_text(rst_table((*HEADER, *columns), rows))


if __name__ == "__main__":
    main()
