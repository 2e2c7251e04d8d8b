"""Message passing on a lattice with plain loops, the baseline of the tiled kernels.

Labels are the last axis, messages are probabilities, and potentials are exponentiated once. For lattices with
one table per direction.
"""

import numpy as np
from numba import njit

# The neighbours of a pixel.
_LEFT, _RIGHT, _UP, _DOWN = range(4)


@njit(cache=True, nogil=True, error_model="numpy")
def _send(unary, arrived, target, table, rho, cavity, out):
    """Compute the message to the neighbour `target` from the messages of the other neighbours."""
    n_states = len(out)
    first, second, third = (target + 1) % 4, (target + 2) % 4, (target + 3) % 4
    for x in range(n_states):
        others = arrived[first, x] * arrived[second, x] * arrived[third, x]
        if rho == 1.0:
            cavity[x] = unary[x] * others
        elif rho == 0.5:
            cavity[x] = unary[x] * np.sqrt(others / arrived[target, x])
        else:
            cavity[x] = unary[x] * others**rho * arrived[target, x] ** (rho - 1.0)
    total = 0.0
    for y in range(n_states):
        value = 0.0
        for x in range(n_states):
            value += table[y, x] * cavity[x]
        out[y] = value
        total += value
    scale = 1.0 / total
    for y in range(n_states):
        out[y] *= scale


@njit(cache=True, nogil=True, error_model="numpy")
def _iterate(unary, tables, rho, iterations, messages):
    height, width, n_states = unary.shape
    cavity = np.empty(n_states)
    for _ in range(iterations):
        for r in range(height):
            for c in range(width - 1):
                out = messages[r, c + 1, _LEFT]
                _send(unary[r, c], messages[r, c], _RIGHT, tables[_RIGHT], rho, cavity, out)
            for c in range(width - 1, 0, -1):
                out = messages[r, c - 1, _RIGHT]
                _send(unary[r, c], messages[r, c], _LEFT, tables[_LEFT], rho, cavity, out)
        for r in range(height - 1):
            for c in range(width):
                out = messages[r + 1, c, _UP]
                _send(unary[r, c], messages[r, c], _DOWN, tables[_DOWN], rho, cavity, out)
        for r in range(height - 1, 0, -1):
            for c in range(width):
                out = messages[r - 1, c, _DOWN]
                _send(unary[r, c], messages[r, c], _UP, tables[_UP], rho, cavity, out)


def prepare(problem, rho):
    """Exponentiate the potentials and initialise the messages of a lattice with shared tables.

    Returns a function ``iterate(n)``, which does n more iterations and returns the marginals.
    """
    height, width = problem.graph.shapes[0]
    unary = np.exp(problem.theta.unary).reshape(height, width, -1)
    right, down = np.exp(problem.theta.tables / rho)
    tables = np.stack([right, right.T, down, down.T])  # rows are states of the target
    messages = np.ones((height, width, 4, problem.n_states))

    def iterate(n):
        _iterate(unary, tables, rho, n, messages)
        mu = unary * (messages**rho).prod(axis=2)
        return (mu / mu.sum(axis=2, keepdims=True)).reshape(-1, problem.n_states)

    return iterate
