"""Exact and approximate inference on the models of the UAI competitions, beside reference solutions.

The folder has an index.json that names the models and what is known of them. Models come in the order of
their difficulty, each in a process that is ended when the time is up. What was measured is kept in
benchmarks/results/uai, and not measured again unless ``--again`` is given.
"""

import argparse
import json
import multiprocessing
import time
import warnings
from pathlib import Path

import numpy as np
from measuring import RESULTS, rst_table
from sklearn.exceptions import ConvergenceWarning

from skcrf.inference import INFERENCE
from skcrf.inference.exact import induced_cost
from skcrf.uai import read_evidence, read_model, read_solution

KEPT = RESULTS / "uai"
APPROXIMATE = ("bp", "trw", "mean_field")
LOG_10 = np.log(10)
#: Mean field below this could not avoid what is forbidden, which it then counts as very unlikely.
FORBIDDEN = -1e6


def load(folder, name):
    """Read a model.

    Parameters
    ----------
    folder : Path
        Folder of the models.
    name : str
        The model's name in the index.

    Returns
    -------
    model : Model
        The model.
    graph, theta : FactorGraph, Potentials
        What inference takes, given the evidence, if there is some.
    """
    model, evidence = read_model(folder / f"{name}.gz"), folder / f"{name}.evid.gz"
    known = read_evidence(evidence, model) if evidence.exists() else None
    return model, *model.potentials(known)


def measure_exact(folder, name, max_memory):
    """Do a model exactly: what it takes, log10 Z, the log10 value of the best state, marginals."""
    model, graph, theta = load(folder, name)
    start = time.perf_counter()
    cost = induced_cost(graph, theta, max_memory=max_memory)
    found = {"width": cost.width, "log2": cost.log2_largest, "bytes": cost.n_bytes, "whole": cost.is_whole}
    found["plan_seconds"] = time.perf_counter() - start
    if not cost.is_whole or cost.n_bytes > max_memory:
        return found
    method, start = INFERENCE["exact"](max_memory=max_memory), time.perf_counter()
    beliefs = method.forward(graph, theta)
    found["sum_seconds"] = time.perf_counter() - start
    found["log10_Z"], mu = float(beliefs.log_z[0] / LOG_10), beliefs.mu
    del beliefs
    np.savez(KEPT / f"{Path(name).name}.npz", mu=mu)
    start = time.perf_counter()
    best = method.forward(graph, theta, tau=0.0)
    found["max_seconds"] = time.perf_counter() - start
    found["log10_MAP"] = float(best.log_z[0] / LOG_10)
    found["log10_of_state"] = log10_value(model, best.mu.argmax(axis=1))
    reference = folder / f"{name}.MAR.gz"
    if reference.exists():
        marginals = read_solution(reference).value
        errors = [np.abs(mu[i, : len(p)] - p).max() for i, p in enumerate(marginals)]
        found["MAR_error"] = float(max(errors))
    return found


def log10_value(model, state):
    """Look up the entries that a state has in the model's tables: the value of that state."""
    entries = [table[tuple(state[scope])] for scope, table in zip(model.scopes, model.tables, strict=True)]
    return float(np.log10(entries).sum())


def truth(folder, name):
    """Return the exact marginals, or the published ones, a row a variable; None where there are none."""
    kept, published = KEPT / f"{Path(name).name}.npz", folder / f"{name}.MAR.gz"
    if kept.exists():
        return np.load(kept)["mu"]
    if not published.exists():
        return None
    rows = read_solution(published).value
    mu = np.zeros((len(rows), max(map(len, rows))))
    for i, p in enumerate(rows):
        mu[i, : len(p)] = p
    return mu


