"""Measure the time of one gradient by each strategy, for grids of several sizes and interaction strengths.

The experiment of Domke (2010), figure 2: five labels, unary potentials uniform in [-1, 1] and pairwise
potentials uniform in [-a, a], with one table per edge. Inference runs until messages change by less than
`TOL`. The time of a gradient excludes the inference.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measuring import (
    GOALS_HEADER,
    Problem,
    at_most,
    cells_of,
    environment,
    median_times,
    print_goals,
    rounds_within,
    rst_table,
    seconds,
    slope,
)
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from skcrf.gradients import Backprop, Implicit, Perturbation
from skcrf.graph import Potentials, lattice
from skcrf.inference import BP, TRW
from skcrf.parallel import workers

TOL = 1e-5
N_STATES = 5
INFERENCE = {"BP": BP(max_iter=500, tol=TOL), "TRW": TRW(rho=0.5, max_iter=500, tol=TOL)}
STRATEGIES = {
    "perturbation": Perturbation(),
    "back-propagation": Backprop(),
    "direct": Implicit(solver="direct"),
    "iterative": Implicit(solver="iterative", tol=1e-6),
}
TRUNCATED = 10


class Sizes(NamedTuple):
    """Sizes of the measurements."""

    sides: tuple  # heights and widths of grids with interactions of strength 1
    strengths: tuple  # strengths of interactions on grids of height and width `side`
    side: int
    budget: float  # seconds per point
    most: int  # largest number of rounds


FULL = Sizes((8, 16, 32, 64, 128), (0.25, 0.5, 1.0, 1.5, 2.0, 2.5), 32, 10.0, 15)
QUICK = Sizes((8, 16, 32), (0.5, 1.0, 2.0), 16, 0.5, 5)


class Point(NamedTuple):
    """The times of one problem."""

    inference: str
    side: int
    strength: float
    n_iter: int
    converged: bool  # without a fixed point there is no gradient
    times: dict  # seconds of the inference, and of a gradient by each strategy


def uniform_problem(side, strength, seed=0):
    """Draw a grid with uniform potentials."""
    rng = np.random.default_rng(seed)
    graph = lattice(side, side, tied=False)
    unary = rng.uniform(-1, 1, size=(graph.n_nodes, N_STATES))
    tables = rng.uniform(-strength, strength, size=(graph.n_tables, N_STATES, N_STATES))
    return Problem(graph, Potentials(unary, tables))


def derivative(mu, seed=1):
    """Compute the derivative of the univariate logistic loss for random labels."""
    y = np.random.default_rng(seed).integers(mu.shape[1], size=len(mu))
    return -np.eye(mu.shape[1])[y] / mu


def measure(name, side, strength, sizes):
    """Time inference and gradients on one problem; return a Point."""
    problem, inference = uniform_problem(side, strength), INFERENCE[name]
    beliefs = inference.forward(*problem)
    jobs = {"inference": lambda: inference.forward(*problem) and None}
    if beliefs.converged.all():
        d_mu = derivative(beliefs.mu)
        for title, strategy in STRATEGIES.items():
            wrapped = strategy.wrap(inference)
            wrapped_beliefs = wrapped.forward(*problem)
            jobs[title] = lambda wrapped=wrapped, b=wrapped_beliefs: wrapped.backward(b, d_mu=d_mu) and None
    rounds = rounds_within(sizes.budget, lambda: [job() for job in jobs.values()], sizes.most)
    times = median_times(jobs, rounds)
    return Point(name, side, strength, int(beliefs.n_iter[0]), bool(beliefs.converged.all()), times)


def truncated_ratio(name, side, sizes):
    """Return the time of a truncated gradient relative to its forward pass."""
    problem = uniform_problem(side, 1.0)
    inference = clone(INFERENCE[name]).set_params(max_iter=TRUNCATED, tol=0.0)
    wrapped = Backprop().wrap(inference)
    d_mu = derivative(inference.forward(*problem).mu)
    jobs = {
        "forward": lambda: inference.forward(*problem) and None,
        "gradient": lambda: wrapped.backward(wrapped.forward(*problem), d_mu=d_mu) and None,
    }
    with workers(1):  # reuses memory, as in a fit
        rounds = rounds_within(sizes.budget, lambda: [job() for job in jobs.values()], sizes.most)
        times = median_times(jobs, rounds)
    return times["gradient"] / times["forward"]


def measure_all(sizes):
    """Measure all points."""
    for name in INFERENCE:
        grids = [(side, 1.0) for side in sizes.sides]
        grids += [(sizes.side, a) for a in sizes.strengths if (sizes.side, a) not in grids]
        for side, strength in grids:
            yield measure(name, side, strength, sizes)


def goal_rows(points, sizes):
    """Compare the times on the largest grids with their goals."""
    for name in INFERENCE:
        (largest,) = [p for p in points if p[:3] == (name, sizes.sides[-1], 1.0)]
        where, times = f"{name}, {largest.side} x {largest.side}", largest.times
        for title, goal in (("perturbation", 2.2), ("back-propagation", 2.0)):
            ratio = times[title] / times["inference"] if largest.converged else None
            yield at_most(f"{title} against inference, {where}", ratio, goal)
        for side in sizes.sides[-3:]:
            ratio = truncated_ratio(name, side, sizes)
            yield at_most(f"truncated gradient against its forward pass, {name}, {side} x {side}", ratio, 3.0)


def plot(points, sizes, facts, path):
    """Draw the times against size and strength."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 6.5), sharey=True, layout="constrained")
    for row, name in zip(axes, INFERENCE, strict=True):
        own = [point for point in points if point.inference == name]
        lines = {
            "side": [point for point in own if point.strength == 1.0 and point.side in sizes.sides],
            "strength": sorted((p for p in own if p.side == sizes.side), key=lambda p: p.strength),
        }
        for ax, (axis, line) in zip(row, lines.items(), strict=True):
            for title in ("inference", *STRATEGIES):
                timed = [point for point in line if title in point.times]
                style = "k--" if title == "inference" else "o-"
                values = [point.times[title] for point in timed]
                ax.plot([getattr(point, axis) for point in timed], values, style, label=title, markersize=4)
            ax.set(yscale="log", ylabel="time [s]")
            ax.grid(alpha=0.3)
        row[0].set(xscale="log", xlabel="height and width of the grid", title=f"{name}, strength 1")
        row[0].set_xticks(sizes.sides, sizes.sides)
        row[0].minorticks_off()
        row[1].set(xlabel="strength of interactions", title=f"{name}, {sizes.side} x {sizes.side}")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(f"Time of one gradient; commit {facts['commit']}", fontsize="medium")
    figure.savefig(path, dpi=120)


