"""Measure every goal of speed: against a roofline, plain loops and PGMax, as ratios within one run."""

import argparse
import functools
import json
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import plain
from child import make_images
from measuring import (
    Problem,
    Roofline,
    Row,
    affordable,
    at_least,
    at_most,
    child,
    circumstances,
    difference,
    interleaved,
    lattice_problem,
    rounds_of,
    rst_table,
    seconds,
    show,
    verdict,
)
from sklearn.exceptions import ConvergenceWarning

from skcrf import GridCRFClassifier
from skcrf._scratch import reuse_memory
from skcrf.graph import Potentials, from_edges
from skcrf.inference import BP, TRW, MeanField

SHORT, LONG = 10, 40  # iterations; their difference is free of what is done once a call


class Settings(NamedTuple):
    """What is measured, and how long.

    Attributes
    ----------
    shape : tuple of int
        Height and width of the lattices.
    labels : tuple of int
        Numbers of labels.
    budget : float
        Seconds for each comparison, about.
    images : int
        Images of a fit.
    roofline : Roofline or None
        None where there is no compiler.
    pgmax : str or None
        A Python that has PGMax.
    """

    shape: tuple
    labels: tuple
    budget: float
    images: int
    roofline: Roofline | None
    pgmax: str | None


FULL = Settings((200, 300), (2, 5, 8, 21), 20.0, 32, None, None)
QUICK = Settings((60, 80), (2, 5), 0.2, 4, None, None)


class Figure(NamedTuple):
    """Million messages a second, by who sends them; None for who does not."""

    case: str
    roofline: float | None
    iteration: float | None
    call: float
    plain: float | None
    pgmax: float | None


def inference_of(rho, iterations):
    """Return the package's method for a weight."""
    return BP(max_iter=iterations) if rho == 1 else TRW(rho=rho, max_iter=iterations)


def weights_of(rho, shape):
    """Return the weights of the horizontal and vertical edges of a lattice."""
    height, width = shape
    return ((1 + 1 / height) / 2, (1 + 1 / width) / 2) if rho == "auto" else (rho, rho)


def medians_and_differences(jobs, rounds, pairs):
    """Time jobs; add what an iteration takes, for each ``name: (long, short, iterations)`` of `pairs`."""
    taken = rounds_of(jobs, rounds)
    times = {name: statistics.median(spent) for name, spent in taken.items()}
    for name, (long, short, n) in pairs.items():
        times[name] = difference(taken[long], taken[short], n)
    return times


OURS = ("long", "short", LONG - SHORT)
PLAIN = ("plain_long", "plain_short", 4)


def forward_jobs(problem, make):
    """Return the two calls whose difference is the cost of iterations."""
    return {
        "short": lambda: make(SHORT).forward(*problem) and None,
        "long": lambda: make(LONG).forward(*problem) and None,
    }


# ------------------------------------------------------------------------------------------ lattices


def _cases(settings):
    for k in settings.labels:
        for rho in (1.0, 0.5, "auto"):
            yield k, False, rho
        if k < 21:  # tables of 21 labels for every edge would be half a gigabyte
            yield k, True, 1.0
            yield k, True, 0.5


def measure_case(settings, k, per_edge, rho):
    """Measure one kind of lattice inference; returns its Figure."""
    problem = lattice_problem(*settings.shape, k, per_edge=per_edge)
    make = functools.partial(inference_of, rho)
    jobs = forward_jobs(problem, make)
    method = "BP" if rho == 1 else f"TRW, rho {rho}"
    name = f"{method}, {k} labels, {'a table an edge' if per_edge else 'shared'}"
    rhos = weights_of(rho, settings.shape)
    with tempfile.TemporaryDirectory() as folder:
        if settings.roofline is not None:
            run = settings.roofline.job(problem, Path(folder), rho=rhos, iterations=SHORT)
            # Right before fast: a program that computes something else is no roofline.
            np.testing.assert_allclose(run(1)[0], make(SHORT).forward(*problem).mu, atol=1e-9)
            jobs["roofline"] = lambda: run(3)[1]
        if not per_edge and rho != "auto":
            iterate = plain.prepare(problem, rho)
            np.testing.assert_allclose(iterate(2), make(2).forward(*problem).mu, atol=1e-9)
            jobs["plain_short"], jobs["plain_long"] = lambda: iterate(1) is None, lambda: iterate(5) is None
        rounds = affordable(lambda: [job() for job in jobs.values()], settings.budget, 9)
        pairs = {"iteration": OURS, **({"plain": PLAIN} if "plain_long" in jobs else {})}
        times = medians_and_differences(jobs, rounds, pairs)
    if "roofline" in times:
        times["roofline"] /= SHORT
    if settings.pgmax and rho == 1 and not per_edge and k < 21:
        times["pgmax"] = time_pgmax(settings, k)
    speed = {who: problem.messages() / spent / 1e6 for who, spent in times.items() if spent is not None}
    call = problem.messages(SHORT) / times["short"] / 1e6
    others = (speed.get("plain"), speed.get("pgmax"))
    return Figure(name, speed.get("roofline"), speed.get("iteration"), call, *others)


