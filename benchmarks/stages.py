"""Time the stages of an iteration on a lattice, in nanoseconds per message.

The stages are timed on a large image and on one whose arrays stay in the cache; the difference is time spent
waiting for memory. A sweep sends messages along lines in both directions; crossing transposes their product
for the sweep along the other axis. The stages are private kernels, which no public call reaches.
"""

import argparse

import numpy as np
from measuring import median_times

from skcrf.inference._lattice import cross, layout, sweep

SHAPES = {"200 x 300": (200, 300), "in cache": (64, 64)}


def time_stages(k, shape, rho, rounds):
    """Return nanoseconds per message of the stages of half an iteration, forward and backward."""
    rng = np.random.default_rng(0)
    n_rows, maximise = (1, None) if k == 2 else (k, False)
    along, across = (layout.dimensions(*shape, axis, n_rows) for axis in (0, 1))
    q, f, b, unary, d_f, d_b, d_q, d_old = (rng.uniform(0.5, 1, size=along) for _ in range(8))
    q_across, d_across = (rng.uniform(0.5, 1, size=across) for _ in range(2))
    tables = rng.uniform(0.5, 1, size=(2, k, k))
    d_tables = np.zeros_like(tables)
    arrays = d_f, d_b, d_q, d_old, d_tables
    weights = rho, np.full(along[0] * along[3], rho)

    def sweep_backward():
        d_f.fill(0.01)
        d_b.fill(0.01)
        sweep._sweep_vjp(q, f, b, b, tables, weights, maximise, 0, shape[1], *arrays)

    jobs = {
        "sweep": lambda: sweep._sweep(q, f, b, tables, weights, maximise, 0, shape[1]),
        "cross": lambda: cross.cross(f, b, weights, unary, q_across),
        "sweep, backward": sweep_backward,
        "cross, backward": lambda: cross.cross_vjp(d_across, weights, d_f, d_b),
    }
    messages = 2 * shape[0] * (shape[1] - 1)
    return {name: 1e9 * seconds / messages for name, seconds in median_times(jobs, rounds).items()}


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 5, 8], help="numbers of labels")
    parser.add_argument("--rho", type=float, nargs="+", default=[1.0, 0.5, 0.51], help="edge weights")
    parser.add_argument("--rounds", type=int, default=9, help="number of rounds")
    args = parser.parse_args()
    for k in args.labels:
        for rho in args.rho:
            for title, shape in SHAPES.items():
                for stage, ns in time_stages(k, shape, rho, args.rounds).items():
                    print(
                        f"{k:2} labels, rho {rho:4}, {title:9}: {stage:15} {ns:6.2f} ns per message",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
