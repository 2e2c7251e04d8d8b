"""Measure how the time per edge grows on stars, complete graphs, lattices as edge lists and random graphs.

The time per edge should not depend on the degree of nodes, nor on the size of a graph as far as the caches of
the processor allow. Goal: at most 1.2 times that of the smallest graph of the same kind.
"""

import argparse
import time

import numpy as np
from measuring import at_most, environment, print_goals, seconds, time_in_turn

from skcrf.graph import Potentials, from_edges, lattice
from skcrf.inference import BP, TRW, TRWS, MaxProduct, Tree

METHODS = {
    "bp": BP(max_iter=5),
    "trw": TRW(rho=0.5, max_iter=5),
    "trw_s": TRWS(max_iter=5),
    "max_product": MaxProduct(max_iter=5, tol=0.0),
    "tree": Tree(),
}
GOAL = 1.2


def star(n_nodes):
    """Return the edges of a star."""
    leaves = np.arange(1, n_nodes)
    return np.stack([np.zeros_like(leaves), leaves], axis=1)


def complete(n_nodes):
    """Return the edges of a complete graph."""
    return np.stack(np.triu_indices(n_nodes, 1), axis=1)


def grid(n_nodes):
    """Return the edges of a square lattice."""
    side = int(n_nodes**0.5)
    return lattice(side, side).edges


def sparse(n_nodes):
    """Draw a random graph with two edges per node."""
    ends = np.random.default_rng(0).integers(n_nodes, size=(2 * n_nodes, 2))
    return ends[ends[:, 0] != ends[:, 1]]


#: Edges, methods, and numbers of nodes of all graphs of a kind, in full and in quick mode.
KINDS = {
    "star": (star, METHODS, (5_000, 10_000, 20_000), (1_000, 4_000)),
    "complete": (complete, ("bp", "trw", "trw_s", "max_product"), (200, 400), (50, 100)),
    "lattice": (grid, ("bp", "trw_s"), (60_000, 250_000, 1_000_000), (2_500, 10_000)),
    "random": (sparse, ("bp", "trw_s"), (60_000, 250_000, 1_000_000), (2_500, 10_000)),
}


def make_problem(make_edges, n_nodes, n_states):
    """Draw normal potentials for a graph whose edges share a table."""
    edges, rng = make_edges(n_nodes), np.random.default_rng(0)
    graph = from_edges(int(edges.max()) + 1, edges, tied=True)
    unary, tables = (rng.normal(size=shape) for shape in ((graph.n_nodes, n_states), (1, n_states, n_states)))
    return graph, Potentials(unary, 0.1 * tables)


def forward(method, graph, theta):
    """Return a job of inference."""

    def run():
        start = time.process_time()  # of this process, whatever else runs
        method.forward(graph, theta)
        return time.process_time() - start

    return run


def gradient(method, graph, theta):
    """Return a job of inference with log_z, edge marginals and all derivatives."""

    def run():
        start = time.process_time()
        beliefs = method.forward(graph, theta, edges=True, tape=True)
        method.backward(beliefs, np.ones_like(theta.unary), beliefs.edge_mu, beliefs.log_z)
        return time.process_time() - start

    return run


def rows_of(kind, quick, n_states, rounds, only=METHODS):
    """Measure graphs of a kind; yield Rows, and print the time per edge."""
    make_edges, methods, *sizes = KINDS[kind]
    methods = [name for name in methods if name in only]
    problems = {n: make_problem(make_edges, n, n_states) for n in sizes[quick]}
    for name in methods:
        for make in (forward, gradient):
            if make is gradient and "mu" not in METHODS[name].differentiates:
                continue
            jobs = {n: make(METHODS[name], *problem) for n, problem in problems.items()}
            times = {n: min(taken) for n, taken in time_in_turn(jobs, rounds).items()}
            per_edge = [1e9 * times[n] / problems[n][0].n_edges for n in problems]
            points = ", ".join(f"{n}: {ns:.0f} ns" for n, ns in zip(problems, per_edge, strict=True))
            print(f"{kind}, {name}, {make.__name__}: {points} per edge", flush=True)
            growth = max(per_edge[1:]) / per_edge[0]
            yield at_most(f"{kind}, {name}, {make.__name__}: time per edge of larger graphs", growth, GOAL)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of graphs")
    parser.add_argument("--labels", type=int, default=3, help="number of labels")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds, of which the best counts")
    args = parser.parse_args()
    print("\n".join(f"{name}: {value}" for name, value in environment().items()) + "\n")
    rows = [row for kind in args.kinds for row in rows_of(kind, args.quick, args.labels, args.rounds)]
    print()
    print_goals(rows)


if __name__ == "__main__":
    print(f"took {seconds(main):.0f} s")