def time_pgmax(settings, k):
    """Return the seconds of an iteration of PGMax, whose answer must be ours."""
    problem = lattice_problem(*settings.shape, k, strength=0.2)  # weak, so that both converge
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        graph, theta = problem
        mu = BP(max_iter=50).forward(graph, theta).mu
        arrays = {"edges": graph.edges, "edge_table": graph.edge_table, "shape": graph.shapes[0], "mu": mu}
        np.savez(path, unary=theta.unary, tables=theta.tables, **arrays)
        answer = child(path, python=settings.pgmax, script="pgmax_lattice.py")
    if answer["error"] > 1e-3:
        raise RuntimeError(f"PGMax and skcrf differ by {answer['error']:.2g} with {k} labels.")
    return statistics.median(answer["seconds"])


def lattice_rows(settings):
    """Compare lattice inference with the roofline, plain loops and PGMax; also yields every Figure."""
    for case in _cases(settings):
        figure = measure_case(settings, *case)
        print(tell(figure), file=sys.stderr)
        yield figure
        ratio = _over(figure.iteration, figure.roofline)
        yield at_least(f"{figure.case}: iteration against roofline", ratio, 0.5)
        if figure.plain is not None:
            yield at_least(f"{figure.case}: against plain loops", _over(figure.iteration, figure.plain), 5)
        if figure.pgmax is not None:
            yield at_least(f"{figure.case}: against PGMax", _over(figure.iteration, figure.pgmax), 50)


def _over(ours, theirs):
    return None if ours is None or theirs is None else ours / theirs


# --------------------------------------------------------------------------------- other kernels


def gradient_rows(settings):
    """Compare a truncated gradient with the forward pass alone."""
    for k in settings.labels[:2]:
        for rho in (1.0, 0.5, "auto"):
            problem = lattice_problem(*settings.shape, k)
            method = inference_of(rho, SHORT)
            d_mu = np.random.default_rng(0).normal(size=problem.theta.unary.shape)
            jobs = {
                "forward": lambda method=method, problem=problem: method.forward(*problem) and None,
                "both": lambda method=method, problem=problem, d_mu=d_mu: (
                    method.backward(method.forward(*problem, tape=True), d_mu=d_mu) and None
                ),
            }
            with reuse_memory():  # as in a fit
                times = interleaved(jobs, affordable(jobs["both"], settings.budget / 2, 9))
            what = f"TRW, rho {rho}, {k} labels: forward and backward against forward"
            yield at_most(what, times["both"] / times["forward"], 3)


def iteration_ratio(settings, one, other):
    """Measure an iteration against another, both given as `forward_jobs`."""
    jobs = {**one, **{f"other_{name}": job for name, job in other.items()}}
    rounds = affordable(lambda: [job() for job in jobs.values()], settings.budget / 2, 9)
    pairs = {"one": OURS, "other": ("other_long", "other_short", LONG - SHORT)}
    times = medians_and_differences(jobs, rounds, pairs)
    return _over(times["one"], times["other"])


def mean_field_rows(settings):
    """Compare an iteration of mean field with one of belief propagation."""
    for k in settings.labels:
        problem = lattice_problem(*settings.shape, k)
        methods = (lambda n: MeanField(max_iter=n)), (lambda n: BP(max_iter=n))
        ratio = iteration_ratio(settings, *(forward_jobs(problem, method) for method in methods))
        yield at_most(f"mean field, {k} labels: iteration against BP's", ratio, 1)


