"""Measure the shares of CPU time in a fit of photographs: inference, feature products, set-up.

    python benchmarks/fit_profile.py --data DIR

Fits `GridCRFClassifier` to Weizmann horses (2 labels) or Stanford backgrounds (8 labels) at half of the
stored resolution. Pixels have 64 features, Fourier features of colour and position. Edges have a constant and
20 thresholds of the difference of their pixels, with weights of their own in each direction.
"""

import argparse
import cProfile
import json
import pstats
import time
import warnings
from pathlib import Path

import numpy as np
from measuring import environment
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skcrf import GridCRFClassifier
from skcrf.inference import TRW
from skcrf.preprocessing import FourierFeatures, PixelWise

#: File, and the images to fit, of each set.
SETS = {
    "horses": ("weizmann_horses/horses.npz", lambda data: data["is_train"]),
    "scenes": ("stanford_background/stanford_background_half.npz", lambda data: data["fold"] != 5),
}


def above_thresholds(differences):
    """Compare the root mean square of differences with thresholds."""
    size = np.sqrt(np.square(differences).mean(axis=1, keepdims=True))
    return (size > np.linspace(0.05, 1.5, 20)).astype(np.float32)


def load(folder, name, n, step):
    """Read images with features and labels."""
    file, is_train = SETS[name]
    with np.load(folder / file) as data:
        images, labels, sizes, train = data["images"], data["labels"], data["sizes"], is_train(data)
    chosen = np.flatnonzero(train)[:n]
    X = [images[i, : sizes[i][0] : step, : sizes[i][1] : step] / 255.0 for i in chosen]
    Y = [np.ma.masked_less(labels[i, : sizes[i][0] : step, : sizes[i][1] : step], 0) for i in chosen]
    return make_pipeline(FourierFeatures(), PixelWise(StandardScaler())).fit_transform(X), Y


def seconds_in(stats, folders, names):
    """Sum the time of functions by folder and name, without calls by one another."""

    def is_chosen(function):
        file, _, name = function
        return name in names and any(f"/skcrf/{folder}" in file.replace("\\", "/") for folder in folders)

    return sum(
        times[3]
        for function, (_, _, _, _, callers) in stats.items()
        if is_chosen(function)
        for caller, times in callers.items()
        if not is_chosen(caller)
    )


def profile(job):
    """Call a job; return its CPU time, and the CPU time in each part of it by name."""
    profiler = cProfile.Profile(time.process_time)
    start = time.process_time()
    profiler.runcall(job)
    total = time.process_time() - start
    stats = pstats.Stats(profiler).stats
    inference = ("inference/", "gradients/")
    families = [f"inference/_{name}/engine.py" for name in ("lattice", "pairwise", "factor")]
    parts = {
        "inference forward, with set-up": seconds_in(stats, inference, ["forward"]),
        "inference backward": seconds_in(stats, inference, ["backward"]),
        "potentials from features": seconds_in(stats, ["models/"], ["potentials"]),
        "gradient of weights": seconds_in(stats, ["models/"], ["pull_back"]),
    }
    rest = total - sum(parts.values())
    set_up = seconds_in(stats, families, ["__init__"])
    return total, {**parts, "everything else": rest, "of forward: set-up of engines": set_up}


def main():
    """Fit, and print the shares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--set", choices=SETS, default="horses", help="set of images")
    parser.add_argument("--images", type=int, default=32, help="number of images")
    parser.add_argument("--step", type=int, default=2, help="use every so many rows and columns")
    parser.add_argument("--iterations", type=int, default=10, help="iterations of TRW")
    parser.add_argument("--max-iter", type=int, default=20, help="iterations of L-BFGS")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64", help="of features")
    parser.add_argument("--shared", action="store_true", help="edges have a constant only")
    parser.add_argument("--json", metavar="OUT", help="write all measurements")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, Y = load(args.data, args.set, args.images, args.step)
    X = [np.ascontiguousarray(x, dtype=args.dtype) for x in X]
    crf = GridCRFClassifier(
        inference=TRW(rho=0.5, max_iter=args.iterations),
        edge_features="bias" if args.shared else FunctionTransformer(above_thresholds),
        max_iter=args.max_iter,
        tol=0.0,
        n_jobs=1,
    )
    crf.fit(X, Y)  # compiles or loads the kernels
    total, parts = profile(lambda: crf.fit(X, Y))
    facts = environment() | {
        "fit": f"{len(X)} images ({args.set}), {X[0].shape[-1]} features, {len(crf.classes_)} labels, "
        f"{crf.edge_coef_.shape[0]} features of edges, {crf.n_iter_} iterations of L-BFGS",
        "CPU": f"{total:.2f} s",
    }
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    for name, part in parts.items():
        print(f"{name:32} {part:7.2f} s {part / total:6.1%}")
    if args.json:
        Path(args.json).write_text(json.dumps(facts | {"seconds": parts}, indent=1))


if __name__ == "__main__":
    main()
