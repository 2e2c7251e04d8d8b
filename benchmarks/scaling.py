"""Measure growth: time with pixels, iterations, images and threads, memory with images and iterations."""

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import NamedTuple

from child import make_images
from measuring import (
    Row,
    affordable,
    at_least,
    at_most,
    child,
    circumstances,
    interleaved,
    lattice_problem,
    seconds,
    show,
    slope,
)
from sklearn.exceptions import ConvergenceWarning

from skcrf import GridCRFClassifier
from skcrf.inference import TRW


class Sizes(NamedTuple):
    """What grows, and what stays.

    Attributes
    ----------
    sides : tuple of int
        Heights of lattices, whose width is half as much again.
    shape : tuple of int
        Height and width where they stay.
    iterations, images : tuple of int
        What grows; the images by pairs.
    budget : float
        Seconds for each curve, about.
    """

    sides: tuple
    shape: tuple
    iterations: tuple
    images: tuple
    budget: float


FULL = Sizes((50, 100, 200, 400), (120, 160), (5, 10, 20, 40, 80), (4, 8, 16, 32), 20.0)
QUICK = Sizes((24, 48, 96), (40, 60), (5, 10, 20, 40), (2, 4, 8), 1.0)


class Curve(NamedTuple):
    """One thing that grows with another."""

    name: str
    unit: str
    sizes: list
    values: list


def timed(name, jobs, budget):
    """Time jobs, named by their size, in turn; returns a Curve."""
    rounds = affordable(lambda: [job() for job in jobs.values()], budget, 9)
    return Curve(name, "s", list(jobs), list(interleaved(jobs, rounds).values()))


def infer(problem, iterations):
    """Return a job: truncated inference."""
    return lambda: TRW(max_iter=iterations).forward(*problem) and None


def fit(n_images, shape, n_jobs=1):
    """Return a job: a few steps of a fit, the same steps for any number of images."""
    X, Y = make_images(2, shape, 10, 2)
    X, Y = n_images // 2 * X, n_images // 2 * Y
    crf = GridCRFClassifier(inference=TRW(max_iter=10), max_iter=2, tol=0.0, n_jobs=n_jobs)
    return lambda: crf.fit(X, Y) is None


