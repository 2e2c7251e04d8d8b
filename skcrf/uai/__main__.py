"""Command line: ``python -m skcrf.uai MODEL --task MAR`` solves a task and prints a solution file."""

import argparse
import sys
import warnings

from skcrf._registry import resolve
from skcrf.inference import INFERENCE
from skcrf.uai import TASKS, read_evidence, read_model, read_query, solve
from skcrf.uai._files import format_solution

# Type, help and default of the options that set parameters of the inference.
_OPTIONS = {
    "max_iter": (int, "largest number of iterations", 1000),
    "tol": (float, "tolerance on changes of messages or marginals", 1e-6),
    "damping": (float, "weight of the old message", None),
    "max_memory": (float, "memory limit of exact inference in bytes", None),
}


def main(arguments=None):
    """Solve a task and print the solution.

    Parameters
    ----------
    arguments : list of str, default=None
        Arguments of the program; None for those of the command line.

    Returns
    -------
    status : int
        0, or 1 after an error.
    """
    args = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            text = format_solution(_solve(args))
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    for warning in caught:
        sys.stderr.write(f"warning: {warning.message}\n")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:  # a full disk or a closed pipe
        sys.stderr.write(f"error: The solution was not written: {error}\n")
        sys.stdout = None  # Python would try to flush it again at exit
        return 1
    return 0


def _parser():
    parser = argparse.ArgumentParser(prog="python -m skcrf.uai", description=__doc__)
    parser.add_argument("model", help="model file, .uai or .uai.gz")
    parser.add_argument("--evidence", help="evidence file")
    parser.add_argument("--task", required=True, choices=list(TASKS))
    parser.add_argument("--query", help="query file of the task MMAP")
    parser.add_argument("--inference", default="exact", choices=list(INFERENCE))
    for name, (kind, text, default) in _OPTIONS.items():
        default_text = "" if default is None else f" (default: {default:g})"
        text = f"{text}, for methods with this parameter{default_text}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help=text)
    return parser


def _solve(args):
    parameters = INFERENCE[args.inference]().get_params()
    options = {name: getattr(args, name) for name in _OPTIONS}
    options = {name: value for name, value in options.items() if name in parameters and value is not None}
    inference = resolve(INFERENCE, INFERENCE[args.inference](**options), name="inference")
    model = read_model(args.model)
    evidence = None if args.evidence is None else read_evidence(args.evidence, model)
    query = None if args.query is None else read_query(args.query, model)
    return solve(model, args.task, inference, evidence=evidence, query=query)


if __name__ == "__main__":
    sys.exit(main())
