"""Measure how time and memory grow with pixels, iterations, images and threads."""

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import NamedTuple

from measuring import (
    Row,
    at_least,
    at_most,
    environment,
    lattice_problem,
    median_times,
    print_goals,
    rounds_within,
    run_script,
    seconds,
    slope,
)
from sklearn.exceptions import ConvergenceWarning
from timed_fit import make_images

from skcrf import GridCRFClassifier
from skcrf.inference import TRW


class Sizes(NamedTuple):
    """Sizes of the measurements."""

    sides: tuple  # heights of lattices, whose widths are 1.5 times as large
    shape: tuple  # height and width of all other images
    iterations: tuple
    images: tuple  # even numbers
    budget: float  # seconds per curve


FULL = Sizes((50, 100, 200, 400), (120, 160), (5, 10, 20, 40, 80), (4, 8, 16, 32), 20.0)
QUICK = Sizes((24, 48, 96), (40, 60), (5, 10, 20, 40), (2, 4, 8), 1.0)


class Curve(NamedTuple):
    """Measured values by size."""

    name: str
    unit: str
    sizes: list
    values: list


def time_curve(name, jobs, budget):
    """Time jobs, whose keys are their sizes, in turn; return a Curve."""
    rounds = rounds_within(budget, lambda: [job() for job in jobs.values()], 9)
    return Curve(name, "s", list(jobs), list(median_times(jobs, rounds).values()))


def inference_job(problem, iterations):
    """Return a job of truncated inference."""
    return lambda: TRW(max_iter=iterations).forward(*problem) and None


def fit_job(n_images, shape, n_jobs=1):
    """Return a job of a fit with a few iterations, the same for any number of images."""
    X, Y = make_images(2, shape, 10, 2)
    X, Y = n_images // 2 * X, n_images // 2 * Y
    crf = GridCRFClassifier(inference=TRW(max_iter=10), max_iter=2, tol=0.0, n_jobs=n_jobs)
    return lambda: crf.fit(X, Y) is None


def time_curves(sizes):
    """Measure the growth of time."""
    lattices = {h * (3 * h // 2): lattice_problem(h, 3 * h // 2, 5) for h in sizes.sides}
    jobs = {n: inference_job(problem, 10) for n, problem in lattices.items()}
    yield time_curve("pixels", jobs, sizes.budget)
    problem = lattice_problem(*sizes.shape, 5)
    yield time_curve("iterations", {n: inference_job(problem, n) for n in sizes.iterations}, sizes.budget)
    yield time_curve("images", {n: fit_job(n, sizes.shape) for n in sizes.images}, sizes.budget)


def memory_curves(sizes):
    """Measure the growth of memory, with one process per point."""
    shape = ("--shape", 120, 160, "--features", 50, "--steps", 1)
    # Compile the kernels of this shape in another process: LLVM needs several times the memory of a fit.
    run_script(*shape)
    for name, option, values, rest in (
        ("images", "--images", sizes.images, ("--iterations", 5)),
        ("iterations", "--iterations", sizes.iterations, ("--images", 1)),
    ):
        answers = [run_script(*shape, *rest, option, value) for value in values]
        used = [(answer["peak"] - answer["before"]) / 1e6 for answer in answers]
        yield Curve(f"memory, {name}", "MB", list(values), used)
        part = "features" if name == "images" else "tape"
        yield Curve(f"{part}, {name}", "MB", list(values), [answer[part] / 1e6 for answer in answers])


def goal_rows(curves):
    """Compare the curves with their goals."""
    for name in ("pixels", "iterations", "images"):
        curve = curves[name]
        exponent = slope(curve.sizes, curve.values)
        yield Row(f"exponent of growth with {name}", "0.9 to 1.1", f"{exponent:.2f}", 0.9 <= exponent <= 1.1)
    used, data = curves["memory, images"].values, curves["features, images"].values
    ratio = (used[-1] - used[0]) / (data[-1] - data[0])
    yield at_most("memory of more images against their features", ratio, 1.3)
    used, tape = curves["memory, iterations"].values, curves["tape, iterations"].values
    ratio = (used[-1] - used[0]) / (tape[-1] - tape[0])
    yield at_most("memory of more iterations against their tape", ratio, 1.5)
    threads = curves["threads"]
    if len(threads.sizes) > 1:
        ratio = threads.values[0] / threads.values[1]
        yield at_least("two threads over images", ratio, 1.85)


def large_fit():
    """Fit 200 images of 120 x 160 pixels with 100 features; return its Row."""
    answer = run_script("--images", 200, "--shape", 120, 160, "--features", 100, "--steps", 1)
    ratio = (answer["peak"] - answer["before"]) / answer["features"]
    imports = f"{answer['before'] / 1e6:.0f} MB"
    return at_most(f"memory of 200 images against their features, without imports ({imports})", ratio, 1.3)


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
        quantity, size = title.split(", ")
        if quantity == "time":
            first = curve.values[0] / curve.sizes[0] if size != "threads" else curve.values[0]
            ideal = [first / n if size == "threads" else first * n for n in curve.sizes]
            ax.plot(curve.sizes, ideal, "k:", label="proportional")
            ax.set(xscale="log", yscale="log", title=f"exponent {format_slope(curve)}")
            ax.minorticks_off()
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter("{x:g}")
        else:
            ax.set_ylim(bottom=0)
        ax.set_xticks(curve.sizes, [f"{n:g}" if n < 1e4 else f"{n / 1000:.3g}k" for n in curve.sizes])
        ax.set(xlabel=size, ylabel=f"{quantity} [{curve.unit}]")
        ax.grid(alpha=0.3)
        ax.legend(frameon=False)
    figure.suptitle(f"Growth; commit {facts['commit']}", fontsize="medium")
    figure.savefig(path, dpi=120)


def format_slope(curve):
    """Format the exponent of growth of a curve."""
    return f"{slope(curve.sizes, curve.values):.2f}" if len(curve.sizes) > 1 else "unknown"


def main():
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, without the large fit")
    parser.add_argument("--json", metavar="OUT", help="write all measurements")
    parser.add_argument("--plot", metavar="OUT", help="draw the curves")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    sizes = QUICK if args.quick else FULL
    facts = environment()
    print("\n".join(f"{name}: {value}" for name, value in facts.items()) + "\n")
    n_threads = [n for n in (1, 2, 4, 8) if n <= (os.cpu_count() or 1)]
    jobs = {n: fit_job(sizes.images[-1], sizes.shape, n) for n in n_threads}
    curves = [*time_curves(sizes), time_curve("threads", jobs, sizes.budget), *memory_curves(sizes)]
    by_name = {curve.name: curve for curve in curves}
    rows = [*goal_rows(by_name), *([] if args.quick else [large_fit()])]
    print_goals(rows)
    print()
    for curve in curves:
        points = zip(curve.sizes, curve.values, strict=True)
        print(curve.name.ljust(20), ", ".join(f"{size}: {value:.3g} {curve.unit}" for size, value in points))
    if args.json:
        results = {"rows": [row._asdict() for row in rows], "curves": [c._asdict() for c in curves]}
        Path(args.json).write_text(json.dumps(facts | results, indent=1))
    if args.plot:
        plot(by_name, facts, args.plot)


if __name__ == "__main__":
    print(f"took {seconds(main):.0f} s")
