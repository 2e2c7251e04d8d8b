"""Messages along factors of two nodes against the same messages along edges: nanoseconds a message.

The graph is a lattice, told to both engines as any graph. The goal is at most twice the time of an edge.
"""

import argparse

import numpy as np
from measuring import interleaved

from skcrf.graph import Potentials, as_factors, lattice
from skcrf.inference._engine import Plan
from skcrf.inference._factor.engine import FactorEngine
from skcrf.inference._pairwise.engine import PairwiseEngine
from skcrf.inference.trw import spanning_tree_weights


def jobs_of(engine):
    """An iteration, and its adjoint."""
    before = engine.initial_state()
    active, adjoint, d_state = np.ones(1, dtype=bool), engine.new_adjoint(), np.ones_like(before)
    engine.step(before, active)
    after = before.copy()
    engine.step(after, active)
    return {
        "forward": lambda: engine.step(before.copy(), active),
        "backward": lambda: engine.step_vjp(adjoint, before, after, active, d_state.copy()),
    }


def measure(n_states, side, tied, rounds):
    """Time both engines in turn: nanoseconds a message of edges and of factors, by direction."""
    rng = np.random.default_rng(0)
    graph = lattice(side, side, tied=tied)
    theta = Potentials(
        rng.normal(size=(graph.n_nodes, n_states)), rng.normal(size=(graph.n_tables, n_states, n_states))
    )
    rho, flat = spanning_tree_weights(graph), theta._replace(tables=theta.tables.reshape(-1))
    engines = {
        "edges": PairwiseEngine(Plan(graph, rho, 1, 0.0, 0.0), theta),
        "factors": FactorEngine(Plan(as_factors(graph, n_states), rho, 1, 0.0, 0.0), flat),
    }
    jobs = {(kind, way): job for kind, engine in engines.items() for way, job in jobs_of(engine).items()}
    found = interleaved(jobs, rounds)
    return {key: 1e9 * seconds / (2 * graph.n_edges) for key, seconds in found.items()}


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 3, 5, 10])
    parser.add_argument("--side", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=25)
    args = parser.parse_args()
    for n_states in args.labels:
        for tied in (True, False):
            found = measure(n_states, args.side, tied, args.rounds)
            for way in ("forward", "backward"):
                edges, factors = found["edges", way], found["factors", way]
                kind = "one table a direction" if tied else "one table an edge"
                print(
                    f"{n_states:2} labels, {kind:21}, {way:8}: {edges:4.0f} ns an edge, {factors:4.0f} ns a "
                    f"factor, {edges / factors:.2f} of its speed",
                    flush=True,
                )


if __name__ == "__main__":
    main()