def print_points(points, sizes):
    """Print the times, and their growth with the number of pixels."""
    for point in points:
        head = f"{point.inference:<3} {point.side:>3} x {point.side:<3} a = {point.strength:<4}"
        note = f"{point.n_iter} iterations" if point.converged else "no fixed point"
        times = ", ".join(f"{title} {1000 * value:.3g} ms" for title, value in point.times.items())
        print(f"{head} {times} ({note})")
    print()
    for name in INFERENCE:
        line = [point for point in points if point.inference == name and point.strength == 1.0]
        line = [point for point in line if point.side in sizes.sides and point.converged]
        for title in ("inference", *STRATEGIES):
            pixels, values = [p.side**2 for p in line], [p.times[title] for p in line]
            print(f"{name:<3} {title:<16} time grows as pixels ** {slope(pixels, values):.2f}")


def rst(facts, rows, points):
    """Format the tables of the documentation page."""
    fields = "\n".join(f":{name}: {value}" for name, value in facts.items())
    goals = rst_table(GOALS_HEADER, map(cells_of, rows))
    header = ("milliseconds", "strength", "iterations", "inference", *STRATEGIES)
    times = [
        (
            f"{point.inference}, {point.side} x {point.side}",
            f"{point.strength:g}",
            point.n_iter if point.converged else "no fixed point",
            *(f"{1000 * point.times[t]:.3g}" if t in point.times else "-" for t in header[3:]),
        )
        for point in points
    ]
    return f"{fields}\n\n{goals}\n{rst_table(header, times)}"


def main():
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small grids, few rounds")
    parser.add_argument("--json", metavar="OUT", help="write all measurements")
    parser.add_argument("--rst", metavar="OUT", help="write the tables of the documentation page")
    parser.add_argument("--plot", metavar="OUT", help="draw the times")
    args = parser.parse_args()
    sizes, facts = QUICK if args.quick else FULL, environment()
    print("\n".join(f"{name}: {value}" for name, value in facts.items()) + "\n")
    with threadpool_limits(1):  # as in a fit, which uses threads for images
        points = list(measure_all(sizes))
        rows = list(goal_rows(points, sizes))
    print_goals(rows)
    print()
    print_points(points, sizes)
    if args.json:
        results = {"rows": [row._asdict() for row in rows], "points": [p._asdict() for p in points]}
        Path(args.json).write_text(json.dumps(facts | results, indent=1))
    if args.rst:
        Path(args.rst).write_text(rst(facts, rows, points))
    if args.plot:
        plot(points, sizes, facts, args.plot)


if __name__ == "__main__":
    print(f"took {seconds(main):.0f} s")
