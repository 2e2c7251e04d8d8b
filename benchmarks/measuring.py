"""Problems, clocks, the roofline and tables of goals, shared by the benchmarks."""

import contextlib
import hashlib
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np

from skcrf.graph import Graph, Potentials, lattice

HERE = Path(__file__).resolve().parent
#: Folder of the results; ignored by git.
RESULTS = HERE / "results"
#: Compiler flags of the roofline.
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffast-math")


class Problem(NamedTuple):
    """A random field on a lattice."""

    graph: Graph
    theta: Potentials

    @property
    def n_states(self):
        """Number of labels."""
        return self.theta.unary.shape[1]

    def messages(self, iterations=1):
        """Return the number of directed messages of some iterations."""
        return 2 * self.graph.n_edges * iterations


def lattice_problem(height, width, n_states, *, per_edge=False, connectivity=4, strength=1.0, seed=0):
    """Draw a Problem with normal potentials; those of edges have standard deviation `strength`."""
    rng = np.random.default_rng(seed)
    graph = lattice(height, width, connectivity, tied=not per_edge)
    tables = strength * rng.normal(size=(graph.n_tables, n_states, n_states))
    return Problem(graph, Potentials(rng.normal(size=(graph.n_nodes, n_states)), tables))


# ------------------------------------------------------------------------------------------ clocks


