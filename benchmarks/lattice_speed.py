"""Goals of speed of inference and gradients on lattices, as ratios within one run; used by speed.py."""

import functools
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import plain_loops
from measuring import (
    at_least,
    at_most,
    best_times,
    cpu_timed,
    iteration_time,
    lattice_problem,
    ratio,
    rounds_within,
    run_script,
)

from skcrf.inference import BP, TRW, MeanField
from skcrf.parallel import workers

SHORT, LONG = 10, 40  # iterations of two calls, whose difference excludes the cost per call
LONG_GRADIENT = 20


class Case(NamedTuple):
    """A kind of lattice inference."""

    n_states: int
    per_edge: bool
    rho: float | str
    dtype: str = "float64"

    @property
    def name(self):
        """Name in tables, without the number of labels."""
        method = "BP" if self.rho == 1 else f"TRW, rho {self.rho}"
        kind = "one table per edge" if self.per_edge else "shared"
        return f"{method}, {kind}{'' if self.dtype == 'float64' else ', ' + self.dtype}"

    def make(self, iterations):
        """Return the inference."""
        if self.rho == 1:
            return BP(max_iter=iterations, dtype=self.dtype)
        return TRW(rho=self.rho, max_iter=iterations, dtype=self.dtype)

    def edge_weights(self, shape):
        """Return the weights of horizontal and vertical edges."""
        height, width = shape
        trees = (1 + 1 / height) / 2, (1 + 1 / width) / 2
        return trees if self.rho == "spanning_trees" else (self.rho, self.rho)


class Speeds(NamedTuple):
    """Speeds of one case in million messages per second; None where not measured.

    Speeds of gradients count the messages of the forward pass, but the time of both passes.
    """

    case: str
    n_states: int
    roofline: float | None
    iteration: float | None
    call: float
    gradient_roofline: float | None
    gradient_iteration: float | None
    gradient_call: float | None
    plain: float | None
    pgmax: float | None


def labels(k):
    """Name a number of labels; speed.py makes it a column."""
    return f", {k} labels"


def cases(settings):
    """List the cases, with the sizes of their lattices."""
    height, width = settings.shape
    smaller = height // 2, width // 2  # with 21 labels, one table per edge takes half a gigabyte
    for k in settings.labels:
        for rho in (1.0, 0.5, "spanning_trees"):
            yield Case(k, False, rho), settings.shape
        for rho in (1.0, 0.5):
            yield Case(k, True, rho), smaller if k > 8 else settings.shape
        yield Case(k, False, 0.5, "float32"), settings.shape


def forward_jobs(problem, make):
    """Return a short and a long call, whose difference is the cost of iterations."""
    return {
        "short": cpu_timed(lambda: make(SHORT).forward(*problem)),
        "long": cpu_timed(lambda: make(LONG).forward(*problem)),
    }


def gradient_job(problem, method, d_mu):
    """Return a job of inference and its derivative."""
    return cpu_timed(lambda: method.backward(method.forward(*problem, tape=True), d_mu=d_mu))


def same_marginals(run, case, problem, d_mu):
    """Raise AssertionError if marginals and gradients of the roofline differ from those of the package."""
    tolerance = 1e-9 if case.dtype == "float64" else 1e-4
    method, answer = case.make(SHORT), run(1)
    beliefs = method.forward(*problem, tape=True)
    np.testing.assert_allclose(answer.mu, beliefs.mu, atol=tolerance)
    for own, expected in zip(answer.d_theta, method.backward(beliefs, d_mu=d_mu), strict=True):
        np.testing.assert_allclose(own, expected, atol=tolerance * np.abs(expected).max())