def diagonal_rows(settings):
    """Compare eight neighbours with four, by the message."""
    methods = {"BP": BP, "TRW, rho 0.5": functools.partial(TRW, rho=0.5), "mean field": MeanField}
    for k in settings.labels[:2]:
        problems = [lattice_problem(*settings.shape, k, connectivity=n) for n in (8, 4)]
        share = problems[1].graph.n_edges / problems[0].graph.n_edges
        for name, method in methods.items():
            jobs = (forward_jobs(problem, lambda n, m=method: m(max_iter=n)) for problem in problems)
            ratio = iteration_ratio(settings, *jobs)
            yield at_most(
                f"{name}, {k} labels: a message of 8 neighbours against 4", ratio and ratio * share, 2
            )


def graph_rows(settings):
    """Compare graphs given by edges with plain loops on a lattice, by the message."""
    rng = np.random.default_rng(0)
    for k in settings.labels[:2]:
        on_lattice = lattice_problem(*settings.shape, k)
        graph = on_lattice.graph
        ends = rng.integers(graph.n_nodes, size=(graph.n_edges, 2))
        ends = ends[ends[:, 0] != ends[:, 1]]
        for name, edges in (("the lattice as an edge list", graph.edges), ("a random sparse graph", ends)):
            theta = Potentials(on_lattice.theta.unary, on_lattice.theta.tables[:1])
            problem = Problem(from_edges(graph.n_nodes, edges, tied=True), theta)
            iterate = plain.prepare(on_lattice, 1.0)
            jobs = forward_jobs(problem, lambda n: BP(max_iter=n))
            jobs["plain_short"] = lambda iterate=iterate: iterate(1) is None
            jobs["plain_long"] = lambda iterate=iterate: iterate(5) is None
            rounds = affordable(lambda jobs=jobs: [job() for job in jobs.values()], settings.budget / 2, 9)
            times = medians_and_differences(jobs, rounds, {"iteration": OURS, "plain": PLAIN})
            slower = _over(times["iteration"], times["plain"])
            ratio = None if slower is None else problem.messages() / on_lattice.messages() / slower
            yield at_least(f"{name}, {k} labels: against plain loops on the lattice", ratio, 0.5)


# -------------------------------------------------------------------------------------------- fits


