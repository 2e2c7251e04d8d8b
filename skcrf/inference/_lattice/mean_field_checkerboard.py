"""Mean-field updates of a colour at once, for two labels, four neighbours and tables that edges share.

These do what `mean_field_update` does for any lattice, but with little arithmetic per site, calls per line
would take most of the time. Arrays are (line, value, site), with one value. Lines of a colour and a parity
are every second one, from `first` on; neighbours are views of as many lines.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, reduction_kernel, vector_kernel
from skcrf.inference._lattice.mean_field_binary import probability, signed_logistic
from skcrf.inference._lattice.mean_field_layout import (
    BINARY,
    array_of,
    count_sites,
    line_sizes,
    shifted_arrays_of,
    steps_of,
    tables_of,
)


class _Neighbours(NamedTuple):
    """The neighbours of all sites of a parity, at the second and at the first ends of edges, by direction."""

    after0: np.ndarray
    before0: np.ndarray
    after1: np.ndarray
    before1: np.ndarray


@inlined_kernel
def _view(arrays, n_lines, parity, across, along):
    position = parity + along
    return arrays[1 + (position >> 1)][position & 1, 1 + across : 1 + across + n_lines]


@kernel
def _neighbours_of(arrays, n_lines, parity, steps):
    return _Neighbours(
        _view(arrays, n_lines, parity, steps[0, 0], steps[0, 1]),
        _view(arrays, n_lines, parity, -steps[0, 0], -steps[0, 1]),
        _view(arrays, n_lines, parity, steps[1, 0], steps[1, 1]),
        _view(arrays, n_lines, parity, -steps[1, 0], -steps[1, 1]),
    )


@vector_kernel
def _update(tables, neighbours, unary, first, n_sites, out):
    after0, before0, after1, before1 = neighbours
    t, u = tables[0, 0, 0, 0], tables[1, 0, 0, 0]
    for line in range(first, len(out), 2):
        for i in range(out.shape[2]):
            energy = (
                unary[line, 0, i]
                + t * (probability(after0[line, 0, i], BINARY) + probability(before0[line, 0, i], BINARY))
                + u * (probability(after1[line, 0, i], BINARY) + probability(before1[line, 0, i], BINARY))
            )
            out[line, 0, i] = signed_logistic(energy)
        for i in range(n_sites, out.shape[2]):
            out[line, 0, i] = 0.0


@vector_kernel
def _energies_vjp(values, d_values, first, d_energies):
    for line in range(first, len(values), 2):
        for i in range(values.shape[2]):
            smaller = abs(values[line, 0, i])
            d_energies[line, 0, i] = smaller * (1.0 - smaller) * d_values[line, 0, i]


@vector_kernel
def _add(values, first, out):
    for line in range(first, len(out), 2):
        for i in range(out.shape[2]):
            out[line, 0, i] += values[line, 0, i]


@vector_kernel
def _neighbours_vjp(tables, d_neighbours, start, first, n_sites, out):
    """Compute a multiple of `out` plus the adjoint that sites get from the energies of their neighbours."""
    after0, before0, after1, before1 = d_neighbours
    t, u = tables[0, 0, 0, 0], tables[1, 0, 0, 0]
    for line in range(first, len(out), 2):
        for i in range(out.shape[2]):
            out[line, 0, i] = (
                start * out[line, 0, i]
                + t * (after0[line, 0, i] + before0[line, 0, i])
                + u * (after1[line, 0, i] + before1[line, 0, i])
            )
        for i in range(n_sites, out.shape[2]):
            out[line, 0, i] = 0.0


@reduction_kernel
def _table_vjp(d_own, own, d_after, after, first):
    """Sum the derivative of energies at both ends of edges with respect to their table."""
    total = 0.0
    for line in range(first, len(own), 2):
        for i in range(own.shape[2]):
            total += d_own[line, 0, i] * probability(after[line, 0, i], BINARY)
            total += probability(own[line, 0, i], BINARY) * d_after[line, 0, i]
    return total


@kernel
def ascend_checkerboard(board, state, active):
    """Update all sites of the active examples, colour after colour."""
    for example in range(len(active)):
        if active[example]:
            n_lines, length, turned = line_sizes(board, example)
            arrays, steps = shifted_arrays_of(board, state, example), steps_of(board, turned)
            unary, tables = array_of(board, board.unary, example), tables_of(board, board.tables, example)
            for colour in range(2):
                for parity in range(2):
                    neighbours = _neighbours_of(arrays, n_lines, parity, steps)
                    theta, out = unary[parity, 1 : 1 + n_lines], arrays[1][parity, 1 : 1 + n_lines]
                    n_sites = count_sites(length, parity)
                    _update(tables, neighbours, theta, (colour + parity) % 2, n_sites, out)


@kernel
def _undo(board, example, before, after, d_state, d_unary, d_tables, d_energies):
    """Undo an iteration of one example."""
    n_lines, length, turned = line_sizes(board, example)
    d_arrays, steps = shifted_arrays_of(board, d_energies, example), steps_of(board, turned)
    tables, d_inside = tables_of(board, board.tables, example), tables_of(board, d_tables, example)
    d_mu, d_theta = array_of(board, d_state, example), array_of(board, d_unary, example)
    old, new = shifted_arrays_of(board, before, example), shifted_arrays_of(board, after, example)
    lines = slice(1, 1 + n_lines)
    for colour in range(1, -1, -1):
        for parity in range(2):
            first, n_sites = (colour + parity) % 2, count_sites(length, parity)
            d_out, d_own = d_mu[parity, lines], d_arrays[1][parity, lines]
            if colour == 0:
                d_neighbours = _neighbours_of(d_arrays, n_lines, parity, steps)
                _neighbours_vjp(tables, d_neighbours, 1.0, first, n_sites, d_out)
            _energies_vjp(new[1][parity, lines], d_out, first, d_own)
            _add(d_own, first, d_theta[parity, lines])
    for parity in range(2):
        d_neighbours = _neighbours_of(d_arrays, n_lines, parity, steps)
        d_out, d_own, n_sites = d_mu[parity, lines], d_arrays[1][parity, lines], count_sites(length, parity)
        # Updates of colour 1 used the new values of colour 0, those of colour 0 the old values of colour 1.
        for colour in range(2):
            first = (colour + parity) % 2
            own, other = (new, old) if colour == 0 else (old, new)
            neighbours = _neighbours_of(other, n_lines, parity, steps)
            for direction in range(2):
                after, d_after = neighbours[2 * direction], d_neighbours[2 * direction]
                d_inside[direction, 0, 0, 0] += _table_vjp(
                    d_own, own[1][parity, lines], d_after, after, first
                )
            if colour == 1:
                _neighbours_vjp(tables, d_neighbours, 0.0, first, n_sites, d_out)
            else:
                for line in range(first, n_lines, 2):
                    d_out[line] = 0.0


@kernel
def ascend_checkerboard_vjp(board, before, after, active, d_state, d_unary, d_tables, d_energies):
    """Undo an iteration; adds to the adjoints of the potentials. `d_energies` is scratch memory of zeros."""
    for example in range(len(active)):
        if active[example]:
            _undo(board, example, before, after, d_state, d_unary, d_tables, d_energies)
