"""Measure the time of one gradient, by every strategy, with the size of grids and their interactions.

The experiment of Domke (2010), figure 2: five labels, theta of sites uniform in [-1, 1] and of pairs in
[-a, a], each edge with a table of its own. Inference runs until messages change by less than `TOL`; what a
gradient takes comes on top of it.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measuring import (
    Problem,
    affordable,
    at_most,
    circumstances,
    interleaved,
    rst_table,
    seconds,
    show,
    slope,
    verdict,
)
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from skcrf._scratch import reuse_memory
from skcrf.gradients import Backprop, Implicit, Perturbation
from skcrf.graph import Potentials, lattice
from skcrf.inference import BP, TRW

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
    """What to measure.

    Attributes
    ----------
    sides : tuple of int
        Heights and widths of grids, with interactions of strength 1.
    strengths : tuple of float
        Strengths of interactions, on grids of `side`.
    side : int
        Height and width where they stay.
    budget : float
        Seconds for each point, about.
    most : int
        Rounds at most.
    """

    sides: tuple
    strengths: tuple
    side: int
    budget: float
    most: int


FULL = Sizes((8, 16, 32, 64, 128), (0.25, 0.5, 1.0, 1.5, 2.0, 2.5), 32, 10.0, 15)
QUICK = Sizes((8, 16, 32), (0.5, 1.0, 2.0), 16, 0.5, 5)


class Point(NamedTuple):
    """The times of one problem.

    Attributes
    ----------
    inference : str
        The inference.
    side : int
        Height and width of the grid.
    strength : float
        Strength of interactions.
    n_iter : int
        Iterations that inference took.
    converged : bool
        Whether they were enough; without a fixed point there is nothing to differentiate.
    times : dict of str to float
        Seconds of inference, and of a gradient by each strategy, beside the inference.
    """

    inference: str
    side: int
    strength: float
    n_iter: int
    converged: bool
    times: dict


def uniform_problem(side, strength, seed=0):
    """Make a grid with uniform potentials."""
    rng = np.random.default_rng(seed)
    graph = lattice(side, side, tied=False)
    unary = rng.uniform(-1, 1, size=(graph.n_nodes, N_STATES))
    tables = rng.uniform(-strength, strength, size=(graph.n_tables, N_STATES, N_STATES))
    return Problem(graph, Potentials(unary, tables))


def derivative(mu, seed=1):
    """Compute the derivative of the univariate logistic loss of random labels."""
    y = np.random.default_rng(seed).integers(mu.shape[1], size=len(mu))
    return -np.eye(mu.shape[1])[y] / mu


def measure(name, side, strength, sizes):
    """Time inference and gradients on one problem; returns a Point."""
    problem, inference = uniform_problem(side, strength), INFERENCE[name]
    beliefs = inference.forward(*problem)
    jobs = {"inference": lambda: inference.forward(*problem) and None}
    if beliefs.converged.all():
        d_mu = derivative(beliefs.mu)
        for title, strategy in STRATEGIES.items():
            wrapped = strategy.wrap(inference)
            own = wrapped.forward(*problem)
            jobs[title] = lambda wrapped=wrapped, own=own: wrapped.backward(own, d_mu=d_mu) and None
    rounds = affordable(lambda: [job() for job in jobs.values()], sizes.budget, sizes.most)
    times = interleaved(jobs, rounds)
    return Point(name, side, strength, int(beliefs.n_iter[0]), bool(beliefs.converged.all()), times)


def truncated_ratio(name, side, sizes):
    """Measure one truncated gradient, forward and backward, against its forward alone."""
    problem = uniform_problem(side, 1.0)
    inference = clone(INFERENCE[name]).set_params(max_iter=TRUNCATED, tol=0.0)
    wrapped = Backprop().wrap(inference)
    d_mu = derivative(inference.forward(*problem).mu)
    jobs = {
        "forward": lambda: inference.forward(*problem) and None,
        "gradient": lambda: wrapped.backward(wrapped.forward(*problem), d_mu=d_mu) and None,
    }
    with reuse_memory():  # as in a fit
        rounds = affordable(lambda: [job() for job in jobs.values()], sizes.budget, sizes.most)
        times = interleaved(jobs, rounds)
    return times["gradient"] / times["forward"]


def points(sizes):
    """Measure everything."""
    for name in INFERENCE:
        asked = [(side, 1.0) for side in sizes.sides]
        asked += [(sizes.side, a) for a in sizes.strengths if (sizes.side, a) not in asked]
        for side, strength in asked:
            yield measure(name, side, strength, sizes)


def rows_of(found, sizes):
    """Hold the times on the largest grids to their goals."""
    for name in INFERENCE:
        (largest,) = [p for p in found if p[:3] == (name, sizes.sides[-1], 1.0)]
        where, times = f"{name}, {largest.side} x {largest.side}", largest.times
        for title, goal in (("perturbation", 2.2), ("back-propagation", 2.0)):
            ratio = times[title] / times["inference"] if largest.converged else None
            yield at_most(f"{title} against inference, {where}", ratio, goal)
        for side in sizes.sides[-3:]:
            ratio = truncated_ratio(name, side, sizes)
            yield at_most(f"truncated gradient against its forward, {name}, {side} x {side}", ratio, 3.0)


def plot(found, sizes, facts, path):
    """Draw the times against size and strength."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 6.5), sharey=True, layout="constrained")
    for row, name in zip(axes, INFERENCE, strict=True):
        own = [point for point in found if point.inference == name]
        grown = {
            "side": [point for point in own if point.strength == 1.0 and point.side in sizes.sides],
            "strength": sorted((p for p in own if p.side == sizes.side), key=lambda p: p.strength),
        }
        for ax, (what, line) in zip(row, grown.items(), strict=True):
            for title in ("inference", *STRATEGIES):
                at = [point for point in line if title in point.times]
                style = "k--" if title == "inference" else "o-"
                values = [point.times[title] for point in at]
                ax.plot([getattr(point, what) for point in at], values, style, label=title, markersize=4)
            ax.set(yscale="log", ylabel="time [s]")
            ax.grid(alpha=0.3)
        row[0].set(xscale="log", xlabel="height and width of the grid", title=f"{name}, strength 1")
        row[0].set_xticks(sizes.sides, sizes.sides)
        row[0].minorticks_off()
        row[1].set(xlabel="strength of interactions", title=f"{name}, {sizes.side} x {sizes.side}")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(f"Time of one gradient; commit {facts['commit']}", fontsize="medium")
    figure.savefig(path, dpi=120)


