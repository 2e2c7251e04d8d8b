"""Time PGMax on a lattice; speed.py runs it in an environment with requirements-pgmax.txt.

Prints one line of JSON: seconds per iteration, one number per repeat, and the largest difference from the
marginals in the problem. PGMax updates all messages in parallel instead of in sweeps, so that only converged
marginals agree.
"""

import argparse
import json
import time

import numpy as np
from pgmax import fgraph, fgroup, infer, vgroup


def main():
    """Read the problem, build the factor graph, run and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", help="npz with unary, edges, tables, edge_table, shape, mu")
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    problem = np.load(args.problem)
    shape, n_states = tuple(problem["shape"]), problem["unary"].shape[1]
    variables = vgroup.NDVarArray(num_states=n_states, shape=shape)
    graph = fgraph.FactorGraph(variable_groups=variables)
    names = [variables[tuple(index)] for index in np.argwhere(np.ones(shape, dtype=bool))]
    graph.add_factors(
        fgroup.PairwiseFactorGroup(
            variables_for_factors=[[names[i], names[j]] for i, j in problem["edges"]],
            log_potential_matrix=problem["tables"][problem["edge_table"]],
        )
    )
    bp = infer.build_inferer(graph.bp_state, backend="bp")
    start = bp.init(evidence_updates={variables: problem["unary"].reshape(*shape, n_states)})

    def run(iterations):
        arrays = bp.run(start, num_iters=iterations, damping=0.0, temperature=1.0)
        return arrays, np.asarray(arrays.ftov_msgs)  # waits for the result

    arrays, _ = run(args.iterations)
    marginals = infer.get_marginals(bp.get_beliefs(arrays))[variables].reshape(-1, n_states)
    seconds = []
    for _ in range(args.repeats):
        begin = time.perf_counter()
        run(args.iterations)
        seconds.append((time.perf_counter() - begin) / args.iterations)
    error = float(np.abs(marginals - problem["mu"]).max())
    print(json.dumps({"seconds": seconds, "error": error}))


if __name__ == "__main__":
    main()
