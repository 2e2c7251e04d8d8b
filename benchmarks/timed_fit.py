"""Fit in this process and print time and memory as one line of JSON; called by the other scripts.

Memory is in bytes. `before` is the resident size after imports and a first fit of small images, so that
`peak - before` is the memory of data and fit, if the kernels are cached on disk. Otherwise it includes their
compilation, since larger images use other kernels: call the script twice.
"""

import argparse
import json
import threading
import time
import warnings
from contextlib import contextmanager

import numpy as np
from measuring import peak_memory, reset_peak_memory, resident_memory, seconds
from sklearn.exceptions import ConvergenceWarning

from skcrf import GridCRFClassifier
from skcrf.inference import INFERENCE, TRW


def make_images(n_images, shape, n_features, n_classes, dtype=np.float32, seed=0):
    """Make images of square patches, whose features are the mean of their class plus noise."""
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
    """Time all calls of `forward` and `backward`; yield a list of their seconds."""
    times, inside = [], threading.local()

    def timed(method):
        def call(*args, **kwargs):
            if getattr(inside, "now", False):  # a method that calls another
                return method(*args, **kwargs)
            inside.now, start = True, time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                inside.now = False
                times.append(time.perf_counter() - start)

        return call

    methods = {
        (kind, verb): getattr(kind, verb) for kind in INFERENCE.values() for verb in ("forward", "backward")
    }
    is_own = {(kind, verb): verb in vars(kind) for kind, verb in methods}
    for (kind, verb), method in methods.items():
        setattr(kind, verb, timed(method))
    try:
        yield times
    finally:
        for (kind, verb), method in methods.items():
            setattr(kind, verb, method) if is_own[kind, verb] else delattr(kind, verb)


def main():
    """Fit and print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1, help="number of images")
    parser.add_argument("--shape", type=int, nargs=2, default=(40, 40), help="height and width")
    parser.add_argument("--features", type=int, default=4, help="features per pixel")
    parser.add_argument("--labels", type=int, default=2, help="number of classes")
    parser.add_argument("--iterations", type=int, default=10, help="iterations of the inference")
    parser.add_argument("--steps", type=int, default=5, help="largest number of optimizer iterations")
    parser.add_argument("--n-jobs", type=int, default=1, help="number of threads")
    parser.add_argument("--fits", type=int, default=1, help="number of fits")
    parser.add_argument("--cold", action="store_true", help="no fit before the clock starts")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # fits are stopped early
    estimator = GridCRFClassifier(
        inference=TRW(max_iter=args.iterations), max_iter=args.steps, tol=0.0, n_jobs=args.n_jobs
    )
    if not args.cold:
        estimator.fit(*make_images(2, (20, 20), args.features, args.labels))
    before = resident_memory()
    reset_peak_memory()  # compilation takes more memory than a small fit
    X, Y = make_images(args.images, args.shape, args.features, args.labels)
    with inference_clock() as inference_times:
        times = [seconds(lambda: estimator.fit(X, Y)) for _ in range(args.fits)]
    numbers_per_message = 1 if args.labels == 2 else args.labels
    answer = {
        "seconds": times,
        "inference": sum(inference_times),
        "before": before,
        "peak": peak_memory(),
        "features": sum(image.nbytes for image in X),
        "labels": sum(labels.nbytes for labels in Y),
        "tape": args.iterations * 4 * args.shape[0] * args.shape[1] * numbers_per_message * 8,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
