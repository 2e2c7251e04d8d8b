"""What the benchmarks share: problems, clocks, the roofline, and tables of goals."""

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
#: What benchmarks make; ignored by git.
RESULTS = HERE / "results"
#: How the roofline is compiled.
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffast-math")


class Problem(NamedTuple):
    """A random field on a lattice.

    Attributes
    ----------
    graph : Graph
        The lattice.
    theta : Potentials
        Potentials.
    """

    graph: Graph
    theta: Potentials

    @property
    def n_states(self):
        """Number of labels."""
        return self.theta.unary.shape[1]

    def messages(self, iterations=1):
        """Directed messages that so many iterations send."""
        return 2 * self.graph.n_edges * iterations


def lattice_problem(height, width, n_states, *, per_edge=False, connectivity=4, strength=1.0, seed=0):
    """Make a random field.

    Parameters
    ----------
    height, width, n_states : int
        Size.
    per_edge : bool, default=False
        Whether every edge has a table of its own.
    connectivity : {4, 8}, default=4
        Neighbours of a pixel.
    strength : float, default=1.0
        Size of the entries of the tables.
    seed : int, default=0
        Seed.

    Returns
    -------
    problem : Problem
        The field.
    """
    rng = np.random.default_rng(seed)
    graph = lattice(height, width, connectivity, tied=not per_edge)
    tables = strength * rng.normal(size=(graph.n_tables, n_states, n_states))
    return Problem(graph, Potentials(rng.normal(size=(graph.n_nodes, n_states)), tables))


# ------------------------------------------------------------------------------------------ clocks


def seconds(job):
    """Call a function and return the seconds it took."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def rounds_of(jobs, rounds, warm=True):
    """Time several jobs in turn, so that what else the machine does meets all of them alike.

    Parameters
    ----------
    jobs : dict of str to callable
        What to time. A job that returns a float tells its own seconds.
    rounds : int
        How often.
    warm : bool, default=True
        Whether each is called once before the clock starts.

    Returns
    -------
    times : dict of str to list of float
        The seconds of each job, one number a round.
    """
    taken = {name: [] for name in jobs}
    for turn in range(rounds + warm):
        for name, job in jobs.items():
            start = time.perf_counter()
            told = job()
            spent = time.perf_counter() - start
            if turn >= warm:
                taken[name].append(told if isinstance(told, float) else spent)
    return taken


def interleaved(jobs, rounds, warm=True):
    """Return the medians of what `rounds_of` returns."""
    return {name: statistics.median(times) for name, times in rounds_of(jobs, rounds, warm).items()}


def difference(long, short, n):
    """Compute the seconds of one of `n` iterations by which two jobs differ.

    Parameters
    ----------
    long, short : list of float
        Seconds of the job with more iterations and of that with fewer, one number a round.
    n : int
        How many more.

    Returns
    -------
    seconds : float or None
        The median over rounds; None where noise hides it, which no bound could replace.
    """
    found = statistics.median(b - a for a, b in zip(short, long, strict=True)) / n
    return found if found > 0 else None


def affordable(job, budget, most):
    """Call a job once, and say how often it can be called again within `budget` seconds; at least once."""
    return int(np.clip(budget / max(seconds(job), 1e-6), 1, most))


def slope(sizes, times):
    """Fit the exponent of growth: the slope of log(times) over log(sizes); 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def peak_memory():
    """Return the largest resident size of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def resident_memory():
    """Return the resident size of this process, or the largest so far where that is not told."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return peak_memory()