def measure(folder, name, method, max_iter):
    """Do a model approximately: errors of the marginals and of log10 Z."""
    _, graph, theta = load(folder, name)
    mu = truth(folder, name)
    cls, start = INFERENCE[method], time.perf_counter()
    asked = {"max_iter": max_iter, "tol": 1e-6, "damping": 0.2}
    known = cls().get_params()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        inference = cls(**{key: value for key, value in asked.items() if key in known})
        beliefs = inference.forward(graph, theta)
        log_z = float(beliefs.log_z[0] / LOG_10)
    found = {
        "seconds": time.perf_counter() - start,
        "log10_Z": log_z,
        "converged": bool(beliefs.converged[0]),
    }
    found["n_iter"] = int(beliefs.n_iter[0])
    if mu is not None:
        free = (theta.unary > -np.inf).sum(axis=1) > 1  # of known variables, nobody is wrong
        gaps = np.abs(beliefs.mu - mu)[free]
        found["mean_error"] = float(gaps.sum() / graph.cards[free].sum()) if free.any() else 0.0
        found["max_error"] = float(gaps.max(initial=0.0))
    return found


def work(connection, folder):
    """Do what is asked for until nothing is; errors are part of the answer."""
    while (job := connection.recv()) is not None:
        function, *arguments = job
        try:
            connection.send(function(folder, *arguments))
        except (ValueError, MemoryError) as problem:
            connection.send({"error": f"{type(problem).__name__}: {problem}"})


class Worker:
    """A process that does one job after another, and is replaced when a job takes too long."""

    def __init__(self, folder):
        self.folder, self.process = folder, None

    def start(self):
        """Start a process, unless one runs."""
        if self.process is None:
            self.connection, theirs = multiprocessing.Pipe()
            self.process = multiprocessing.Process(target=work, args=(theirs, self.folder), daemon=True)
            self.process.start()

    def do(self, job, limit):
        """Do a job; says so if it took longer than the limit, in seconds."""
        self.start()
        self.connection.send(job)
        if self.connection.poll(limit):
            try:
                return self.connection.recv()
            except EOFError:
                answer = {"error": "the process ended"}
        else:
            answer = {"error": f"more than {limit:.0f} s"}
        self.process.terminate()
        self.process.join()
        self.process = None
        return answer


def half_digit(value):
    """Half of the last printed digit of a number."""
    decimals = len(repr(value).split(".")[1])
    return 0.5 * 10.0**-decimals


def difference(found, known):
    """Print how far a number is from what is known; empty where it is not."""
    return "" if found is None or known is None else f"{abs(found - known):.1e}"


def exact_rows(index, results):
    """Make the table of what exact inference does."""
    for name in order(index):
        found, known = results.get(name, {}).get("exact"), index[name]
        if found is None:
            continue
        least = "" if found.get("whole", True) else "≥ "
        row = [name.removesuffix(".uai"), str(known["n_vars"])]
        if "width" in found:
            row += [
                f"{least}{found['width']}",
                f"{least}2^{found['log2']:.1f}",
                f"{least}{found['bytes'] / 2**20:.3g}",
            ]
        else:
            row += ["", "", ""]
        if "log10_MAP" not in found:
            yield [*row, found.get("error", "not done"), "", "", "", "", ""]
            continue
        published = known.get("log10_Z_published")
        rounded = ""
        if published is not None:
            within = abs(found["log10_Z"] - published) <= half_digit(published) + 1e-9
            rounded = f"{abs(found['log10_Z'] - published):.1e}, {'within' if within else 'OUTSIDE'}"
        yield [
            *row,
            f"{found['log10_Z']:.6f}",
            difference(found["log10_Z"], known.get("log10_Z_exact")),
            rounded,
            difference(found["log10_MAP"], known.get("log10_MAP_exact")),
            f"{found['MAR_error']:.1e}" if "MAR_error" in found else "",
            f"{found['sum_seconds']:.2f}, {found['max_seconds']:.2f}",
        ]


def approximate_rows(index, results):
    """Make the table of errors of approximate methods."""
    for name in order(index):
        found = results.get(name, {})
        if not any(method in found for method in APPROXIMATE):
            continue
        known = found.get("exact", {}).get("log10_Z")
        known = index[name].get("log10_Z_published") if known is None else known
        row = [name.removesuffix(".uai")]
        for method in APPROXIMATE:
            one = found.get(method, {})
            if "log10_Z" not in one:
                row += [one.get("error", ""), "", ""]
                continue
            error = f"{one['mean_error']:.1e}" if "mean_error" in one else ""
            off = "" if known is None else f"{one['log10_Z'] - known:+.2g}"
            off = "forbidden" if one["log10_Z"] < FORBIDDEN else off
            row += [error, off, f"{one['seconds']:.2f}{'' if one['converged'] else ' (no)'}"]
        yield row


