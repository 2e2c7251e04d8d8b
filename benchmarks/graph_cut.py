"""Time the exact MAP of binary fields by graph cuts, compared with PyMaxflow.

PyMaxflow is under the GPL and not a dependency of the package; install it by ``pip install -r
benchmarks/requirements-maxflow.txt``. Both solve the same fields with real capacities. Both times include the
construction of the flow graph.
"""

import argparse
import time

import numpy as np

from skcrf.graph import Potentials, lattice, score
from skcrf.inference import GraphCut

try:
    import maxflow
except ImportError:
    maxflow = None

HEIGHT, WIDTH = 200, 300
#: Potentials of equal neighbours, from easy to hard; unary potentials have standard deviation 1.
COUPLINGS = (0.2, 0.5, 1.0, 2.0)


def field(coupling, rng):
    """Draw a field; return its graph and potentials."""
    unary = np.zeros((HEIGHT * WIDTH, 2))
    unary[:, 1] = rng.normal(size=len(unary))
    return lattice(HEIGHT, WIDTH), Potentials(unary, np.tile(coupling * np.eye(2), (2, 1, 1)))


def by_skcrf(graph, theta):
    """Return the score of the MAP configuration, which must be proved optimal."""
    beliefs = GraphCut(non_submodular="error").forward(graph, theta)
    if not np.array_equal(beliefs.bound, beliefs.log_z):
        raise RuntimeError("The configuration of graph_cut was not proved optimal.")
    return beliefs.log_z[0]


def by_pymaxflow(graph, theta):
    """Return the score of PyMaxflow's configuration."""
    cut = maxflow.Graph[float](graph.n_nodes, 2 * graph.n_edges)
    nodes = cut.add_grid_nodes((HEIGHT, WIDTH))
    cut.add_grid_edges(nodes, theta.tables[0, 0, 0], symmetric=True)
    gain = (theta.unary[:, 1] - theta.unary[:, 0]).reshape(HEIGHT, WIDTH)
    cut.add_grid_tedges(nodes, np.maximum(-gain, 0.0), np.maximum(gain, 0.0))
    cut.maxflow()
    return score(graph, theta, cut.get_grid_segments(nodes).ravel().astype(np.int64))[0]


def timed(solve, graph, theta, repeats):
    """Return the shortest of several times, and the score."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        value = solve(graph, theta)
        times.append(time.perf_counter() - start)
    return min(times), value


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="number of calls")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    by_skcrf(*field(1.0, rng))  # compiles
    print(f"Binary fields of {HEIGHT} x {WIDTH}, best of {args.repeats} calls")
    for coupling in COUPLINGS:
        graph, theta = field(coupling, rng)
        seconds, value = timed(by_skcrf, graph, theta, args.repeats)
        line = f"coupling {coupling:3.1f}: score {value:.6f}, graph_cut {1e3 * seconds:7.1f} ms"
        if maxflow is None:
            print(f"{line}, PyMaxflow not installed")
            continue
        other, its_value = timed(by_pymaxflow, graph, theta, args.repeats)
        print(f"{line}, PyMaxflow {1e3 * other:7.1f} ms, scores differ by {abs(value - its_value):.1e}")


if __name__ == "__main__":
    main()
