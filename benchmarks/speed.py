"""Measure all goals of speed as ratios within one run: against a roofline, plain loops and PGMax."""

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
import plain_loops
from measuring import (
    GOALS_HEADER,
    Problem,
    Roofline,
    at_least,
    at_most,
    cells_of,
    environment,
    iteration_time,
    lattice_problem,
    median_times,
    print_goals,
    rounds_within,
    rst_table,
    run_script,
    seconds,
    time_in_turn,
)
from sklearn.exceptions import ConvergenceWarning
from timed_fit import make_images

from skcrf import GridCRFClassifier
from skcrf.graph import Potentials, from_edges
from skcrf.inference import BP, TRW, MeanField
from skcrf.parallel import workers

SHORT, LONG = 10, 40  # iterations of two calls, whose difference excludes the cost per call


class Settings(NamedTuple):
    """Sizes of the measurements."""

    shape: tuple  # height and width of the lattices
    labels: tuple  # numbers of labels
    budget: float  # seconds per comparison
    images: int  # images per fit
    roofline: Roofline | None  # None without a compiler
    pgmax: str | None  # Python interpreter with PGMax


FULL = Settings((200, 300), (2, 5, 8, 21), 20.0, 32, None, None)
QUICK = Settings((60, 80), (2, 5), 0.2, 4, None, None)


class Speeds(NamedTuple):
    """Speeds of one case in million messages per second; None where not measured."""

    case: str
    roofline: float | None
    iteration: float | None
    call: float
    plain: float | None
    pgmax: float | None


def make_inference(rho, iterations):
    """Return the inference with edge weight `rho`."""
    return BP(max_iter=iterations) if rho == 1 else TRW(rho=rho, max_iter=iterations)


def edge_weights(rho, shape):
    """Return the weights of horizontal and vertical edges."""
    height, width = shape
    return ((1 + 1 / height) / 2, (1 + 1 / width) / 2) if rho == "auto" else (rho, rho)


def time_with_iterations(jobs, rounds, pairs):
    """Return median times of jobs, and times per iteration for each ``name: (long, short, n)`` of `pairs`."""
    all_times = time_in_turn(jobs, rounds)
    times = {name: statistics.median(job_times) for name, job_times in all_times.items()}
    for name, (long, short, n) in pairs.items():
        times[name] = iteration_time(all_times[long], all_times[short], n)
    return times


OURS = ("long", "short", LONG - SHORT)
PLAIN = ("plain_long", "plain_short", 4)


def forward_jobs(problem, make):
    """Return a short and a long call, whose difference is the cost of iterations."""
    return {
        "short": lambda: make(SHORT).forward(*problem) and None,
        "long": lambda: make(LONG).forward(*problem) and None,
    }


# ------------------------------------------------------------------------------------------ lattices


def _cases(settings):
    for k in settings.labels:
        for rho in (1.0, 0.5, "auto"):
            yield k, False, rho
        if k < 21:  # with 21 labels, one table per edge would take half a gigabyte
            yield k, True, 1.0
            yield k, True, 0.5


def measure_case(settings, k, per_edge, rho):
    """Measure one case of lattice inference; return its Speeds."""
    problem = lattice_problem(*settings.shape, k, per_edge=per_edge)
    make = functools.partial(make_inference, rho)
    jobs = forward_jobs(problem, make)
    method = "BP" if rho == 1 else f"TRW, rho {rho}"
    name = f"{method}, {k} labels, {'one table per edge' if per_edge else 'shared'}"
    rhos = edge_weights(rho, settings.shape)
    with tempfile.TemporaryDirectory() as folder:
        if settings.roofline is not None:
            run = settings.roofline.job(problem, Path(folder), rho=rhos, iterations=SHORT)
            # The roofline must compute the same marginals.
            np.testing.assert_allclose(run(1)[0], make(SHORT).forward(*problem).mu, atol=1e-9)
            jobs["roofline"] = lambda: run(3)[1]
        if not per_edge and rho != "auto":
            iterate = plain_loops.prepare(problem, rho)
            np.testing.assert_allclose(iterate(2), make(2).forward(*problem).mu, atol=1e-9)
            jobs["plain_short"], jobs["plain_long"] = lambda: iterate(1) is None, lambda: iterate(5) is None
        rounds = rounds_within(settings.budget, lambda: [job() for job in jobs.values()], 9)
        pairs = {"iteration": OURS, **({"plain": PLAIN} if "plain_long" in jobs else {})}
        times = time_with_iterations(jobs, rounds, pairs)
    if "roofline" in times:
        times["roofline"] /= SHORT
    if settings.pgmax and rho == 1 and not per_edge and k < 21:
        times["pgmax"] = time_pgmax(settings, k)
    speed = {key: problem.messages() / value / 1e6 for key, value in times.items() if value is not None}
    call = problem.messages(SHORT) / times["short"] / 1e6
    others = (speed.get("plain"), speed.get("pgmax"))
    return Speeds(name, speed.get("roofline"), speed.get("iteration"), call, *others)


