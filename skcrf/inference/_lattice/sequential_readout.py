"""Readouts of sequential sweeps: marginals, the bound of monotonic chains, configurations, and changes."""

import numpy as np

from skcrf._numerics import kernel, vector_kernel
from skcrf.inference._lattice.sequential_message import STRIDE, add_to_incoming, beliefs
from skcrf.inference._lattice.sequential_sweep import (
    clear_outside,
    field_of,
    first_and_last,
    sites_of,
    work_in,
)
from skcrf.inference._lattice.strips import fold_sides, lanes_between, position_of, rows_and_columns
from skcrf.inference._lattice.vector import LANES, WIDTH, address, at_least, load, store, zeros_like


@kernel
def _lanes_of(field, strip, position):
    return lanes_between(field.shape.slope, strip, position, (0, field.height), (0, field.width))


@kernel
def _node_at(field, strip, position, lane):
    """Find the number of a node in its example."""
    row = strip * LANES + lane
    return row * field.width + position - position_of(field.shape.slope, lane, 0)


# Marginals


@kernel
def marginals(strips, state, mu):
    """Compute the node marginals."""
    n_labels, n_values = strips.n_labels, strips.n_values
    memory = np.empty((5, n_values * LANES))
    for example in range(len(strips.shapes)):
        field = field_of(strips, example)
        work = work_in(memory, n_values)
        sites = sites_of(strips, example, field.shape.size, strips.unary, state, state)
        first, last = first_and_last(field)
        for strip in range(field.shape.n_strips):
            for p in range(first, last + 1):
                beliefs(sites, field.steps, (strip * field.shape.positions + p) * field.shape.row + 1, work)
                begin, end = _lanes_of(field, strip, p)
                for lane in range(begin, end):
                    node = strips.node_ptr[example] + _node_at(field, strip, p, lane)
                    total = 1.0 if n_values < n_labels else 0.0
                    mu[node, 0] = 1.0
                    for x in range(n_values):
                        value = memory[0, x * LANES + lane]
                        mu[node, n_labels - n_values + x] = value
                        total += value
                    for x in range(n_labels):
                        mu[node, x] /= total


@kernel
def marginals_vjp(strips, mu, d_mu, d_state, d_unary):
    """Add the adjoints of unnormalised marginals to those of the potentials and messages."""
    n_labels, n_values = strips.n_labels, strips.n_values
    d_belief = np.empty(n_values * LANES)
    for example in range(len(strips.shapes)):
        field = field_of(strips, example)
        d_sites = sites_of(strips, example, field.shape.size, d_unary, d_state, d_state)
        first, last = first_and_last(field)
        start = 2 * strips.n_directions * strips.start[example]
        for strip in range(field.shape.n_strips):
            for p in range(first, last + 1):
                d_belief[:] = 0.0
                begin, end = _lanes_of(field, strip, p)
                for lane in range(begin, end):
                    node, mean = strips.node_ptr[example] + _node_at(field, strip, p, lane), 0.0
                    for x in range(n_labels):
                        mean += mu[node, x] * d_mu[node, x]
                    for x in range(n_values):
                        i = n_labels - n_values + x
                        d_belief[x * LANES + lane] = mu[node, i] * (d_mu[node, i] - mean)
                at = (strip * field.shape.positions + p) * field.shape.row + 1
                _add_belief(d_belief, field, at, n_values, d_sites)
        for strip in range(field.shape.n_strips):
            fold_sides(strips, field.shape, d_state, start, strip)
        clear_outside(strips, example, d_state)


@kernel
def _add_belief(d_belief, field, at, n_values, d_sites):
    add_to_incoming(address(d_belief), field.steps, at, 1.0 / len(field.steps), n_values, d_sites)


# Changes of messages


@vector_kernel
def _change(before, after, at, n_values, out):
    """Compute the largest relative change of messages with a maximum of 1 for all lanes of a position."""
    for i in range(0, LANES, WIDTH):
        zeros = zeros_like(load(before, at))
        top_before = top_after = zeros + (1.0 if n_values == 1 else 0.0)
        for x in range(n_values):
            top_before = at_least(load(before, at + x * STRIDE + i), top_before)
            top_after = at_least(load(after, at + x * STRIDE + i), top_after)
        largest = zeros
        if n_values == 1:  # the first label, which a ratio does not store
            a, b = top_after, top_before
            largest = at_least(at_least(a - b, b - a) / at_least(a, b), largest)
        for x in range(n_values):
            a = load(before, at + x * STRIDE + i) * top_after
            b = load(after, at + x * STRIDE + i) * top_before
            largest = at_least(at_least(a - b, b - a) / at_least(a, b), largest)
        store(largest, out, i)


@kernel
def _largest_change(before, after, field, n_values, direction, to_later, change):
    """Compute the largest change of the messages of a direction."""
    largest, slope = 0.0, field.shape.slope
    rows, columns = rows_and_columns(direction, to_later, field.height, field.width)
    first, last = first_and_last(field)
    for strip in range(field.shape.n_strips):
        for p in range(first, last + 1):
            at = direction * field.shape.size + (strip * field.shape.positions + p) * field.shape.row + 1
            _change(before, after, at, n_values, address(change))
            begin, end = lanes_between(slope, strip, p, rows, columns)
            for lane in range(begin, end):
                largest = max(largest, change[lane])
    return largest


@kernel
def message_changes(strips, before, after, active):
    """Compute the largest relative change of a message, scaled to a maximum of 1, per active example."""
    changes, change = np.zeros(len(active)), np.empty(LANES)
    for example in range(len(active)):
        if active[example]:
            field, n_values = field_of(strips, example), strips.n_values
            size = field.shape.size
            old = sites_of(strips, example, size, strips.unary, before, before)
            new = sites_of(strips, example, size, strips.unary, after, after)
            for direction in range(strips.n_directions):
                there = _largest_change(old.later, new.later, field, n_values, direction, True, change)
                back = _largest_change(old.earlier, new.earlier, field, n_values, direction, False, change)
                changes[example] = max(changes[example], there, back)
    return changes