def measure_case(settings, case, shape):
    """Measure one case of lattice inference; return its Speeds."""
    problem = lattice_problem(*shape, case.n_states, per_edge=case.per_edge)
    d_mu = np.random.default_rng(1).normal(size=problem.theta.unary.shape)
    jobs, roofline = forward_jobs(problem, case.make), []
    jobs |= {
        "gradient_short": gradient_job(problem, case.make(SHORT), d_mu),
        "gradient_long": gradient_job(problem, case.make(LONG_GRADIENT), d_mu),
    }
    with tempfile.TemporaryDirectory() as folder, workers(1):  # reuses memory, as in a fit
        if settings.roofline is not None:
            options = {
                "rho": case.edge_weights(shape),
                "iterations": SHORT,
                "dtype": case.dtype,
                "d_mu": d_mu,
            }
            run = settings.roofline.job(problem, Path(folder), **options)
            same_marginals(run, case, problem, d_mu)
            jobs["roofline"] = lambda: roofline.append(run(2))
        if not case.per_edge and case.rho in (0.5, 1.0) and case.dtype == "float64":
            iterate = plain_loops.prepare(problem, case.rho)
            np.testing.assert_allclose(iterate(2), case.make(2).forward(*problem).mu, atol=1e-9)
            jobs["plain_short"], jobs["plain_long"] = (
                cpu_timed(lambda: iterate(1)),
                cpu_timed(lambda: iterate(3)),
            )
        rounds = rounds_within(settings.budget, lambda: [job() for job in jobs.values()], 9)
        times = best_times(jobs, max(rounds, 3), warm=False)
    seconds = {
        "iteration": iteration_time(times["long"], times["short"], LONG - SHORT),
        "call": times["short"] / SHORT,
        "gradient_iteration": iteration_time(
            times["gradient_long"], times["gradient_short"], LONG_GRADIENT - SHORT
        ),
        "gradient_call": times["gradient_short"] / SHORT,
    }
    if roofline:
        seconds["roofline"] = min(answer.seconds for answer in roofline) / SHORT
        seconds["gradient_roofline"] = min(answer.gradient_seconds for answer in roofline) / SHORT
    if "plain_long" in jobs:
        seconds["plain"] = iteration_time(times["plain_long"], times["plain_short"], 2)
        if settings.pgmax and case.rho == 1 and case.n_states < 21:
            seconds["pgmax"] = time_pgmax(settings, case.n_states)
    speeds = {name: problem.messages() / value / 1e6 for name, value in seconds.items() if value}
    return Speeds(case.name, case.n_states, *(speeds.get(name) for name in Speeds._fields[2:]))


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
    """Compare inference and gradients with the roofline, plain loops and PGMax; also yield all Speeds."""
    for case, shape in cases(settings):
        speeds = measure_case(settings, case, shape)
        print(format_speeds(speeds), file=sys.stderr)
        yield speeds
        name = f"{case.name}{labels(case.n_states)}"
        goal = 0.6 if case.rho == 0.5 and not case.per_edge else 0.5
        yield at_least(f"{name}: forward against roofline", ratio(speeds.iteration, speeds.roofline), goal)
        gradient = ratio(speeds.gradient_iteration, speeds.gradient_roofline)
        yield at_least(f"{name}: gradient against roofline", gradient, goal)
        yield at_most(f"{name}: gradient against forward", ratio(speeds.call, speeds.gradient_call), 3)
        if speeds.plain is not None:
            yield at_least(f"{name}: forward against plain loops", ratio(speeds.iteration, speeds.plain), 5)
        if speeds.pgmax is not None:
            yield at_least(f"{name}: forward against PGMax", ratio(speeds.iteration, speeds.pgmax), 50)


def iteration_ratio(settings, one, other):
    """Return the ratio of the times per iteration of two `forward_jobs`."""
    jobs = {**one, **{f"other_{name}": job for name, job in other.items()}}
    rounds = rounds_within(settings.budget / 2, lambda: [job() for job in jobs.values()], 9)
    times = best_times(jobs, max(rounds, 3), warm=False)
    of_one = iteration_time(times["long"], times["short"], LONG - SHORT)
    return ratio(of_one, iteration_time(times["other_long"], times["other_short"], LONG - SHORT))


def mean_field_rows(settings):
    """Compare an iteration of mean field with one of belief propagation."""
    for k in settings.labels:
        problem = lattice_problem(*settings.shape, k)
        methods = (lambda n: MeanField(max_iter=n)), (lambda n: BP(max_iter=n))
        slower = iteration_ratio(settings, *(forward_jobs(problem, method) for method in methods))
        yield at_most(f"mean field{labels(k)}: iteration against BP", slower, 1)


def diagonal_rows(settings):
    """Compare the time per message of eight neighbours and of four."""
    methods = {"BP": BP, "TRW, rho 0.5": functools.partial(TRW, rho=0.5), "mean field": MeanField}
    for k in settings.labels[:2]:
        problems = [lattice_problem(*settings.shape, k, connectivity=n) for n in (8, 4)]
        fewer = problems[1].graph.n_edges / problems[0].graph.n_edges
        for name, method in methods.items():
            jobs = (forward_jobs(problem, lambda n, m=method: m(max_iter=n)) for problem in problems)
            slower = iteration_ratio(settings, *jobs)
            quantity = f"{name}{labels(k)}: time per message, 8 neighbours against 4"
            yield at_most(quantity, slower and slower * fewer, 2)


def format_speeds(speeds):
    """Format speeds as one line."""
    values = zip(Speeds._fields[2:], speeds[2:], strict=True)
    text = ", ".join(f"{name} {value:.4g}" for name, value in values if value)
    return f"{speeds.case + labels(speeds.n_states):48} {text} Mmsg/s"
