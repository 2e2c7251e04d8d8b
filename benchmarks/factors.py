"""Compare the time per message along factors of two nodes and along edges.

The graph is a lattice, passed to both as a general graph. The goal is at most twice the time of an edge.
"""

import argparse

import numpy as np
from measuring import iteration_time, time_in_turn

from skcrf.graph import Potentials, as_factors, from_edges, lattice
from skcrf.inference import TRW

#: Iterations of two calls, whose difference excludes the cost per call.
SHORT, LONG = 2, 10
#: Edge weight; other than 1 and 1/2, which have faster powers.
RHO = 0.6


def make_jobs(graph, theta):
    """Make short and long calls of the forward pass, and of the forward pass with its gradient."""
    d_mu, jobs = np.ones_like(theta.unary), {}
    for n in (SHORT, LONG):
        method = TRW(rho=RHO, max_iter=n)
        jobs["forward", n] = lambda method=method: method.forward(graph, theta) and None
        jobs["gradient", n] = lambda method=method: (
            method.backward(method.forward(graph, theta, tape=True), d_mu=d_mu) and None
        )
    return jobs


def measure(n_states, side, tied, rounds):
    """Return nanoseconds per message by kind of graph and job; None where noise is too large."""
    rng = np.random.default_rng(0)
    grid = lattice(side, side)
    graph = from_edges(grid.n_nodes, grid.edges, tied=tied)
    unary = rng.normal(size=(graph.n_nodes, n_states))
    tables = rng.normal(size=(graph.n_tables, n_states, n_states))
    problems = {
        "edges": (graph, Potentials(unary, tables)),
        "factors": (as_factors(graph, n_states), Potentials(unary, tables.reshape(-1))),
    }
    jobs = {(kind, *key): job for kind, args in problems.items() for key, job in make_jobs(*args).items()}
    times = time_in_turn(jobs, rounds)
    result = {}
    for kind in problems:
        for job in ("forward", "gradient"):
            seconds = iteration_time(min(times[kind, job, LONG]), min(times[kind, job, SHORT]), LONG - SHORT)
            result[kind, job] = None if seconds is None else 1e9 * seconds / (2 * graph.n_edges)
    return result


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 3, 5, 10], help="numbers of labels")
    parser.add_argument("--side", type=int, default=80, help="height and width of the lattice")
    parser.add_argument("--rounds", type=int, default=9, help="number of rounds")
    args = parser.parse_args()
    for n_states in args.labels:
        for tied in (True, False):
            times = measure(n_states, args.side, tied, args.rounds)
            for job in ("forward", "gradient"):
                edges, factors = times["edges", job], times["factors", job]
                result = "not measured"
                if None not in (edges, factors):
                    ratio = factors / edges
                    result = (
                        f"{edges:4.0f} ns per message of an edge, {factors:4.0f} of a factor: {ratio:.2f} x"
                    )
                kind = "shared table" if tied else "one table per edge"
                print(f"{n_states:2} labels, {kind:18}, {job:8}: {result}", flush=True)


if __name__ == "__main__":
    main()