def order(index):
    """List models by difficulty."""
    return sorted(index, key=lambda name: (index[name]["log2_largest_table"], name))


def summary(index, results, max_memory):
    """Say in how many models exact inference agrees, and by how much at most."""
    done = {name: r["exact"] for name, r in results.items() if "log10_MAP" in r.get("exact", {})}
    gaps = {
        "log10_Z_exact": [
            abs(r["log10_Z"] - index[n]["log10_Z_exact"])
            for n, r in done.items()
            if "log10_Z_exact" in index[n]
        ],
        "log10_MAP_exact": [
            abs(r["log10_MAP"] - index[n]["log10_MAP_exact"])
            for n, r in done.items()
            if "log10_MAP_exact" in index[n]
        ],
        "MAR": [r["MAR_error"] for r in done.values() if "MAR_error" in r],
    }
    published = {n: index[n]["log10_Z_published"] for n in done if "log10_Z_published" in index[n]}
    within = [abs(done[n]["log10_Z"] - p) <= half_digit(p) + 1e-9 for n, p in published.items()]
    raw = max((abs(done[n]["log10_Z"] - p) for n, p in published.items()), default=0.0)
    lines = [f"Exact inference did {len(done)} of {len(index)} models within {max_memory / 2**30:.3g} GB."]
    for what, values in gaps.items():
        if values:
            lines.append(f"``{what}``: {len(values)} references, largest difference {max(values):.1e}.")
    if within:
        lines.append(
            f"``log10_Z_published``: {len(within)} references, largest difference {raw:.1e}; "
            f"{sum(within)} agree to half of the last printed digit."
        )
    return lines


def main():
    """Measure what is not yet measured, and write tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the models")
    parser.add_argument("--models", nargs="*", help="parts of the names of models; all by default")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a model and a method")
    parser.add_argument("--max-memory", type=float, default=2.0**31, help="bytes of exact inference")
    parser.add_argument("--max-iter", type=int, default=1000, help="iterations of approximate methods")
    parser.add_argument(
        "--methods", nargs="*", choices=["exact", *APPROXIMATE], default=["exact", *APPROXIMATE]
    )
    parser.add_argument("--again", action="store_true", help="measure what was measured before")
    parser.add_argument("--rst", type=Path, help="where to write the tables")
    args = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    index = json.loads((args.data / "index.json").read_text())
    kept = KEPT / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    worker = Worker(args.data)
    for name in order(index):
        if args.models and not any(part in name for part in args.models):
            continue
        of_model = results.setdefault(name, {})
        for method in args.methods:
            if (method in of_model and not args.again) or not takes_factors(method):
                continue
            job = (
                (measure_exact, name, args.max_memory)
                if method == "exact"
                else (measure, name, method, args.max_iter)
            )
            of_model[method] = worker.do(job, args.limit)
            print(name, method, of_model[method], flush=True)
            kept.write_text(json.dumps(results, indent=1))
    text = report(index, results, args.max_memory)
    print(text)
    if args.rst:
        args.rst.write_text(text)


def takes_factors(method):
    """Whether a method takes graphs of factors."""
    return "factor" in getattr(INFERENCE[method], "layouts", ())


def report(index, results, max_memory):
    """Write the summary and both tables."""
    of_exact = [
        "model",
        "variables",
        "width",
        "largest table",
        "MB",
        "log10 Z",
        "Δ Z",
        "Δ published",
        "Δ MAP",
        "Δ MAR",
        "s: sum, max",
    ]
    of_others = ["model", *(f"{method}: {what}" for method in APPROXIMATE for what in ("μ", "log10 Z", "s"))]
    lines = ["\n".join(f"- {line}" for line in summary(index, results, max_memory)), ""]
    lines += [rst_table(of_exact, list(exact_rows(index, results))), ""]
    rows = list(approximate_rows(index, results))
    if rows:
        lines += [rst_table(of_others, rows), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
