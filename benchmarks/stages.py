"""Where an iteration on a lattice spends its time: nanoseconds a message, stage by stage.

The same stages are timed on a large image and on one whose arrays stay in the cache: the difference is time
spent waiting for memory. A sweep sends messages along the lines and back; crossing turns what they mean to
the other lines.
"""

import argparse

import numpy as np
from measuring import interleaved

from skcrf.inference._lattice import cross as _crossing
from skcrf.inference._lattice import layout as _tiles
from skcrf.inference._lattice import sweep as _sweeps

SHAPES = {"200 x 300": (200, 300), "in cache": (64, 64)}


def stages(k, shape, rho, rounds):
    """Time the stages of half an iteration, forward and backward; nanoseconds a message."""
    rng = np.random.default_rng(0)
    n_rows, maximise = (1, None) if k == 2 else (k, False)
    along, across = (_tiles.dimensions(*shape, layout, n_rows) for layout in (0, 1))
    q, f, b, unary, d_f, d_b, d_q, d_old = (rng.uniform(0.5, 1, size=along) for _ in range(8))
    q_across, d_across = (rng.uniform(0.5, 1, size=across) for _ in range(2))
    tables = rng.uniform(0.5, 1, size=(2, k, k))
    d_tables = np.zeros_like(tables)
    arrays = d_f, d_b, d_q, d_old, d_tables
    weights = rho, np.full(along[0] * along[3], rho)

    def sweep_backward():
        d_f.fill(0.01)
        d_b.fill(0.01)
        _sweeps._sweep_vjp(q, f, b, b, tables, weights, maximise, 0, shape[1], *arrays)

    jobs = {
        "sweep": lambda: _sweeps._sweep(q, f, b, tables, weights, maximise, 0, shape[1]),
        "cross": lambda: _crossing.cross(f, b, weights, unary, q_across),
        "sweep, backward": sweep_backward,
        "cross, backward": lambda: _crossing.cross_vjp(d_across, weights, d_f, d_b),
    }
    messages = 2 * shape[0] * (shape[1] - 1)
    return {name: 1e9 * seconds / messages for name, seconds in interleaved(jobs, rounds).items()}


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 5, 8])
    parser.add_argument("--rho", type=float, nargs="+", default=[1.0, 0.5, 0.51])
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    for k in args.labels:
        for rho in args.rho:
            for title, shape in SHAPES.items():
                for stage, ns in stages(k, shape, rho, args.rounds).items():
                    print(
                        f"{k:2} labels, rho {rho:4}, {title:9}: {stage:15} {ns:6.2f} ns a message", flush=True
                    )


if __name__ == "__main__":
    main()
