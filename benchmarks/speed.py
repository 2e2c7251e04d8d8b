"""Measure all goals of speed as ratios within one run: rooflines, torch, jax, plain loops, PGMax; fits."""

import argparse
import json
import re
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from autodiff_speed import Milliseconds, autodiff_rows
from fit_speed import fit_rows, graph_rows, growth_rows, option_rows, predict_rows
from lattice_speed import SHORT, Speeds, diagonal_rows, format_speeds, lattice_rows, mean_field_rows
from measuring import GOALS_HEADER, Roofline, Row, cells_of, environment, print_goals, rst_table, seconds
from sklearn.exceptions import ConvergenceWarning

#: All measurements by name, for `--only`.
PARTS = {
    "autodiff": autodiff_rows,
    "lattice": lattice_rows,
    "mean_field": mean_field_rows,
    "diagonal": diagonal_rows,
    "graph": graph_rows,
    "growth": growth_rows,
    "option": option_rows,
    "fit": fit_rows,
    "predict": predict_rows,
}


class Settings(NamedTuple):
    """Sizes of the measurements."""

    shape: tuple  # height and width of the lattices
    labels: tuple  # numbers of labels
    budget: float  # seconds per comparison
    repeats: int  # calls of torch and jax
    images: int  # images per fit
    is_quick: bool
    roofline: Roofline | None = None  # None without a compiler
    pgmax: str | None = None  # Python interpreters with these libraries
    torch: str | None = None
    jax: str | None = None


FULL = Settings((200, 300), (2, 5, 8, 21), 10.0, 5, 32, False)
QUICK = Settings((60, 80), (2, 5), 0.2, 2, 4, True)


# ------------------------------------------------------------------------------------------ reports


def by_labels(rows):
    """Gather rows that differ in the number of labels.

    Yields quantity, the rows by number of labels, and whether there is such a number.
    """
    gathered = {}
    for row in rows:
        k = re.search(r", (\d+) labels", row.quantity)
        quantity = row.quantity.replace(k[0], "") if k else row.quantity
        gathered.setdefault((quantity, k is not None), {})[int(k[1]) if k else 0] = row
    for (quantity, has_labels), same in gathered.items():
        yield quantity, same, has_labels


def goal_tables(rows):
    """Format one table with a column per number of labels, and one of all other goals."""
    groups = list(by_labels(rows))
    counts = sorted({k for _, same, has_labels in groups if has_labels for k in same})
    cells = []
    for quantity, same, has_labels in groups:
        if not has_labels:
            continue
        goals = list(dict.fromkeys(row.goal for row in same.values()))
        texts = {k: row.measured.removesuffix(" x") for k, row in same.items()}
        measured = [f"**{texts[k]}**" if same[k].reached is False else texts[k] for k in same]
        row = dict(zip(same, measured, strict=True))
        cells.append([quantity, _joined(goals), *(row.get(k, "") for k in counts)])
    others = [cells_of(row) for _, same, has_labels in groups if not has_labels for row in same.values()]
    tables = [rst_table(("ratio", "goal", *(f"{k} labels" for k in counts)), cells)] if cells else []
    return "\n".join(tables + ([rst_table(GOALS_HEADER, others)] if others else []))


def _joined(goals):
    """Join goals that differ by number of labels, as in "≥ 10 / 6 / 5 / 3"."""
    return " / ".join([goals[0].removesuffix(" x"), *(goal.split()[1] for goal in goals[1:])])


def time_table(times):
    """Format the times of marginals and gradients beside those of torch and jax."""
    header = ("milliseconds", "labels", "skcrf", "torch", "jax")
    cells = [
        [f"{t.task}, {t.dtype}", t.n_states, *("-" if v is None else f"{v:.3g}" for v in t[3:])]
        for t in sorted(times, key=lambda t: (t.task, t.dtype))
    ]
    return rst_table(header, cells)


def speed_table(all_speeds):
    """Format the speeds of all cases."""
    header = ("million messages per second", "labels", *(s.replace("_", " ") for s in Speeds._fields[2:]))
    cells = [[*s[:2], *("-" if v is None else f"{v:.3g}" for v in s[2:])] for s in all_speeds]
    return rst_table(header, cells)


def summary(times):
    """Say how many times as fast as torch and jax the package is."""
    sentences = []
    for task, what in (("gradient", "A gradient"), ("marginals", "Marginals")):
        for dtype in ("float64", "float32"):
            own = sorted((t for t in times if (t.task, t.dtype) == (task, dtype)), key=lambda t: t.n_states)
            for library in ("torch", "jax"):
                faster = [getattr(t, library) / t.skcrf for t in own if getattr(t, library)]
                if faster:
                    values = ", ".join(f"{value:.2g}" for value in faster)
                    sentences.append(f"- {what} in {dtype}: {values} times as fast as in {library}.")
    counts = ", ".join(map(str, sorted({t.n_states for t in times})))
    return f"One core, with {counts} labels:\n\n" + "\n".join(sentences) + "\n"


