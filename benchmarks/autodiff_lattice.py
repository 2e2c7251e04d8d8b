"""Time marginals of a lattice and their derivative by automatic differentiation, in torch or in jax.

TRW as one writes it with these libraries: all messages at once, for a fixed number of iterations, and the
cross-entropy of given labels differentiated through all of them. Runs in an environment with torch or jax,
called by speed.py, on one core. Prints one line of JSON: CPU seconds of the marginals and of the gradient,
one number per repeat. With `--answer`, writes the marginals and the gradients of the potentials instead.
"""

import argparse
import json
import os
import sys
import time

import numpy as np


def torch_jobs(unary, tables, labels, rho, iterations):
    """Return functions that compute marginals, and the gradients of both kinds of potentials, with torch."""
    import torch

    torch.set_num_threads(1)
    height, width, n_states = unary.shape
    unary, tables = (torch.from_numpy(array).requires_grad_() for array in (unary, tables))
    labels = torch.from_numpy(labels)[..., None]

    def normalised(message):
        return message / message.sum(-1, keepdim=True)

    def marginals():
        right, down = torch.exp(tables / rho)
        evidence = torch.exp(unary)
        column = torch.full((height, 1, n_states), 1 / n_states, dtype=unary.dtype)  # where none arrives
        row = torch.full((1, width, n_states), 1 / n_states, dtype=unary.dtype)
        start = torch.full_like(evidence, 1 / n_states)
        from_left = from_right = from_above = from_below = start
        for _ in range(iterations):
            belief = evidence * (from_left * from_right * from_above * from_below) ** rho
            to_right = normalised(belief / from_right @ right)
            to_left = normalised(belief / from_left @ right.T)
            to_below = normalised(belief / from_below @ down)
            to_above = normalised(belief / from_above @ down.T)
            from_left = torch.cat([column, to_right[:, :-1]], 1)
            from_right = torch.cat([to_left[:, 1:], column], 1)
            from_above = torch.cat([row, to_below[:-1]], 0)
            from_below = torch.cat([to_above[1:], row], 0)
        return normalised(evidence * (from_left * from_right * from_above * from_below) ** rho)

    def forward():
        with torch.no_grad():
            return marginals().numpy()

    def gradient():
        loss = -torch.log(torch.gather(marginals(), -1, labels)).mean()
        return [d.numpy() for d in torch.autograd.grad(loss, (unary, tables))]

    return forward, gradient


def jax_jobs(unary, tables, labels, rho, iterations):
    """Return functions that compute marginals, and the gradients of both kinds of potentials, with jax."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", unary.dtype == np.float64)

    def normalised(message):
        return message / message.sum(-1, keepdims=True)

    def marginals(unary, tables):
        right, down = jnp.exp(tables / rho)
        evidence = jnp.exp(unary)

        def iterate(messages, _):
            from_left, from_right, from_above, from_below = messages
            belief = evidence * (from_left * from_right * from_above * from_below) ** rho
            to_right = normalised(belief / from_right @ right)
            to_left = normalised(belief / from_left @ right.T)
            to_below = normalised(belief / from_below @ down)
            to_above = normalised(belief / from_above @ down.T)
            from_left = from_left.at[:, 1:].set(to_right[:, :-1])
            from_right = from_right.at[:, :-1].set(to_left[:, 1:])
            from_above = from_above.at[1:].set(to_below[:-1])
            from_below = from_below.at[:-1].set(to_above[1:])
            return (from_left, from_right, from_above, from_below), None

        start = (jnp.full(unary.shape, 1 / unary.shape[-1], unary.dtype),) * 4
        (from_left, from_right, from_above, from_below), _ = jax.lax.scan(iterate, start, length=iterations)
        return normalised(evidence * (from_left * from_right * from_above * from_below) ** rho)

    def loss(unary, tables):
        return -jnp.log(jnp.take_along_axis(marginals(unary, tables), labels[..., None], -1)).mean()

    arrays = jnp.asarray(unary), jnp.asarray(tables)
    compiled, compiled_gradient = jax.jit(marginals), jax.jit(jax.grad(loss, (0, 1)))

    def forward():
        return np.asarray(compiled(*arrays))

    def gradient():
        return [np.asarray(d) for d in compiled_gradient(*arrays)]

    return forward, gradient


def cpu_times(job, repeats):
    """Call a job once, then return the CPU seconds of each of some calls."""
    job()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return times


def use_one_core():
    """Restrict this process, and the libraries that it imports later, to one core."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    if sys.platform == "linux":
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main():
    """Read the problem, run and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=("torch", "jax"))
    parser.add_argument("problem", help="npz with unary, tables, labels and rho")
    parser.add_argument("--iterations", type=int, default=10, help="number of iterations")
    parser.add_argument("--repeats", type=int, default=5, help="number of calls to time")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--answer", help="npz to write marginals and gradients to")
    args = parser.parse_args()
    use_one_core()
    with np.load(args.problem) as problem:
        arrays = (problem[name].astype(args.dtype) for name in ("unary", "tables"))
        make = {"torch": torch_jobs, "jax": jax_jobs}[args.library]
        forward, gradient = make(*arrays, problem["labels"], float(problem["rho"]), args.iterations)
    if args.answer:
        unary, tables = gradient()
        np.savez(args.answer, mu=forward(), unary=unary, tables=tables)
        print(json.dumps({}))
        return
    times = {"marginals": cpu_times(forward, args.repeats), "gradient": cpu_times(gradient, args.repeats)}
    print(json.dumps(times))


if __name__ == "__main__":
    main()