def time_pgmax(settings, k):
    """Return the seconds per iteration of PGMax, whose marginals must equal ours."""
    problem = lattice_problem(*settings.shape, k, strength=0.2)  # weak, so that both converge
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        graph, theta = problem
        mu = BP(max_iter=50).forward(graph, theta).mu
        arrays = {"edges": graph.edges, "edge_table": graph.edge_table, "shape": graph.shapes[0], "mu": mu}
        np.savez(path, unary=theta.unary, tables=theta.tables, **arrays)
        answer = run_script(path, python=settings.pgmax, script="pgmax_lattice.py")
    if answer["error"] > 1e-3:
        raise RuntimeError(f"Marginals of PGMax and skcrf differ by {answer['error']:.2g} with {k} labels.")
    return statistics.median(answer["seconds"])


def lattice_rows(settings):
    """Compare lattice inference with the roofline, plain loops and PGMax; also yield all Speeds."""
    for case in _cases(settings):
        speeds = measure_case(settings, *case)
        print(format_speeds(speeds), file=sys.stderr)
        yield speeds
        name, iteration = speeds.case, speeds.iteration
        yield at_least(f"{name}: iteration against roofline", _ratio(iteration, speeds.roofline), 0.5)
        if speeds.plain is not None:
            yield at_least(f"{name}: against plain loops", _ratio(iteration, speeds.plain), 5)
        if speeds.pgmax is not None:
            yield at_least(f"{name}: against PGMax", _ratio(iteration, speeds.pgmax), 50)


def _ratio(a, b):
    return None if a is None or b is None else a / b


# --------------------------------------------------------------------------------- other kernels


def gradient_rows(settings):
    """Compare a truncated gradient with the forward pass alone."""
    for k, per_edge, rho in _cases(settings):
        problem = lattice_problem(*settings.shape, k, per_edge=per_edge)
        method = make_inference(rho, SHORT)
        d_mu = np.random.default_rng(0).normal(size=problem.theta.unary.shape)
        jobs = {
            "forward": lambda method=method, problem=problem: method.forward(*problem) and None,
            "both": lambda method=method, problem=problem, d_mu=d_mu: (
                method.backward(method.forward(*problem, tape=True), d_mu=d_mu) and None
            ),
        }
        with workers(1):  # reuses memory, as in a fit
            times = median_times(jobs, rounds_within(settings.budget / 2, jobs["both"], 9))
        tables = "one table per edge" if per_edge else "shared"
        quantity = f"TRW, rho {rho}, {k} labels, {tables}: forward and backward against forward"
        yield at_most(quantity, times["both"] / times["forward"], 3)


def iteration_ratio(settings, one, other):
    """Return the ratio of the times per iteration of two `forward_jobs`."""
    jobs = {**one, **{f"other_{name}": job for name, job in other.items()}}
    rounds = rounds_within(settings.budget / 2, lambda: [job() for job in jobs.values()], 9)
    pairs = {"one": OURS, "other": ("other_long", "other_short", LONG - SHORT)}
    times = time_with_iterations(jobs, rounds, pairs)
    return _ratio(times["one"], times["other"])


def mean_field_rows(settings):
    """Compare an iteration of mean field with one of belief propagation."""
    for k in settings.labels:
        problem = lattice_problem(*settings.shape, k)
        methods = (lambda n: MeanField(max_iter=n)), (lambda n: BP(max_iter=n))
        ratio = iteration_ratio(settings, *(forward_jobs(problem, method) for method in methods))
        yield at_most(f"mean field, {k} labels: iteration against BP", ratio, 1)


