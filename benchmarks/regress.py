"""Compare the speed of two commits, and name what got slower by more than 10 %.

    python benchmarks/regress.py A B

Both are checked out into a temporary folder, and the jobs below, those of this checkout, run on each in turn.
Exits with 1 where B is slower than A somewhere.
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

SLOWER = 1.1


def jobs_of(quick):
    """Make the jobs: small enough to run often, one for each thing that is worth keeping fast."""
    from child import make_images

    from skcrf import GridCRFClassifier
    from skcrf.graph import from_edges
    from skcrf.inference import BP, TRW, MeanField

    shape, labels = ((40, 60), (2,)) if quick else ((100, 150), (2, 5))
    X, Y = make_images(4, shape, 10, 2)
    jobs, trw = {}, TRW()
    for k in labels:
        shared, own = lattice_problem(*shape, k), lattice_problem(*shape, k, per_edge=True)
        as_list = from_edges(shared.graph.n_nodes, shared.graph.edges)
        d_mu = np.random.default_rng(0).normal(size=shared.theta.unary.shape)
        jobs |= {
            f"bp, {k} labels": lambda shared=shared: BP().forward(*shared),
            f"trw, {k} labels": lambda shared=shared: TRW(rho=0.5).forward(*shared),
            f"trw rho auto, {k} labels": lambda shared=shared: TRW().forward(*shared),
            f"trw, {k} labels, a table an edge": lambda own=own: TRW(rho=0.5).forward(*own),
            f"trw gradient, {k} labels": lambda shared=shared, d_mu=d_mu: trw.backward(
                trw.forward(*shared, tape=True), d_mu=d_mu
            ),
            f"mean field, {k} labels": lambda shared=shared: MeanField().forward(*shared),
            f"bp, {k} labels, edge list": lambda as_list=as_list, own=own: BP().forward(as_list, own.theta),
        }
    crf = GridCRFClassifier(inference=TRW(), max_iter=2, tol=0.0)
    jobs["fit"] = lambda: crf.fit(X, Y)
    jobs["predict_proba"] = lambda: crf.predict_proba(X)
    return jobs


def run_jobs(quick, repeats):
    """Time the jobs on the package that is found first; prints the best seconds of each as JSON."""
    warnings.simplefilter("ignore")  # of fits that are cut short, in whatever words a commit has
    jobs = jobs_of(quick)
    for job in jobs.values():
        job()  # compiles
    print(json.dumps({name: min(seconds(job) for _ in range(repeats)) for name, job in jobs.items()}))


def compare(old, new, slower=SLOWER):
    """Compare times.

    Parameters
    ----------
    old, new : dict of str to list of float
        Seconds of each job, one number a round.
    slower : float, default=1.1
        Ratio from which on a job counts as slower.

    Returns
    -------
    ratios : dict of str to float
        New over old, the median over rounds: rounds are interleaved, so what disturbs one disturbs both.
    worse : list of str
        The jobs that got slower.
    """
    ratios = {
        name: statistics.median(b / a for a, b in zip(old[name], new[name], strict=True)) for name in old
    }
    return ratios, [name for name, ratio in ratios.items() if ratio > slower]


def measure(tree, quick):
    """Run the jobs once on a checkout, in a process of its own; returns the seconds of each."""
    env = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, str(HERE / "regress.py"), "--jobs", *(["--quick"] if quick else [])]
    done = subprocess.run(command, env=env, cwd=tree, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"The jobs failed on {tree.name}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def git(*arguments):
    """Run git in this repository."""
    done = subprocess.run(["git", "-C", str(HERE), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return done.stdout.strip()


def regress(a, b, rounds, quick):
    """Measure both commits in turn; returns what `compare` returns."""
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
    by_job = {side: {name: [one[name] for one in many] for name in many[0]} for side, many in times.items()}
    return compare(by_job["A"], by_job["B"])


def main():
    """Compare two commits and say what got slower."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", metavar="A", nargs="?", default="HEAD~1", help="the commit before")
    parser.add_argument("b", metavar="B", nargs="?", default="HEAD", help="the commit after")
    parser.add_argument("--quick", action="store_true", help="smaller jobs, fewer rounds")
    parser.add_argument("--rounds", type=int, default=None, help="default: 7, or 3 with --quick")
    parser.add_argument("--jobs", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.jobs:
        return run_jobs(args.quick, repeats=3)
    ratios, worse = regress(args.a, args.b, args.rounds or (3 if args.quick else 7), args.quick)
    print(f"seconds of {args.b} over those of {args.a}")
    for name, ratio in ratios.items():
        print(f"{ratio:6.2f}  {name}{'  SLOWER' if name in worse else ''}")
    print(f"slower by more than {100 * (SLOWER - 1):.0f} %: {', '.join(worse) or 'nothing'}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
