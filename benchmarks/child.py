"""Fit in a process of its own and print, as one line of JSON, what it took; the other scripts call it.

All memory is in bytes; `before` is the resident size with everything imported, compiled and used once, so
that `peak - before` is what data and fit need.
"""

import argparse
import json
import threading
import time
import warnings
from contextlib import contextmanager

import numpy as np
from measuring import forget_peak, peak_memory, resident_memory, seconds
from sklearn.exceptions import ConvergenceWarning

from skcrf import GridCRFClassifier
from skcrf.inference import INFERENCE, TRW


def make_images(n_images, shape, n_features, n_classes, dtype=np.float32, seed=0):
    """Make images of square patches whose features tell the labels, with noise.

    Parameters
    ----------
    n_images : int
        How many.
    shape : tuple of int
        Height and width.
    n_features, n_classes : int
        Features of a pixel, and labels.
    dtype : dtype, default=numpy.float32
        Of the features.
    seed : int, default=0
        Seed.

    Returns
    -------
    X : list of ndarray of shape (height, width, n_features)
        Images.
    Y : list of ndarray of shape (height, width)
        Labels.
    """
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n_classes, n_features)).astype(dtype)
    X, Y = [], []
    for _ in range(n_images):
        patches = rng.integers(n_classes, size=(shape[0] // 10 + 1, shape[1] // 10 + 1))
        Y.append(np.kron(patches, np.ones((10, 10), dtype=np.int64))[: shape[0], : shape[1]])
        X.append(
            2 * rng.standard_normal(size=(*shape, n_features), dtype=np.float32).astype(dtype, copy=False)
        )
        X[-1] += means[Y[-1]]
    return X, Y


@contextmanager
def inference_clock():
    """Count the seconds that are spent behind the inference door; yields a list whose sum they are."""
    spent, inside = [], threading.local()

    def timed(method):
        def call(*args, **kwargs):
            if getattr(inside, "now", False):  # a method that uses another
                return method(*args, **kwargs)
            inside.now, start = True, time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                inside.now = False
                spent.append(time.perf_counter() - start)

        return call

    own = {
        (kind, verb): getattr(kind, verb) for kind in INFERENCE.values() for verb in ("forward", "backward")
    }
    given = {key: key[1] in vars(key[0]) for key in own}
    for (kind, verb), method in own.items():
        setattr(kind, verb, timed(method))
    try:
        yield spent
    finally:
        for (kind, verb), method in own.items():
            setattr(kind, verb, method) if given[kind, verb] else delattr(kind, verb)


def main():
    """Fit, and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--shape", type=int, nargs=2, default=(40, 40))
    parser.add_argument("--features", type=int, default=4)
    parser.add_argument("--labels", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=10, help="of the inference")
    parser.add_argument("--steps", type=int, default=5, help="of the optimizer, at most")
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--fits", type=int, default=1)
    parser.add_argument("--cold", action="store_true", help="do not use anything before the first fit")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # a few steps are meant
    estimator = GridCRFClassifier(
        inference=TRW(max_iter=args.iterations), max_iter=args.steps, tol=0.0, n_jobs=args.n_jobs
    )
    if not args.cold:
        estimator.fit(*make_images(2, (20, 20), args.features, args.labels))
    before = resident_memory()
    forget_peak()  # of compiling, which needs more than a small fit
    X, Y = make_images(args.images, args.shape, args.features, args.labels)
    with inference_clock() as spent:
        times = [seconds(lambda: estimator.fit(X, Y)) for _ in range(args.fits)]
    numbers = 1 if args.labels == 2 else args.labels
    answer = {
        "seconds": times,
        "inference": sum(spent),
        "before": before,
        "peak": peak_memory(),
        "features": sum(image.nbytes for image in X),
        "tape": args.iterations * 4 * args.shape[0] * args.shape[1] * numbers * 8,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
