"""Compare gradients on lattices with automatic differentiation in torch and jax; used by speed.py."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from lattice_speed import SHORT, labels
from measuring import at_least, best_times, cpu_timed, lattice_problem, ratio, rounds_within, run_script

from skcrf.inference import TRW
from skcrf.parallel import workers

#: Goals by number of labels: our gradient against that of torch, our marginals against those of jax.
GRADIENT_GOALS = {2: 10, 5: 6, 8: 5, 21: 3}
FORWARD_GOALS = {2: 4, 5: 3, 8: 2, 21: 2}


class Milliseconds(NamedTuple):
    """CPU time of one call; None where not measured."""

    dtype: str
    n_states: int
    task: str  # marginals or gradient
    skcrf: float
    torch: float | None
    jax: float | None


def problem_file(folder, problem, seed=0):
    """Write a problem and random labels for the other program; return the file and the labels."""
    unary, tables = problem.theta
    shape, k = problem.graph.shapes[0], problem.n_states
    y = np.random.default_rng(seed).integers(k, size=shape)
    path = Path(folder) / "problem.npz"
    np.savez(path, unary=unary.reshape(*shape, k), tables=tables, labels=y, rho=0.5)
    return path, y.ravel()


def gradient(problem, method, y):
    """Compute the derivative of the mean cross-entropy; return marginals and the derivative."""
    beliefs = method.forward(*problem, tape=True)
    nodes, d_mu = np.arange(len(y)), np.zeros_like(beliefs.mu)
    d_mu[nodes, y] = -1 / (len(y) * beliefs.mu[nodes, y])
    return beliefs.mu, method.backward(beliefs, d_mu=d_mu)


def check(library, python):
    """Raise AssertionError if converged marginals and gradients of the other program are not ours."""
    problem = lattice_problem(14, 18, 3, strength=0.5)
    with tempfile.TemporaryDirectory() as folder:
        path, y = problem_file(folder, problem)
        answer = Path(folder) / "answer.npz"
        more = ("--iterations", 300, "--answer", answer)
        run_script(library, path, *more, python=python, script="autodiff_lattice.py")
        mu, d_theta = gradient(problem, TRW(rho=0.5, max_iter=300), y)
        with np.load(answer) as others:
            np.testing.assert_allclose(others["mu"].reshape(mu.shape), mu, atol=1e-8)
            for name, d in zip(("unary", "tables"), d_theta, strict=True):
                np.testing.assert_allclose(others[name].reshape(d.shape), d, atol=1e-6 * np.abs(d).max())


def measure(settings, k, dtype, programs):
    """Time all programs; return Milliseconds of marginals and of the gradient."""
    problem = lattice_problem(*settings.shape, k)
    method = TRW(rho=0.5, max_iter=SHORT, dtype=dtype)
    with tempfile.TemporaryDirectory() as folder, workers(1):
        path, y = problem_file(folder, problem)
        jobs = {
            "marginals": cpu_timed(lambda: method.forward(*problem)),
            "gradient": cpu_timed(lambda: gradient(problem, method, y)),
        }
        rounds = rounds_within(settings.budget / 8, lambda: [job() for job in jobs.values()], 9)
        before = best_times(jobs, max(rounds, 3))
        options = ("--dtype", dtype, "--iterations", SHORT, "--repeats", settings.repeats)
        times = {
            library: run_script(library, path, *options, python=python, script="autodiff_lattice.py")
            for library, python in programs.items()
        }
        after = best_times(jobs, max(rounds, 3))  # so that a change of the machine's speed affects ours too
    for task in jobs:
        others = (1e3 * min(times[name][task]) if name in times else None for name in ("torch", "jax"))
        yield Milliseconds(dtype, k, task, 1e3 * min(before[task], after[task]), *others)


def autodiff_rows(settings):
    """Compare with torch and jax; also yield all Milliseconds."""
    programs = {"torch": settings.torch, "jax": settings.jax}
    programs = {library: python for library, python in programs.items() if python}
    for library, python in programs.items():
        check(library, python)
    for dtype in ("float64", "float32"):
        for k in settings.labels:
            times = {row.task: row for row in measure(settings, k, dtype, programs)}
            yield from times.values()
            faster = ratio(times["gradient"].torch, times["gradient"].skcrf)
            yield at_least(f"{dtype}{labels(k)}: gradient against torch", faster, GRADIENT_GOALS[k])
            faster = ratio(times["marginals"].jax, times["marginals"].skcrf)
            yield at_least(f"{dtype}{labels(k)}: marginals against jax", faster, FORWARD_GOALS[k])