def forget_peak():
    """Let the largest resident size be the present one, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def child(*arguments, env=None, python=sys.executable, script="child.py"):
    """Run one of the benchmarks' scripts in a new process and return the JSON that it prints.

    Parameters
    ----------
    *arguments : str
        Arguments of the script.
    env : dict, default=None
        Environment variables to set.
    python : str, default=sys.executable
        The interpreter.
    script : str, default="child.py"
        The script.

    Returns
    -------
    answer : dict
        The last line it printed.
    """
    command = [python, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
    if done.returncode:
        raise RuntimeError(f"{script} {' '.join(command[2:])} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


# ---------------------------------------------------------------------------------------- roofline


class Roofline:
    """The C++ program next to this file, compiled for some number of labels.

    Parameters
    ----------
    labels : sequence of int
        Numbers of labels to compile it for.
    flags : sequence of str, default=FLAGS
        Flags of the compiler.
    """

    def __init__(self, labels, flags=FLAGS):
        self.labels = tuple(labels)
        self.flags = flags
        self.compiler = shutil.which(os.environ.get("CXX", "g++"))
        made_from = [(HERE / "roofline.cpp").read_text(), str(self.compiler), *flags, platform.node()]
        self.key = hashlib.sha256("\n".join(made_from).encode()).hexdigest()[:12]

    def build(self):
        """Compile what was not compiled before; return whether there is a roofline."""
        if self.compiler is None:
            return False
        RESULTS.mkdir(exist_ok=True)
        missing = [k for k in self.labels if not self.program(k).exists()]
        jobs = []
        for k in missing:  # at once, into files that appear only when they are whole
            part = self.program(k).with_suffix(f".{os.getpid()}")
            source = str(HERE / "roofline.cpp")
            command = [self.compiler, *self.flags, f"-DLABELS={k}", source, "-o", str(part)]
            jobs.append((subprocess.Popen(command), part, self.program(k)))
        for process, part, program in jobs:
            if process.wait():
                return False
            part.rename(program)
        return True

    def program(self, k):
        """Return where the program for `k` labels is, or will be: its name tells what it was made from."""
        return RESULTS / f"roofline-{k}-{self.key}"

    def run(self, problem, *, rho, iterations, repeats=3, dtype=np.float64):
        """Run it.

        Parameters
        ----------
        problem : Problem
            A lattice with 4 neighbours.
        rho : float or pair of float
            Weight of the horizontal and the vertical edges.
        iterations, repeats : int
            Iterations of a run, and runs.
        dtype : dtype, default=numpy.float64
            The numbers that it computes with.

        Returns
        -------
        mu : ndarray of shape (n_nodes, n_states)
            Marginals.
        seconds : float
            The best time of all iterations, without reading, exponentials and readout.
        """
        with tempfile.TemporaryDirectory() as folder:
            return self.job(problem, Path(folder), rho=rho, iterations=iterations, dtype=dtype)(repeats)

    def job(self, problem, folder, *, rho, iterations, dtype=np.float64):
        """Write a problem to a folder, and return a function of the number of repeats that runs it."""
        graph, theta = problem
        height, width = graph.shapes[0]
        per_edge = graph.n_tables == graph.n_edges
        given, answer = folder / "problem", folder / "marginals"
        head = [height, width, problem.n_states, np.dtype(dtype).itemsize, per_edge, 0]
        with given.open("wb") as file:
            np.array(head, dtype=np.int64).tofile(file)
            np.array(np.broadcast_to(rho, 2), dtype=np.float64).tofile(file)
            theta.unary.tofile(file)
            theta.tables.tofile(file)

        def run(repeats=3):
            command = [self.program(problem.n_states), given, answer, iterations, repeats]
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
            mu = np.fromfile(answer).reshape(theta.unary.shape)
            return mu, min(json.loads(done.stdout)["seconds"])

        return run


# ------------------------------------------------------------------------------------------ tables


class Row(NamedTuple):
    """One line of a table of goals.

    Attributes
    ----------
    what : str
        What was measured.
    goal : str
        What it should be; empty where it is only told.
    found : str
        What it is.
    reached : bool or None
        Whether the goal is reached; None where there is none, or nothing to compare with.
    """

    what: str
    goal: str
    found: str
    reached: bool | None


def at_least(what, found, goal, unit="x"):
    """Make a Row for a number that should be large; None where there is nothing to compare with."""
    return _row(what, found, goal, unit, "≥", lambda: found >= goal)


def at_most(what, found, goal, unit="x"):
    """Make a Row for a number that should be small; None where there is nothing to compare with."""
    return _row(what, found, goal, unit, "≤", lambda: found <= goal)


def _row(what, found, goal, unit, sign, holds):
    if found is None:
        return Row(what, f"{sign} {goal:g} {unit}", "not measured", None)
    return Row(what, f"{sign} {goal:g} {unit}", f"{found:.3g} {unit}", bool(holds()))


def verdict(row):
    """Say whether a row's goal is reached."""
    return {True: "yes", False: "NO", None: "-"}[row.reached]


def show(rows):
    """Print rows as a table."""
    cells = [("what", "goal", "found", "reached"), *((r.what, r.goal, r.found, verdict(r)) for r in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def rst_table(header, rows):
    """Write a table in reStructuredText.

    Parameters
    ----------
    header : sequence of str
        Titles of the columns.
    rows : sequence of sequence of str
        Cells.

    Returns
    -------
    text : str
        A list-table.
    """
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [header, *rows]:
        lines += [f"   {'*' if first else ' '} - {cell}" for first, cell in _firsts(row)]
    return "\n".join(lines) + "\n"


def _firsts(row):
    return [(column == 0, cell) for column, cell in enumerate(row)]


def circumstances():
    """Describe machine, versions and commit.

    Returns
    -------
    facts : dict of str to str
        What a result depends on.
    """
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
    """Name the processor, with what tells processors of a poor name apart."""
    try:
        lines = dict(
            line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line
        )
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    widest = next((flag for flag in ("avx512f", "avx2", "avx") if flag in facts.get("flags", "").split()), "")
    return f"{facts.get('model name', platform.machine())} ({widest})"
