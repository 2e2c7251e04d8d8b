"""Compare losses on binary denoising of Berkeley images with Table 1 of Domke (2013).

The paper uses 32 training images of 200 x 300 pixels, 100 test images, and TRW with a tolerance of 1e-4. The
default uses fewer images, which takes minutes instead of an hour. Images are binarised at their mean, and the
noise is ``y = x (1 - t^n) + (1 - x) t^n`` with t uniform.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skcrf import GridCRFClassifier
from skcrf.inference import BP, TRW
from skcrf.losses import SmoothedClassification

#: Test errors in the paper by noise level.
PAPER = {
    "independent": {1.25: 0.424, 1.5: 0.368, 5: 0.129},
    "likelihood": {1.25: 0.143, 1.5: 0.097, 5: 0.030},
    "univariate_logistic": {1.25: 0.126, 1.5: 0.096, 5: 0.030},
    "clique_logistic": {1.25: 0.126, 1.5: 0.096, 5: 0.030},
    "univariate_quadratic": {1.25: 0.126, 1.5: 0.096, 5: 0.030},
    "smoothed_classification": {1.25: 0.125, 1.5: 0.096, 5: 0.030},
    "pseudolikelihood": {1.25: 0.204, 1.5: 0.112, 5: 0.030},
    "piecewise": {1.25: 0.481, 1.5: 0.481, 5: 0.058},
}


def load(folder, noise, n_train, n_test):
    """Read images, binarise them and add noise; return training and test sets."""
    with np.load(folder / "bsds" / "bsds_train200_gray_200x300.npz") as data:
        images, split = data["images"], data["split"]
    labels = (images > images.mean(axis=(1, 2), keepdims=True)).astype(np.int64)
    t = np.random.default_rng(0).random(labels.shape) ** noise
    noisy = np.where(labels == 1, 1 - t, t)
    train, test = np.flatnonzero(split == 0)[:n_train], np.flatnonzero(split == 1)[:n_test]
    return (noisy[train], labels[train]), (noisy[test], labels[test])


def fit(name, train, args):
    """Fit the model of one row of the table."""
    loss = {"independent": "univariate_logistic", "smoothed_classification": SmoothedClassification(alpha=50)}
    inference = BP(max_iter=0) if name == "independent" else TRW(rho=0.5, max_iter=args.inference, tol=1e-4)
    return GridCRFClassifier(
        inference=inference,
        loss=loss.get(name, name),
        alpha=0.0,
        max_iter=args.steps,
        tol=1e-4,
        n_jobs=args.n_jobs,
    ).fit(*train)


def main():
    """Fit, test and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--noise", type=float, choices=[1.25, 1.5, 5], default=1.25, help="lower is noisier")
    parser.add_argument("--train", type=int, default=4, help="number of training images, at most 32")
    parser.add_argument("--test", type=int, default=20, help="number of test images, at most 100")
    parser.add_argument("--steps", type=int, default=40, help="largest number of optimizer iterations")
    parser.add_argument("--inference", type=int, default=300, help="largest number of inference iterations")
    parser.add_argument("--n-jobs", type=int, default=2, help="number of threads")
    parser.add_argument("--losses", nargs="+", choices=PAPER, default=list(PAPER), help="rows of the table")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # printed in the table
    train, test = load(args.data, args.noise, args.train, args.test)
    print(f"noise {args.noise}, {args.train} of 32 training images, {args.test} of 100 test images")
    print(f"{'loss':<26}{'train':>7}{'test':>7}{'paper':>7}{'steps':>7}{'s':>7}  converged")
    for name in args.losses:
        start = time.perf_counter()
        crf = fit(name, train, args)
        elapsed = time.perf_counter() - start
        errors = [1 - crf.score(*part) for part in (train, test)]
        numbers = f"{errors[0]:7.3f}{errors[1]:7.3f}{PAPER[name][args.noise]:7.3f}"
        print(f"{name:<26}{numbers}{crf.n_iter_:7}{elapsed:7.0f}  {crf.converged_}", flush=True)


if __name__ == "__main__":
    main()
