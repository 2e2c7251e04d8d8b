"""Compare the speed of two commits.

    python benchmarks/regress.py A B --threshold 10

Both commits are checked out into a temporary folder, and the jobs of this file run on each in turn, through
the public API. Exits with 1 if a job is slower on B than on A by more than the threshold.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from measuring import HERE, lattice_problem, seconds

#: Default threshold in percent.
THRESHOLD = 10.0


def make_jobs(quick):
    """Make the jobs by name; they are small enough to run often."""
    shape, labels = ((40, 60), (2,)) if quick else ((100, 150), (2, 5))
    jobs = {}
    for k in labels:
        jobs |= inference_jobs(shape, k)
    return jobs | grid_jobs(shape) | sequence_jobs(50 if quick else 300)


def inference_jobs(shape, k):
    """Make jobs of inference and gradients on a lattice with k labels."""
    from skcrf.graph import from_edges
    from skcrf.inference import BP, TRW, MeanField

    shared, per_edge = lattice_problem(*shape, k), lattice_problem(*shape, k, per_edge=True)
    edge_list = from_edges(shared.graph.n_nodes, shared.graph.edges)
    d_mu = np.random.default_rng(0).normal(size=shared.theta.unary.shape)
    trw = TRW()
    return {
        f"bp, {k} labels": lambda: BP().forward(*shared),
        f"trw, {k} labels": lambda: TRW(rho=0.5).forward(*shared),
        f"trw rho auto, {k} labels": lambda: TRW().forward(*shared),
        f"trw, {k} labels, one table per edge": lambda: TRW(rho=0.5).forward(*per_edge),
        f"trw gradient, {k} labels": lambda: trw.backward(trw.forward(*shared, tape=True), d_mu=d_mu),
        f"mean field, {k} labels": lambda: MeanField().forward(*shared),
        f"bp, {k} labels, edge list": lambda: BP().forward(edge_list, per_edge.theta),
    }


def grid_jobs(shape):
    """Make jobs of an estimator of images; the later jobs use the fit of the first."""
    from timed_fit import make_images

    from skcrf import GridCRFClassifier
    from skcrf.inference import TRW

    X, Y = make_images(4, shape, 10, 2)
    crf = GridCRFClassifier(inference=TRW(), max_iter=2, tol=0.0)
    return {
        "fit": lambda: crf.fit(X, Y),
        "predict_proba": lambda: crf.predict_proba(X),
        "score": lambda: crf.score(X, Y),
    }


def sequence_jobs(n_sequences):
    """Make jobs of estimators of sequences, and of the same sequences as graphs and directed graphs."""
    from skcrf import ChainCRFClassifier, DAGMClassifier, GraphCRFClassifier

    rng = np.random.default_rng(0)
    Y = [rng.integers(4, size=n) for n in rng.integers(5, 40, size=n_sequences)]
    X = [rng.normal(size=(len(y), 20)) + y[:, None] for y in Y]
    graphs = [(x, np.c_[: len(x) - 1, 1 : len(x)]) for x in X]
    chain, graph, dag = (
        kind(max_iter=5, tol=0.0) for kind in (ChainCRFClassifier, GraphCRFClassifier, DAGMClassifier)
    )
    return {
        "chain fit": lambda: chain.fit(X, Y),
        "chain predict": lambda: chain.predict(X),
        "graph fit": lambda: graph.fit(graphs, Y),
        "directed fit": lambda: dag.fit(graphs, Y),
    }


def run_jobs(quick, repeats):
    """Time the jobs on the package that is imported, and print the shortest time of each as JSON."""
    warnings.simplefilter("ignore")  # fits stop early, and commits differ in their warnings
    jobs = make_jobs(quick)
    for job in jobs.values():
        job()  # compiles
    print(json.dumps({name: min(seconds(job) for _ in range(repeats)) for name, job in jobs.items()}))


def compare(old, new, threshold=THRESHOLD):
    """Compare two dicts of job to seconds per round.

    Returns the ratio new / old of each job, as the median over rounds, and the names of the jobs that are
    slower by more than `threshold` percent. Rounds of both are interleaved, so that other load on the machine
    affects both.
    """
    ratios = {
        name: statistics.median(b / a for a, b in zip(old[name], new[name], strict=True)) for name in old
    }
    return ratios, [name for name, ratio in ratios.items() if ratio > 1 + threshold / 100]


def measure(tree, quick):
    """Run the jobs once on a checkout, in a new process; return the seconds of each."""
    env = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, str(HERE / "regress.py"), "--jobs", *(["--quick"] if quick else [])]
    done = subprocess.run(command, env=env, cwd=tree, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"The jobs failed on {tree.name}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def git(*arguments):
    """Run git in this repository; return what it prints."""
    done = subprocess.run(["git", "-C", str(HERE), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return done.stdout.strip()


def measure_commits(a, b, rounds, quick):
    """Measure two commits in turn; return a dict of job to seconds per round for each."""
    commits = {"A": git("rev-parse", "--verify", f"{a}^{{commit}}")}
    commits["B"] = git("rev-parse", "--verify", f"{b}^{{commit}}")
    times = {side: [] for side in commits}
    with tempfile.TemporaryDirectory() as folder:
        trees = {side: Path(folder) / side for side in commits}
        try:
            for side, commit in commits.items():
                git("worktree", "add", "--detach", str(trees[side]), commit)
                measure(trees[side], quick)  # compiles into the folder
            for _ in range(rounds):
                for side, tree in trees.items():
                    times[side].append(measure(tree, quick))
        finally:
            for tree in trees.values():
                if tree.exists():
                    git("worktree", "remove", "--force", str(tree))
    return [{name: [one[name] for one in times[side]] for name in times[side][0]} for side in ("A", "B")]


def main():
    """Compare two commits and print the jobs that are slower."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", metavar="A", nargs="?", default="HEAD~1", help="old commit (default: HEAD~1)")
    parser.add_argument("b", metavar="B", nargs="?", default="HEAD", help="new commit (default: HEAD)")
    parser.add_argument("--quick", action="store_true", help="smaller jobs, fewer rounds")
    parser.add_argument("--rounds", type=int, default=None, help="default: 7, or 3 with --quick")
    parser.add_argument(
        "--threshold",
        metavar="PERCENT",
        type=float,
        default=THRESHOLD,
        help=f"slowdown that counts (default: {THRESHOLD:g})",
    )
    parser.add_argument("--jobs", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.jobs:
        return run_jobs(args.quick, repeats=3)
    old, new = measure_commits(args.a, args.b, args.rounds or (3 if args.quick else 7), args.quick)
    ratios, slower = compare(old, new, args.threshold)
    print(f"Time of {args.b} relative to {args.a}:")
    for name, ratio in ratios.items():
        print(f"{ratio:6.2f}  {name}{'  SLOWER' if name in slower else ''}")
    print(f"Slower by more than {args.threshold:g} %: {', '.join(slower) or 'none'}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