def time_curves(sizes):
    """Measure how time grows."""
    lattices = {h * (3 * h // 2): lattice_problem(h, 3 * h // 2, 5) for h in sizes.sides}
    yield timed("pixels", {n: infer(problem, 10) for n, problem in lattices.items()}, sizes.budget)
    problem = lattice_problem(*sizes.shape, 5)
    yield timed("iterations", {n: infer(problem, n) for n in sizes.iterations}, sizes.budget)
    yield timed("images", {n: fit(n, sizes.shape) for n in sizes.images}, sizes.budget)


def memory_curves(sizes):
    """Measure how memory grows; every point is a process of its own."""
    shape = ("--shape", 120, 160, "--features", 50, "--steps", 1)
    for name, option, values, rest in (
        ("images", "--images", sizes.images, ("--iterations", 5)),
        ("iterations", "--iterations", sizes.iterations, ("--images", 1)),
    ):
        told = [child(*shape, *rest, option, value) for value in values]
        used = [(answer["peak"] - answer["before"]) / 1e6 for answer in told]
        yield Curve(f"memory, {name}", "MB", list(values), used)
        if name == "images":
            yield Curve("features, images", "MB", list(values), [answer["features"] / 1e6 for answer in told])
        else:
            yield Curve("tape, iterations", "MB", list(values), [answer["tape"] / 1e6 for answer in told])


def rows_of(curves):
    """Hold the curves to their goals."""
    for name in ("pixels", "iterations", "images"):
        curve = curves[name]
        found = slope(curve.sizes, curve.values)
        yield Row(f"exponent of growth with {name}", "0.9 to 1.1", f"{found:.2f}", 0.9 <= found <= 1.1)
    used, given = curves["memory, images"].values, curves["features, images"].values
    more = (used[-1] - used[0]) / (given[-1] - given[0])
    yield at_most("memory of more images against their features", more, 1.3)
    used, given = curves["memory, iterations"].values, curves["tape, iterations"].values
    more = (used[-1] - used[0]) / (given[-1] - given[0])
    yield at_most("memory of more iterations against their tape", more, 1.5)
    threads = curves["threads"]
    if len(threads.sizes) > 1:
        ratio = threads.values[0] / threads.values[1]
        yield at_least("two threads over images", ratio, 1.8)


def large_fit():
    """Fit 200 images of 120 x 160 pixels with 100 features; returns its Row."""
    told = child("--images", 200, "--shape", 120, 160, "--features", 100, "--steps", 1)
    ratio = (told["peak"] - told["before"]) / told["features"]
    what = f"memory of 200 images against their features; imports took {told['before'] / 1e6:.0f} MB"
    return at_most(what, ratio, 1.3)


def plot(curves, facts, path):
    """Draw all curves."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    panels = {
        "time, pixels": ["pixels"],
        "time, iterations": ["iterations"],
        "time, images": ["images"],
        "time, threads": ["threads"],
        "memory, images": ["memory, images", "features, images"],
        "memory, iterations": ["memory, iterations", "tape, iterations"],
    }
    figure, axes = plt.subplots(2, 3, figsize=(10, 6), layout="constrained")
    for ax, (title, names) in zip(axes.flat, panels.items(), strict=True):
        for name in names:
            curve = curves[name]
            ax.plot(curve.sizes, curve.values, "o-", label=name.split(",")[0])
        what, grown = title.split(", ")
        if what == "time":
            first = curve.values[0] / curve.sizes[0] if grown != "threads" else curve.values[0]
            ideal = [first / n if grown == "threads" else first * n for n in curve.sizes]
            ax.plot(curve.sizes, ideal, "k:", label="in proportion")
            ax.set(xscale="log", yscale="log", title=f"exponent {slope_of(curve)}")
            ax.minorticks_off()
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter("{x:g}")
        else:
            ax.set_ylim(bottom=0)
        ax.set_xticks(curve.sizes, [f"{n:g}" if n < 1e4 else f"{n / 1000:.3g}k" for n in curve.sizes])
        ax.set(xlabel=grown, ylabel=f"{what} [{curve.unit}]")
        ax.grid(alpha=0.3)
        ax.legend(frameon=False)
    figure.suptitle(f"Growth; commit {facts['commit']}", fontsize="medium")
    figure.savefig(path, dpi=120)


def slope_of(curve):
    """Write the exponent of growth of a curve."""
    return f"{slope(curve.sizes, curve.values):.2f}" if len(curve.sizes) > 1 else "unknown"


def main():
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, without the large fit")
    parser.add_argument("--json", metavar="OUT", help="write everything that was measured")
    parser.add_argument("--plot", metavar="OUT", help="draw the curves")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    sizes = QUICK if args.quick else FULL
    facts = circumstances()
    print("\n".join(f"{name}: {value}" for name, value in facts.items()) + "\n")
    n_threads = [n for n in (1, 2, 4, 8) if n <= (os.cpu_count() or 1)]
    jobs = {n: fit(sizes.images[-1], sizes.shape, n) for n in n_threads}
    curves = [*time_curves(sizes), timed("threads", jobs, sizes.budget), *memory_curves(sizes)]
    by_name = {curve.name: curve for curve in curves}
    rows = [*rows_of(by_name), *([] if args.quick else [large_fit()])]
    show(rows)
    print()
    for curve in curves:
        points = zip(curve.sizes, curve.values, strict=True)
        print(curve.name.ljust(20), ", ".join(f"{size}: {value:.3g} {curve.unit}" for size, value in points))
    if args.json:
        found = {**facts, "rows": [r._asdict() for r in rows], "curves": [c._asdict() for c in curves]}
        Path(args.json).write_text(json.dumps(found, indent=1))
    if args.plot:
        plot(by_name, facts, args.plot)


if __name__ == "__main__":
    print(f"took {seconds(main):.0f} s")