def seconds(job):
    """Call a function and return the time it takes in seconds."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def time_in_turn(jobs, rounds, warm=True):
    """Time jobs in turn, so that other load on the machine affects all of them.

    Parameters
    ----------
    jobs : dict of str to callable
        The jobs. If a job returns a float, that is its time.
    rounds : int
        Number of calls of each job.
    warm : bool, default=True
        Whether to call each job once before the clock starts.

    Returns
    -------
    times : dict of str to list of float
        Seconds of each job, one number per round.
    """
    times = {name: [] for name in jobs}
    for i in range(rounds + warm):
        for name, job in jobs.items():
            start = time.perf_counter()
            result = job()
            elapsed = time.perf_counter() - start
            if i >= warm:
                times[name].append(result if isinstance(result, float) else elapsed)
    return times


def median_times(jobs, rounds, warm=True):
    """Time jobs in turn and return the median time of each."""
    return {name: statistics.median(times) for name, times in time_in_turn(jobs, rounds, warm).items()}


def iteration_time(long, short, n):
    """Compute the time per iteration from two jobs of which one does `n` more iterations.

    Both are lists of seconds per round. Returns the median over rounds, or None if noise makes it negative.
    """
    time_per_iteration = statistics.median(b - a for a, b in zip(short, long, strict=True)) / n
    return time_per_iteration if time_per_iteration > 0 else None


def rounds_within(budget, job, most):
    """Call a job once and return how often it runs within `budget` seconds, from 1 to `most`."""
    return int(np.clip(budget / max(seconds(job), 1e-6), 1, most))


def slope(sizes, times):
    """Fit the exponent of growth: the slope of log(times) over log(sizes), 1 for linear growth."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def peak_memory():
    """Return the peak resident size of this process in bytes, since its start or `reset_peak_memory`."""
    status = Path("/proc/self/status")
    if status.exists():  # there, ru_maxrss includes the memory of the process that started this one
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def resident_memory():
    """Return the resident size of this process in bytes, or the peak where the system lacks it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return peak_memory()


def reset_peak_memory():
    """Reset the peak resident size to the current one, where the system supports it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def run_script(*arguments, env=None, python=sys.executable, script="timed_fit.py"):
    """Run a script of this folder in a new process and return the JSON in its last line."""
    command = [python, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
    if done.returncode:
        raise RuntimeError(f"{script} {' '.join(command[2:])} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


# ---------------------------------------------------------------------------------------- roofline


class Roofline:
    """The program roofline.cpp, compiled for some numbers of labels."""

    def __init__(self, labels, flags=FLAGS):
        self.labels = tuple(labels)
        self.flags = flags
        self.compiler = shutil.which(os.environ.get("CXX", "g++"))
        sources = [(HERE / "roofline.cpp").read_text(), str(self.compiler), *flags, platform.node()]
        self.key = hashlib.sha256("\n".join(sources).encode()).hexdigest()[:12]

    def build(self):
        """Compile the missing programs; return whether all programs exist."""
        if self.compiler is None:
            return False
        RESULTS.mkdir(exist_ok=True)
        missing = [k for k in self.labels if not self.program(k).exists()]
        jobs = []
        for k in missing:  # in parallel, into temporary files that are renamed when complete
            unfinished = self.program(k).with_suffix(f".{os.getpid()}")
            source = str(HERE / "roofline.cpp")
            command = [self.compiler, *self.flags, f"-DLABELS={k}", source, "-o", str(unfinished)]
            jobs.append((subprocess.Popen(command), unfinished, self.program(k)))
        for process, unfinished, program in jobs:
            if process.wait():
                return False
            unfinished.rename(program)
        return True

    def program(self, k):
        """Return the path of the program for `k` labels; its name has a hash of source and flags."""
        return RESULTS / f"roofline-{k}-{self.key}"

    def run(self, problem, *, rho, iterations, repeats=3, dtype=np.float64):
        """Run the program on a lattice with 4 neighbours; return marginals and seconds.

        `rho` is the weight of all edges, or of the horizontal and the vertical ones. The time is the best of
        all repeats, and excludes reading, exponentials and the computation of marginals.
        """
        with tempfile.TemporaryDirectory() as folder:
            return self.job(problem, Path(folder), rho=rho, iterations=iterations, dtype=dtype)(repeats)

    def job(self, problem, folder, *, rho, iterations, dtype=np.float64):
        """Write a problem to a folder; return a function of the number of repeats that runs the program."""
        graph, theta = problem
        height, width = graph.shapes[0]
        per_edge = graph.n_tables == graph.n_edges
        problem_file, marginals_file = folder / "problem", folder / "marginals"
        head = [height, width, problem.n_states, np.dtype(dtype).itemsize, per_edge, 0]
        with problem_file.open("wb") as file:
            np.array(head, dtype=np.int64).tofile(file)
            np.array(np.broadcast_to(rho, 2), dtype=np.float64).tofile(file)
            theta.unary.tofile(file)
            theta.tables.tofile(file)

        def run(repeats=3):
            command = [self.program(problem.n_states), problem_file, marginals_file, iterations, repeats]
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
            mu = np.fromfile(marginals_file).reshape(theta.unary.shape)
            return mu, min(json.loads(done.stdout)["seconds"])

        return run


# ------------------------------------------------------------------------------------------ tables


class Row(NamedTuple):
    """Row of a table of goals; `reached` is None if nothing was measured."""

    quantity: str
    goal: str
    measured: str
    reached: bool | None


def at_least(quantity, value, goal, unit="x"):
    """Make a Row for a number with a lower limit; the number is None if it was not measured."""
    return _row(quantity, value, goal, unit, "≥", lambda: value >= goal)


def at_most(quantity, value, goal, unit="x"):
    """Make a Row for a number with an upper limit; the number is None if it was not measured."""
    return _row(quantity, value, goal, unit, "≤", lambda: value <= goal)


def _row(quantity, value, goal, unit, sign, is_reached):
    if value is None:
        return Row(quantity, f"{sign} {goal:g} {unit}", "not measured", None)
    return Row(quantity, f"{sign} {goal:g} {unit}", f"{value:.3g} {unit}", bool(is_reached()))


#: Header of a table of goals.
GOALS_HEADER = ("quantity", "goal", "measured", "reached")


def cells_of(row):
    """Return the cells of a Row, whose last one says whether the goal is reached."""
    return (*row[:3], {True: "yes", False: "NO", None: "-"}[row.reached])


def print_goals(rows):
    """Print rows as a table."""
    cells = [GOALS_HEADER, *map(cells_of, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def rst_table(header, rows):
    """Format a list-table in reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [header, *rows]:
        lines += [f"   {' ' if column else '*'} - {cell}" for column, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def environment():
    """Describe machine, versions, commit and date."""
    names = ("numpy", "scipy", "numba", "scikit-learn", "joblib")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        "versions": f"Python {platform.python_version()}, {versions}",
        "commit": commit or "unknown",
        "date": time.strftime("%Y-%m-%d"),
    }


def _processor():
    """Return the name of the processor and its widest vector instructions."""
    try:
        lines = dict(
            line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line
        )
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    widest = next((flag for flag in ("avx512f", "avx2", "avx") if flag in facts.get("flags", "").split()), "")
    return f"{facts.get('model name', platform.machine())} ({widest})"