def diagonal_rows(settings):
    """Compare the time per message of eight neighbours and of four."""
    methods = {"BP": BP, "TRW, rho 0.5": functools.partial(TRW, rho=0.5), "mean field": MeanField}
    for k in settings.labels[:2]:
        problems = [lattice_problem(*settings.shape, k, connectivity=n) for n in (8, 4)]
        fewer = problems[1].graph.n_edges / problems[0].graph.n_edges
        for name, method in methods.items():
            jobs = (forward_jobs(problem, lambda n, m=method: m(max_iter=n)) for problem in problems)
            ratio = iteration_ratio(settings, *jobs)
            yield at_most(
                f"{name}, {k} labels: time per message, 8 neighbours against 4", ratio and ratio * fewer, 2
            )


def graph_rows(settings):
    """Compare the speed on edge lists with plain loops on a lattice."""
    rng = np.random.default_rng(0)
    for k in settings.labels[:2]:
        on_lattice = lattice_problem(*settings.shape, k)
        graph = on_lattice.graph
        ends = rng.integers(graph.n_nodes, size=(graph.n_edges, 2))
        ends = ends[ends[:, 0] != ends[:, 1]]
        for name, edges in (("lattice as an edge list", graph.edges), ("random sparse graph", ends)):
            theta = Potentials(on_lattice.theta.unary, on_lattice.theta.tables[:1])
            problem = Problem(from_edges(graph.n_nodes, edges, tied=True), theta)
            iterate = plain_loops.prepare(on_lattice, 1.0)
            jobs = forward_jobs(problem, lambda n: BP(max_iter=n))
            jobs["plain_short"] = lambda iterate=iterate: iterate(1) is None
            jobs["plain_long"] = lambda iterate=iterate: iterate(5) is None
            rounds = rounds_within(settings.budget / 2, lambda jobs=jobs: [job() for job in jobs.values()], 9)
            times = time_with_iterations(jobs, rounds, {"iteration": OURS, "plain": PLAIN})
            slower = _ratio(times["iteration"], times["plain"])
            ratio = None if slower is None else problem.messages() / on_lattice.messages() / slower
            yield at_least(f"{name}, {k} labels: against plain loops on the lattice", ratio, 0.5)


# -------------------------------------------------------------------------------------------- fits