def fit_rows(settings):
    """Measure what surrounds the kernels: threads, features, packing, processes, memory."""
    X, Y = make_images(max(4, settings.images // 4), settings.shape, 10, 2)

    def fit(n_jobs):
        GridCRFClassifier(inference=TRW(max_iter=SHORT), max_iter=3, tol=0.0, n_jobs=n_jobs).fit(X, Y)

    jobs = {"one": lambda: fit(1), "two": lambda: fit(2)}
    times = interleaved(jobs, affordable(jobs["one"], settings.budget, 5))
    yield at_least("two threads over images", times["one"] / times["two"], 1.8)

    size = ("--images", settings.images, "--shape", *settings.shape, "--features", 10)
    child(*size, "--steps", 1)  # compiles what is not on disk yet, which would count as memory
    told = child(*size, "--steps", 5)
    outside = 100 * (1 - told["inference"] / told["seconds"][0])
    yield at_most(f"fit of {settings.images} images: outside the inference", outside, 15, "%")
    allowed = told["features"] + 1.5 * told["tape"]
    used = told["peak"] - told["before"]
    found = f"{used / 1e6:.0f} MB = {used / allowed:.2f} x"
    yield Row("memory of that fit", f"≤ {allowed / 1e6:.0f} MB: features, 1.5 tapes", found, used <= allowed)

    with tempfile.TemporaryDirectory() as folder:
        small = ("--shape", *settings.shape, "--cold", "--steps", 3, "--fits", 2)
        cold = child(*small, env={"NUMBA_CACHE_DIR": folder})["seconds"]
        cached = [
            child(*small, env={"NUMBA_CACHE_DIR": folder})["seconds"]
            for _ in range(1 + settings.images // 16)
        ]
    beyond = statistics.median(first - second for first, second in cached)
    yield at_most("first fit of a process, kernels cached: beyond the second", beyond, 1, "s")
    yield at_most("first fit of all, kernels compiled: beyond the second", cold[0] - cold[1], 20, "s")


def predict_rows(settings):
    """Compare predict_proba, end to end, with the roofline's iterations alone."""
    return [_predict_row(settings, rho) for rho in ("auto", 0.5)]


def _predict_row(settings, rho):
    X, Y = make_images(2, settings.shape, 10, 5)
    crf = GridCRFClassifier(inference=TRW(rho=rho, max_iter=SHORT), max_iter=2, tol=0.0).fit(X[:1], Y[:1])
    jobs = {"predict": lambda: crf.predict_proba(X[1:]) is None}
    what = f"predict_proba of an image, 5 labels, TRW rho {rho}, end to end: against roofline"
    if settings.roofline is None:
        return at_least(what, None, 0.4)
    with tempfile.TemporaryDirectory() as folder:
        problem, rhos = lattice_problem(*settings.shape, 5), weights_of(rho, settings.shape)
        run = settings.roofline.job(problem, Path(folder), rho=rhos, iterations=SHORT)
        jobs["roofline"] = lambda: run(3)[1]
        times = interleaved(jobs, affordable(jobs["predict"], settings.budget, 15))
    return at_least(what, times["roofline"] / times["predict"], 0.4)


# ------------------------------------------------------------------------------------------ reports


def tell(figure):
    """Write a figure on one line."""
    speeds = zip(Figure._fields[1:], figure[1:], strict=True)
    told = ", ".join(f"{name} {value:.4g}" for name, value in speeds if value)
    return f"{figure.case.ljust(40)} {told} Mmsg/s"


def rst(facts, rows, figures):
    """Write the tables of the documentation page."""
    speeds = [[f.case, *("-" if v is None else f"{v:.3g}" for v in f[1:])] for f in figures]
    header = ("million messages a second", "roofline", "iteration", "whole call", "plain loops", "PGMax")
    told = "\n".join(f":{name}: {value}" for name, value in facts.items())
    goals = rst_table(("what", "goal", "found", "reached"), [(*row[:3], verdict(row)) for row in rows])
    return f"{told}\n\n{goals}\n{rst_table(header, speeds)}"


def plot(figures, facts, path):
    """Draw the speeds of lattice inference."""
    import matplotlib.pyplot as plt

    series = {
        "roofline (C++)": ("roofline", "0.75"),
        "skcrf, an iteration": ("iteration", "C0"),
        f"skcrf, a call of {SHORT} iterations": ("call", "C9"),
        "plain loops (numba)": ("plain", "C1"),
        "PGMax": ("pgmax", "C3"),
    }
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.55 * len(figures)), layout="constrained")
    place = np.arange(len(figures))
    for n, (label, (name, colour)) in enumerate(series.items()):
        values = [getattr(f, name) for f in figures]
        if any(values):
            axes.barh(place + 0.16 * (n - 2), [v or np.nan for v in values], 0.15, label=label, color=colour)
    axes.set(yticks=place, yticklabels=[f.case for f in figures], xscale="log")
    slowest = min(value for f in figures for value in f[1:] if value)
    axes.set_xlim(left=10 ** np.floor(np.log10(slowest)))  # a bar of the slowest has a length, too
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("million messages a second")
    axes.set_title(f"Inference on a lattice, one thread; commit {facts['commit']}", fontsize="medium")
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)


def main():
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, within a minute")
    parser.add_argument("--json", metavar="OUT", help="write everything that was measured")
    parser.add_argument("--rst", metavar="OUT", help="write the tables of the documentation page")
    parser.add_argument("--plot", metavar="OUT", help="draw the speeds")
    parser.add_argument("--pgmax", metavar="PYTHON", help="an interpreter that has PGMax")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    settings = (QUICK if args.quick else FULL)._replace(pgmax=args.pgmax)
    roofline = Roofline(settings.labels)
    settings = settings._replace(roofline=roofline if roofline.build() else None)
    if settings.roofline is None:
        print("no roofline: there is no C++ compiler, or it failed")
    size = f"lattices of {settings.shape[0]} x {settings.shape[1]}, fits of {settings.images} such images"
    facts = {**circumstances(), "sizes": f"{size}{' (--quick)' if args.quick else ''}"}
    print("\n".join(f"{name}: {value}" for name, value in facts.items()) + "\n")
    rows, figures = [], []
    for part in (
        lattice_rows,
        gradient_rows,
        mean_field_rows,
        diagonal_rows,
        graph_rows,
        fit_rows,
        predict_rows,
    ):
        start = time.perf_counter()
        for row in part(settings):
            (figures if isinstance(row, Figure) else rows).append(row)
        print(f"{part.__name__}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    show(rows)
    print()
    print("\n".join(tell(figure) for figure in figures))
    if args.json:
        found = {**facts, "rows": [r._asdict() for r in rows], "figures": [f._asdict() for f in figures]}
        Path(args.json).write_text(json.dumps(found, indent=1))
    if args.rst:
        Path(args.rst).write_text(rst(facts, rows, figures))
    if args.plot:
        plot(figures, facts, args.plot)


if __name__ == "__main__":
    print(f"took {seconds(main):.0f} s")