def tell(found, sizes):
    """Print the times."""
    for point in found:
        head = f"{point.inference:<3} {point.side:>3} x {point.side:<3} a = {point.strength:<4}"
        note = f"{point.n_iter} iterations" if point.converged else "no fixed point"
        times = ", ".join(f"{title} {1000 * spent:.3g} ms" for title, spent in point.times.items())
        print(f"{head} {times} ({note})")
    print()
    for name in INFERENCE:
        line = [point for point in found if point.inference == name and point.strength == 1.0]
        line = [point for point in line if point.side in sizes.sides and point.converged]
        for title in ("inference", *STRATEGIES):
            pixels, values = [p.side**2 for p in line], [p.times[title] for p in line]
            print(f"{name:<3} {title:<16} grows with the power {slope(pixels, values):.2f} of the pixels")


def rst(facts, rows, found):
    """Write the tables of the documentation page."""
    told = "\n".join(f":{name}: {value}" for name, value in facts.items())
    goals = rst_table(("what", "goal", "found", "reached"), [(*row[:3], verdict(row)) for row in rows])
    header = ("milliseconds", "strength", "iterations", "inference", *STRATEGIES)
    times = [
        (
            f"{point.inference}, {point.side} x {point.side}",
            f"{point.strength:g}",
            point.n_iter if point.converged else "no fixed point",
            *(f"{1000 * point.times[t]:.3g}" if t in point.times else "-" for t in header[3:]),
        )
        for point in found
    ]
    return f"{told}\n\n{goals}\n{rst_table(header, times)}"


def main():
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small grids, few rounds")
    parser.add_argument("--json", metavar="OUT", help="write everything that was measured")
    parser.add_argument("--rst", metavar="OUT", help="write the tables of the documentation page")
    parser.add_argument("--plot", metavar="OUT", help="draw the times")
    args = parser.parse_args()
    sizes, facts = QUICK if args.quick else FULL, circumstances()
    print("\n".join(f"{name}: {value}" for name, value in facts.items()) + "\n")
    with threadpool_limits(1):  # as in a fit, where threads are for images
        found = list(points(sizes))
        rows = list(rows_of(found, sizes))
    show(rows)
    print()
    tell(found, sizes)
    if args.json:
        told = {**facts, "rows": [row._asdict() for row in rows], "points": [p._asdict() for p in found]}
        Path(args.json).write_text(json.dumps(told, indent=1))
    if args.rst:
        Path(args.rst).write_text(rst(facts, rows, found))
    if args.plot:
        plot(found, sizes, facts, args.plot)


if __name__ == "__main__":
    print(f"took {seconds(main):.0f} s")