def fit_rows(settings):
    """Measure fits: threads, time outside the inference, memory, first fits."""
    X, Y = make_images(max(4, settings.images // 4), settings.shape, 10, 2)

    def fit(n_jobs):
        GridCRFClassifier(inference=TRW(max_iter=SHORT), max_iter=3, tol=0.0, n_jobs=n_jobs).fit(X, Y)

    jobs = {"one": lambda: fit(1), "two": lambda: fit(2)}
    times = median_times(jobs, rounds_within(settings.budget, jobs["one"], 5))
    yield at_least("two threads over images", times["one"] / times["two"], 1.85)

    size = ("--images", settings.images, "--shape", *settings.shape, "--features", 10)
    run_script(*size, "--steps", 1)  # compiles missing kernels, which would count as memory
    answer = run_script(*size, "--steps", 5)
    outside = 100 * (1 - answer["inference"] / answer["seconds"][0])
    yield at_most(f"fit of {settings.images} images: time outside the inference", outside, 15, "%")
    data, used = answer["features"] + answer["labels"], answer["peak"] - answer["before"]
    quantity = f"fit of {settings.images} images: memory ({used / 1e6:.0f} MB) against features and labels"
    yield at_most(quantity, used / data, 1.6)

    with tempfile.TemporaryDirectory() as folder:
        small = ("--shape", *settings.shape, "--cold", "--steps", 3, "--fits", 2)
        cold = run_script(*small, env={"NUMBA_CACHE_DIR": folder})["seconds"]
        cached = [
            run_script(*small, env={"NUMBA_CACHE_DIR": folder})["seconds"]
            for _ in range(1 + settings.images // 16)
        ]
    extra = statistics.median(first - second for first, second in cached)
    yield at_most("first fit of a process, kernels cached: extra time", extra, 0.3, "s")
    yield at_most("first fit, kernels compiled: extra time", cold[0] - cold[1], 15, "s")


def predict_rows(settings):
    """Compare all of predict_proba with the iterations of the roofline."""
    return [_predict_row(settings, rho) for rho in ("auto", 0.5)]


def _predict_row(settings, rho):
    X, Y = make_images(2, settings.shape, 10, 5)
    crf = GridCRFClassifier(inference=TRW(rho=rho, max_iter=SHORT), max_iter=2, tol=0.0).fit(X[:1], Y[:1])
    jobs = {"predict": lambda: crf.predict_proba(X[1:]) is None}
    quantity = f"predict_proba of an image, 5 labels, TRW rho {rho}: against roofline"
    if settings.roofline is None:
        return at_least(quantity, None, 0.4)
    with tempfile.TemporaryDirectory() as folder:
        problem, rhos = lattice_problem(*settings.shape, 5), edge_weights(rho, settings.shape)
        run = settings.roofline.job(problem, Path(folder), rho=rhos, iterations=SHORT)
        jobs["roofline"] = lambda: run(3)[1]
        times = median_times(jobs, rounds_within(settings.budget, jobs["predict"], 15))
    return at_least(quantity, times["roofline"] / times["predict"], 0.4)


# ------------------------------------------------------------------------------------------ reports


def format_speeds(speeds):
    """Format speeds as one line."""
    values = zip(Speeds._fields[1:], speeds[1:], strict=True)
    text = ", ".join(f"{name} {value:.4g}" for name, value in values if value)
    return f"{speeds.case.ljust(40)} {text} Mmsg/s"


def rst(facts, rows, all_speeds):
    """Format the tables of the documentation page."""
    cells = [[s.case, *("-" if v is None else f"{v:.3g}" for v in s[1:])] for s in all_speeds]
    header = ("million messages per second", "roofline", "iteration", "whole call", "plain loops", "PGMax")
    fields = "\n".join(f":{name}: {value}" for name, value in facts.items())
    return f"{fields}\n\n{rst_table(GOALS_HEADER, map(cells_of, rows))}\n{rst_table(header, cells)}"


def plot(all_speeds, facts, path):
    """Draw the speeds of lattice inference."""
    import matplotlib.pyplot as plt

    series = {
        "roofline (C++)": ("roofline", "0.75"),
        "skcrf, one iteration": ("iteration", "C0"),
        f"skcrf, one call of {SHORT} iterations": ("call", "C9"),
        "plain loops (numba)": ("plain", "C1"),
        "PGMax": ("pgmax", "C3"),
    }
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.55 * len(all_speeds)), layout="constrained")
    positions = np.arange(len(all_speeds))
    for n, (label, (name, colour)) in enumerate(series.items()):
        values = [getattr(speeds, name) or np.nan for speeds in all_speeds]
        if not np.isnan(values).all():
            axes.barh(positions + 0.16 * (n - 2), values, 0.15, label=label, color=colour)
    axes.set(yticks=positions, yticklabels=[speeds.case for speeds in all_speeds], xscale="log")
    slowest = min(value for speeds in all_speeds for value in speeds[1:] if value)
    axes.set_xlim(left=10 ** np.floor(np.log10(slowest)))  # so that the smallest bar is visible
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("million messages per second")
    axes.set_title(f"Inference on a lattice, one thread; commit {facts['commit']}", fontsize="medium")
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)


def main():
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one to two minutes")
    parser.add_argument("--json", metavar="OUT", help="write all measurements")
    parser.add_argument("--rst", metavar="OUT", help="write the tables of the documentation page")
    parser.add_argument("--plot", metavar="OUT", help="draw the speeds")
    parser.add_argument("--pgmax", metavar="PYTHON", help="Python interpreter with PGMax")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    settings = (QUICK if args.quick else FULL)._replace(pgmax=args.pgmax)
    roofline = Roofline(settings.labels)
    settings = settings._replace(roofline=roofline if roofline.build() else None)
    if settings.roofline is None:
        print("no roofline: no C++ compiler, or compilation failed")
    size = f"lattices of {settings.shape[0]} x {settings.shape[1]}, fits of {settings.images} such images"
    facts = {**environment(), "sizes": f"{size}{' (--quick)' if args.quick else ''}"}
    print("\n".join(f"{name}: {value}" for name, value in facts.items()) + "\n")
    rows, all_speeds = [], []
    parts = (lattice_rows, gradient_rows, mean_field_rows, diagonal_rows, graph_rows, fit_rows, predict_rows)
    for part in parts:
        start = time.perf_counter()
        for row in part(settings):
            (all_speeds if isinstance(row, Speeds) else rows).append(row)
        print(f"{part.__name__}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    print_goals(rows)
    print()
    print("\n".join(map(format_speeds, all_speeds)))
    if args.json:
        results = {"rows": [row._asdict() for row in rows], "speeds": [s._asdict() for s in all_speeds]}
        Path(args.json).write_text(json.dumps(facts | results, indent=1))
    if args.rst:
        Path(args.rst).write_text(rst(facts, rows, all_speeds))
    if args.plot:
        plot(all_speeds, facts, args.plot)


if __name__ == "__main__":
    print(f"took {seconds(main):.0f} s")
