"""Compare exact and approximate inference with reference solutions on models of the UAI competitions.

The data folder has an index.json with the models and their reference values. Models run in the order of their
difficulty, in a process that is terminated at the time limit. Results are stored in benchmarks/results/uai,
and measured again only with ``--again``.
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

STORED = RESULTS / "uai"
APPROXIMATE = ("bp", "trw", "mean_field")
LOG_10 = np.log(10)
#: Mean field returns log10 Z below this value if it cannot avoid forbidden configurations.
FORBIDDEN = -1e6


def load(folder, name):
    """Read a model and its evidence; return the model, its graph and its potentials."""
    model, path = read_model(folder / f"{name}.gz"), folder / f"{name}.evid.gz"
    evidence = read_evidence(path, model) if path.exists() else None
    return model, *model.potentials(evidence)


def measure_exact(folder, name, max_memory):
    """Run exact inference on a model; return its cost, log10 Z, log10 of the MAP value, and errors."""
    model, graph, theta = load(folder, name)
    start = time.perf_counter()
    cost = induced_cost(graph, theta, max_memory=max_memory)
    result = {"width": cost.width, "log2": cost.log2_largest, "bytes": cost.n_bytes, "whole": cost.is_whole}
    result["plan_seconds"] = time.perf_counter() - start
    if not cost.is_whole or cost.n_bytes > max_memory:
        return result
    method, start = INFERENCE["exact"](max_memory=max_memory), time.perf_counter()
    beliefs = method.forward(graph, theta)
    result["sum_seconds"] = time.perf_counter() - start
    result["log10_Z"], mu = float(beliefs.log_z[0] / LOG_10), beliefs.mu
    del beliefs
    np.savez(STORED / f"{Path(name).name}.npz", mu=mu)
    start = time.perf_counter()
    best = method.forward(graph, theta, tau=0.0)
    result["max_seconds"] = time.perf_counter() - start
    result["log10_MAP"] = float(best.log_z[0] / LOG_10)
    result["log10_of_state"] = log10_value(model, best.mu.argmax(axis=1))
    reference = folder / f"{name}.MAR.gz"
    if reference.exists():
        marginals = read_solution(reference).value
        errors = [np.abs(mu[i, : len(p)] - p).max() for i, p in enumerate(marginals)]
        result["MAR_error"] = float(max(errors))
    return result


def log10_value(model, state):
    """Compute log10 of the product of the tables at a configuration."""
    entries = [table[tuple(state[scope])] for scope, table in zip(model.scopes, model.tables, strict=True)]
    return float(np.log10(entries).sum())


def reference_marginals(folder, name):
    """Return the exact or the published marginals, one row per variable; None if there are none."""
    stored, published = STORED / f"{Path(name).name}.npz", folder / f"{name}.MAR.gz"
    if stored.exists():
        return np.load(stored)["mu"]
    if not published.exists():
        return None
    rows = read_solution(published).value
    mu = np.zeros((len(rows), max(map(len, rows))))
    for i, p in enumerate(rows):
        mu[i, : len(p)] = p
    return mu


def measure(folder, name, method, max_iter):
    """Run approximate inference on a model; return errors of the marginals and log10 Z."""
    _, graph, theta = load(folder, name)
    mu = reference_marginals(folder, name)
    cls, start = INFERENCE[method], time.perf_counter()
    options = {"max_iter": max_iter, "tol": 1e-6, "damping": 0.2}
    parameters = cls().get_params()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        inference = cls(**{key: value for key, value in options.items() if key in parameters})
        beliefs = inference.forward(graph, theta)
        log_z = float(beliefs.log_z[0] / LOG_10)
    result = {
        "seconds": time.perf_counter() - start,
        "log10_Z": log_z,
        "converged": bool(beliefs.converged[0]),
    }
    result["n_iter"] = int(beliefs.n_iter[0])
    if mu is not None:
        free = (theta.unary > -np.inf).sum(axis=1) > 1  # observed variables have no error
        errors = np.abs(beliefs.mu - mu)[free]
        result["mean_error"] = float(errors.sum() / graph.cards[free].sum()) if free.any() else 0.0
        result["max_error"] = float(errors.max(initial=0.0))
    return result


def work(connection, folder):
    """Run jobs until None arrives; errors are sent as results."""
    while (job := connection.recv()) is not None:
        function, *arguments = job
        try:
            connection.send(function(folder, *arguments))
        except (ValueError, MemoryError) as error:
            connection.send({"error": f"{type(error).__name__}: {error}"})


class Worker:
    """A process that runs jobs one by one, and is replaced if a job exceeds the time limit."""

    def __init__(self, folder):
        self.folder, self.process = folder, None

    def start(self):
        """Start a process if none is running."""
        if self.process is None:
            self.connection, other_end = multiprocessing.Pipe()
            self.process = multiprocessing.Process(target=work, args=(other_end, self.folder), daemon=True)
            self.process.start()

    def run(self, job, limit):
        """Run a job and return its result, which has an "error" after more than `limit` seconds."""
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
    """Return half of the last printed digit of a number."""
    decimals = len(repr(value).split(".")[1])
    return 0.5 * 10.0**-decimals


def format_difference(value, reference):
    """Format the distance of a number from its reference; empty if either is None."""
    return "" if value is None or reference is None else f"{abs(value - reference):.1e}"


def exact_rows(index, results):
    """Yield the rows of the table of exact inference."""
    for name in order(index):
        result, known = results.get(name, {}).get("exact"), index[name]
        if result is None:
            continue
        least = "" if result.get("whole", True) else "≥ "
        row = [name.removesuffix(".uai"), str(known["n_vars"])]
        if "width" in result:
            row += [
                f"{least}{result['width']}",
                f"{least}2^{result['log2']:.1f}",
                f"{least}{result['bytes'] / 2**20:.3g}",
            ]
        else:
            row += ["", "", ""]
        if "log10_MAP" not in result:
            yield [*row, result.get("error", "not run"), "", "", "", "", ""]
            continue
        published = known.get("log10_Z_published")
        rounded = ""
        if published is not None:
            within = abs(result["log10_Z"] - published) <= half_digit(published) + 1e-9
            rounded = f"{abs(result['log10_Z'] - published):.1e}, {'within' if within else 'OUTSIDE'}"
        yield [
            *row,
            f"{result['log10_Z']:.6f}",
            format_difference(result["log10_Z"], known.get("log10_Z_exact")),
            rounded,
            format_difference(result["log10_MAP"], known.get("log10_MAP_exact")),
            f"{result['MAR_error']:.1e}" if "MAR_error" in result else "",
            f"{result['sum_seconds']:.2f}, {result['max_seconds']:.2f}",
        ]


def approximate_rows(index, results):
    """Yield the rows of the table of approximate methods."""
    for name in order(index):
        result = results.get(name, {})
        if not any(method in result for method in APPROXIMATE):
            continue
        known = result.get("exact", {}).get("log10_Z")
        known = index[name].get("log10_Z_published") if known is None else known
        row = [name.removesuffix(".uai")]
        for method in APPROXIMATE:
            one = result.get(method, {})
            if "log10_Z" not in one:
                row += [one.get("error", ""), "", ""]
                continue
            error = f"{one['mean_error']:.1e}" if "mean_error" in one else ""
            difference = "" if known is None else f"{one['log10_Z'] - known:+.2g}"
            difference = "forbidden" if one["log10_Z"] < FORBIDDEN else difference
            row += [error, difference, f"{one['seconds']:.2f}{'' if one['converged'] else ' (no)'}"]
        yield row


def order(index):
    """List models by difficulty."""
    return sorted(index, key=lambda name: (index[name]["log2_largest_table"], name))


def summary(index, results, max_memory):
    """List the numbers of models and the largest differences of exact inference."""
    done = {name: r["exact"] for name, r in results.items() if "log10_MAP" in r.get("exact", {})}
    errors = {
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
    lines = [f"Exact inference solved {len(done)} of {len(index)} models within {max_memory / 2**30:.3g} GB."]
    for name, values in errors.items():
        if values:
            lines.append(f"``{name}``: {len(values)} references, largest difference {max(values):.1e}.")
    if within:
        lines.append(
            f"``log10_Z_published``: {len(within)} references, largest difference {raw:.1e}; "
            f"{sum(within)} agree to half of the last printed digit."
        )
    return lines


def main():
    """Measure models without stored results, and write tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the models")
    parser.add_argument("--models", nargs="*", help="substrings of the names of models (default: all)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds per model and method")
    parser.add_argument(
        "--max-memory", type=float, default=2.0**31, help="memory limit of exact inference in bytes"
    )
    parser.add_argument("--max-iter", type=int, default=1000, help="largest number of iterations")
    parser.add_argument(
        "--methods", nargs="*", choices=["exact", *APPROXIMATE], default=["exact", *APPROXIMATE]
    )
    parser.add_argument("--again", action="store_true", help="ignore stored results")
    parser.add_argument("--rst", type=Path, help="write the tables of the documentation")
    args = parser.parse_args()
    STORED.mkdir(parents=True, exist_ok=True)
    index = json.loads((args.data / "index.json").read_text())
    stored = STORED / "results.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    worker = Worker(args.data)
    for name in order(index):
        if args.models and not any(part in name for part in args.models):
            continue
        model_results = results.setdefault(name, {})
        for method in args.methods:
            if (method in model_results and not args.again) or not accepts_factors(method):
                continue
            job = (
                (measure_exact, name, args.max_memory)
                if method == "exact"
                else (measure, name, method, args.max_iter)
            )
            model_results[method] = worker.run(job, args.limit)
            print(name, method, model_results[method], flush=True)
            stored.write_text(json.dumps(results, indent=1))
    text = report(index, results, args.max_memory)
    print(text)
    if args.rst:
        args.rst.write_text(text)


def accepts_factors(method):
    """Tell whether a method accepts factor graphs."""
    return "factor" in INFERENCE[method].layouts


def report(index, results, max_memory):
    """Format the summary and both tables."""
    exact_header = [
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
        "seconds: sum, max",
    ]
    approximate_header = [
        "model",
        *(f"{method}: {column}" for method in APPROXIMATE for column in ("μ", "log10 Z", "s")),
    ]
    lines = ["\n".join(f"- {line}" for line in summary(index, results, max_memory)), ""]
    lines += [rst_table(exact_header, list(exact_rows(index, results))), ""]
    rows = list(approximate_rows(index, results))
    if rows:
        lines += [rst_table(approximate_header, rows), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
