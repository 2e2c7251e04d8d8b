"""Goals of speed and memory of fits, edge lists and predictions; used by speed.py."""

import statistics
import tempfile
from pathlib import Path

import graph_scaling
import numpy as np
import plain_loops
from lattice_speed import LONG, SHORT, forward_jobs, labels
from measuring import (
    Problem,
    at_least,
    at_most,
    best_times,
    cpu_timed,
    iteration_time,
    lattice_problem,
    median_times,
    ratio,
    rounds_within,
    run_script,
)
from timed_fit import make_images

from skcrf import GridCRFClassifier
from skcrf.graph import Potentials, from_edges
from skcrf.inference import BP, TRW


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
            d_mu = rng.normal(size=theta.unary.shape)
            for job, n in (("gradient_short", SHORT), ("gradient_long", LONG)):
                jobs[job] = cpu_timed(
                    lambda n=n, problem=problem, d_mu=d_mu: BP(max_iter=n).backward(
                        BP(max_iter=n).forward(*problem, tape=True), d_mu
                    )
                )
            jobs["plain_short"] = cpu_timed(lambda iterate=iterate: iterate(1))
            jobs["plain_long"] = cpu_timed(lambda iterate=iterate: iterate(5))
            rounds = rounds_within(settings.budget / 2, lambda jobs=jobs: [job() for job in jobs.values()], 9)
            times = best_times(jobs, max(rounds, 3), warm=False)
            plain = iteration_time(times["plain_long"], times["plain_short"], 4)
            fewer = problem.messages() / on_lattice.messages()
            for what, long, short in (
                ("forward", "long", "short"),
                ("gradient", "gradient_long", "gradient_short"),
            ):
                slower = ratio(iteration_time(times[long], times[short], LONG - SHORT), plain)
                faster = None if slower is None else fewer / slower
                yield at_least(f"{name}{labels(k)}: {what} against plain loops on the lattice", faster, 0.5)


def growth_rows(settings):
    """Measure how the time per edge of BP grows with degrees and sizes; graph_scaling.py has all methods."""
    for kind in graph_scaling.KINDS:
        yield from graph_scaling.rows_of(kind, settings.is_quick, n_states=3, rounds=3, only=("bp",))


def fit_job(X, Y, *, dtype="float64", symmetric=False, max_iter=3):
    """Return a job of a fit with one thread."""
    inference = TRW(rho=0.5, max_iter=SHORT, dtype=dtype)
    crf = GridCRFClassifier(inference=inference, symmetric=symmetric, max_iter=max_iter, tol=0.0, n_jobs=1)
    return cpu_timed(lambda: crf.fit(X, Y))


def option_rows(settings):
    """Compare fits in single precision, and with Potts tables, with the default."""
    for k in settings.labels:
        X, Y = make_images(2 if k < 8 else 1, settings.shape, 10, k)
        jobs = {"float64": fit_job(X, Y), "float32": fit_job(X, Y, dtype="float32")}
        if k == max(settings.labels):
            jobs["potts"] = fit_job(X, Y, symmetric="potts")
        times = best_times(jobs, max(rounds_within(settings.budget / 2, jobs["float64"], 7), 2))
        yield at_least(f"fit{labels(k)}: float32 against float64", times["float64"] / times["float32"], 1.5)
        if "potts" in times:
            faster = times["float64"] / times["potts"]
            yield at_least(f'fit{labels(k)}: symmetric="potts" against full tables', faster, 5)


def fit_rows(settings):
    """Measure fits: threads, time outside the inference, memory, first fits."""
    X, Y = make_images(max(4, settings.images // 4), settings.shape, 10, 2)

    def fit(n_jobs):
        GridCRFClassifier(inference=TRW(max_iter=SHORT), max_iter=3, tol=0.0, n_jobs=n_jobs).fit(X, Y)

    jobs = {"one": lambda: fit(1), "two": lambda: fit(2)}
    times = median_times(jobs, rounds_within(settings.budget, jobs["one"], 7))
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
    X, Y = make_images(2, settings.shape, 10, 5)
    crf = GridCRFClassifier(inference=TRW(rho=0.5, max_iter=SHORT), max_iter=2, tol=0.0).fit(X[:1], Y[:1])
    quantity = f"predict_proba of an image{labels(5)}, TRW rho 0.5: against roofline"
    if settings.roofline is None:
        return [at_least(quantity, None, 0.4)]
    jobs, answers = {"predict": cpu_timed(lambda: crf.predict_proba(X[1:]))}, []
    with tempfile.TemporaryDirectory() as folder:
        problem = lattice_problem(*settings.shape, 5)
        run = settings.roofline.job(problem, Path(folder), rho=0.5, iterations=SHORT)
        jobs["roofline"] = lambda: answers.append(run(3))
        times = best_times(jobs, rounds_within(settings.budget / 2, jobs["predict"], 15))
    best = min(answer.seconds for answer in answers)
    return [at_least(quantity, best / times["predict"], 0.4)]
