"""Solve a model from the command line: ``python -m skcrf.uai MODEL --task MAR`` prints a solution file."""

import argparse
import sys
import warnings

from skcrf._registry import resolve
from skcrf.inference import INFERENCE
from skcrf.uai import TASKS, read_evidence, read_model, read_query, solve
from skcrf.uai._files import format_solution

# What a parameter is, what to say of it, and its value where it is not given: methods run to convergence.
_OPTIONS = {
    "max_iter": (int, "iterations at most", 1000),
    "tol": (float, "changes of messages or marginals below which to stop", 1e-6),
    "damping": (float, "share of the old message that is kept", None),
    "max_memory": (float, "bytes that exact inference may take", None),
}


def main(arguments=None):
    """Solve a model and print the answer.

    Parameters
    ----------
    arguments : list of str, default=None
        What follows the name of the program; None for those of the command line.

    Returns
    -------
    status : int
        0, or 1 where there is no answer.
    """
    given = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            text = format_solution(_solution(given))
    except (ValueError, OSError) as problem:
        sys.stderr.write(f"error: {problem}\n")
        return 1
    for warning in told:
        sys.stderr.write(f"warning: {warning.message}\n")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as problem:  # a full disk, or a reader that has gone
        sys.stderr.write(f"error: the solution was not written: {problem}\n")
        sys.stdout = None  # it would be written again at the end
        return 1
    return 0


def _parser():
    parser = argparse.ArgumentParser(prog="python -m skcrf.uai", description=__doc__)
    parser.add_argument("model", help="file of the model, .uai or .uai.gz")
    parser.add_argument("--evidence", help="file of the evidence")
    parser.add_argument("--task", required=True, choices=list(TASKS))
    parser.add_argument("--query", help="file of the variables that MMAP asks for")
    parser.add_argument("--inference", default="exact", choices=list(INFERENCE))
    for name, (kind, text, value) in _OPTIONS.items():
        usual = "" if value is None else f" (default: {value:g})"
        text = f"{text}, for methods with that{usual}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=value, help=text)
    return parser


def _solution(given):
    known = INFERENCE[given.inference]().get_params()
    asked = {name: getattr(given, name) for name in _OPTIONS}
    parameters = {name: value for name, value in asked.items() if name in known and value is not None}
    inference = resolve(INFERENCE, INFERENCE[given.inference](**parameters), name="inference")
    model = read_model(given.model)
    evidence = None if given.evidence is None else read_evidence(given.evidence, model)
    query = None if given.query is None else read_query(given.query, model)
    return solve(model, given.task, inference, evidence=evidence, query=query)


if __name__ == "__main__":
    sys.exit(main())