def rst(facts, rows, times, all_speeds):
    """Format the tables of the documentation page."""
    fields = "\n".join(f":{name}: {value}" for name, value in facts.items())
    has_others = any(t.torch or t.jax for t in times)
    tables = [summary(times)] if has_others else []
    tables += [time_table(times)] if times else []
    tables += [goal_tables(rows)] + ([speed_table(all_speeds)] if all_speeds else [])
    return "\n\n".join([*tables, fields]) + "\n"


def plot(all_speeds, times, facts, path):
    """Draw the times of gradients, and the speeds relative to the roofline."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    for axis, dtype in zip(axes, ("float64", "float32"), strict=False):
        own = [t for t in times if t.dtype == dtype and t.task == "gradient"]
        _bars(axis, own, {name: [getattr(t, name) for t in own] for name in ("skcrf", "torch", "jax")})
        axis.set(yscale="log", ylabel="milliseconds", title=f"One gradient, {dtype}")
    cases = [s for s in all_speeds if s.case == "TRW, rho 0.5, shared"]
    speeds = {
        "marginals": [s.iteration and s.roofline and s.iteration / s.roofline for s in cases],
        "gradient": [
            s.gradient_iteration and s.gradient_roofline and s.gradient_iteration / s.gradient_roofline
            for s in cases
        ],
    }
    _bars(axes[2], cases, speeds)
    axes[2].set(ylim=(0, 1), title="Speed relative to the roofline, float64")
    height, width = facts["shape"]
    figure.suptitle(
        f"{SHORT} iterations of TRW on {height} x {width} pixels, one core; commit {facts['commit']}",
        fontsize="medium",
    )
    figure.savefig(path, dpi=120)


def _bars(axis, cases, series):
    positions = np.arange(len(cases))
    for n, (name, values) in enumerate(series.items()):
        heights = [np.nan if value is None else value for value in values]
        if not np.isnan(heights).all():
            axis.bar(positions + 0.27 * (n - 1), heights, 0.25, label=name)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("")
    axis.set_xticks(positions, [str(case.n_states) for case in cases])
    axis.set_xlabel("labels")
    if cases:
        axis.legend(frameon=False)


def measure(settings, parts):
    """Run the parts; return rows, Milliseconds and Speeds."""
    found = {Row: [], Milliseconds: [], Speeds: []}
    for name in parts:
        start = time.perf_counter()
        for row in PARTS[name](settings):
            found[type(row)].append(row)
            if isinstance(row, Row):  # long runs may be stopped
                print("  ".join(cells_of(row)), file=sys.stderr, flush=True)
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return found.values()


def main():
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one to two minutes")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to measure")
    parser.add_argument("--labels", nargs="+", type=int, help="numbers of labels, of 2, 5, 8 and 21")
    parser.add_argument("--json", metavar="OUT", help="write all measurements")
    parser.add_argument("--rst", metavar="OUT", help="write the tables of the documentation page")
    parser.add_argument("--plot", metavar="OUT", help="draw the times and speeds")
    for library in ("torch", "jax", "pgmax"):
        parser.add_argument(f"--{library}", metavar="PYTHON", help=f"Python interpreter with {library}")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    settings = QUICK if args.quick else FULL
    settings = settings._replace(
        labels=tuple(args.labels or settings.labels), pgmax=args.pgmax, torch=args.torch, jax=args.jax
    )
    roofline = Roofline({*settings.labels, 5})  # predictions have 5 labels
    settings = settings._replace(roofline=roofline if roofline.build() else None)
    missing = [] if settings.roofline else ["roofline: no C++ compiler, or compilation failed"]
    missing += [f"{name}: give --{name}" for name in ("torch", "jax", "pgmax") if not getattr(args, name)]
    print("".join(f"no {reason}\n" for reason in missing), end="")
    size = f"lattices of {settings.shape[0]} x {settings.shape[1]}, fits of {settings.images} such images"
    facts = {**environment(), "sizes": f"{size}{' (--quick)' if args.quick else ''}"}
    print("\n".join(f"{name}: {value}" for name, value in facts.items()) + "\n")
    rows, times, all_speeds = measure(settings, args.only)
    print_goals(rows)
    print()
    print("\n".join(map(format_speeds, all_speeds)))
    print("\n".join(map(str, times)))
    if args.json:
        results = {"rows": rows, "times": times, "speeds": all_speeds}
        results = {name: [row._asdict() for row in values] for name, values in results.items()}
        Path(args.json).write_text(json.dumps(facts | results, indent=1))
    if args.rst:
        Path(args.rst).write_text(rst(facts, rows, times, all_speeds))
    if args.plot:
        plot(all_speeds, times, {**facts, "shape": settings.shape}, args.plot)


if __name__ == "__main__":
    print(f"took {seconds(main):.0f} s")
