"""Readouts of sequential sweeps: marginals, the bound of monotonic chains, configurations, and changes."""

import numpy as np

from skcrf._numerics import kernel, reduction_kernel, vector_kernel, vector_log
from skcrf.inference._lattice.vector import LANES, WIDTH, address, at_least, load, put, store, zeros_like
from skcrf.inference._sequential.layout import (
    DOWN,
    RIGHT,
    RISING,
    copy_side,
    edge_at,
    fold_sides,
    lanes_between,
    position_of,
    rows_and_columns,
)
from skcrf.inference._sequential.message import (
    RATIO,
    STRIDE,
    add_to_incoming,
    beliefs,
    cavities,
    entry,
    entry_of_lane,
    multiply,
)
from skcrf.inference._sequential.sweep import (
    clear_outside,
    field_of,
    first_and_last,
    sites_of,
    table_at,
    work_in,
)


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


# The bound: the log-partition functions of chains, or their maxima, summed by their weights


@vector_kernel
def _tightest_ratio(table, sites, own_at, to, work, out, out_at):
    """Compute by how much ratios that were sent fall short of their updates, for the tighter label."""
    for i in range(0, LANES, WIDTH):
        c = load(work.belief, i) / load(sites.later, own_at + i)
        first = entry(table, 0, 0, i) + entry(table, 0, 1, i) * c
        second = entry(table, 1, 0, i) + entry(table, 1, 1, i) * c
        store(at_least(second / load(sites.earlier, to + i), first), out, out_at + i)


@vector_kernel
def _tightest(sites, to, work, allowed, at, out, out_at):
    """Compute by how much messages that were sent fall short of `work.sums`, for the tightest label."""
    for i in range(0, LANES, WIDTH):
        largest = zeros_like(load(allowed, at))
        for x in range(work.n_values):
            j = x * STRIDE + i
            value = load(work.sums, x * LANES + i) / load(sites.earlier, to + j)
            largest = at_least(value * load(allowed, at + j), largest)
        store(largest, out, out_at + i)


@vector_kernel
def _total(belief, mode, n_values, out, out_at):
    """Sum beliefs over labels, or maximise."""
    for i in range(0, LANES, WIDTH):
        total = zeros_like(load(belief, i)) + (1.0 if n_values == 1 else 0.0)
        for x in range(n_values):
            value = load(belief, x * LANES + i)
            if mode is None:
                total = total + value
            else:
                total = at_least(value, total) if mode else total + value
        store(total, out, out_at + i)


@vector_kernel
def _logarithms(values):
    for i in range(len(values)):
        values[i] = vector_log(values[i])


@kernel
def _log_terms(sites, field, site, n_labels, mode, allowed, work, terms):
    """Compute the logarithms of the factors of edges to earlier neighbours, and of the sums of beliefs."""
    at, size, out = site * field.shape.row + 1, field.shape.size, address(terms)
    beliefs(sites, field.steps, at, work)
    for direction in range(len(field.steps)):
        table, step = table_at(field, direction, False, site, n_labels), field.steps[direction]
        to = direction * size + at
        if mode is RATIO:
            _tightest_ratio(table, sites, to - step, to, work, out, direction * LANES)
        else:
            cavities(work.belief, sites.later, to - step, work.n_values, work.cavity, 0)
            multiply(table, mode, work.n_values, work.cavity, 0, work.sums)
            _tightest(sites, to, work, allowed, at - step, out, direction * LANES)
    _total(work.belief, mode, work.n_values, out, len(field.steps) * LANES)
    _logarithms(terms)


@reduction_kernel
def _sum_of_lanes(terms, at, begin, end):
    total = 0.0
    for i in range(at + begin, at + end):
        total += terms[i]
    return total


@kernel
def read_bound(strips, state, mode, allowed):
    """Compute the bound of each example, of the potentials in strips; `allowed` is 0 for forbidden labels."""
    memory, bounds = np.empty((5, strips.n_values * LANES)), np.zeros(len(strips.shapes))
    terms, n_directions = np.empty((strips.n_directions + 1) * LANES), strips.n_directions
    rho = 1.0 / n_directions
    for example in range(len(bounds)):
        field, work = field_of(strips, example), work_in(memory, strips.n_values)
        size, start, total = field.shape.size, strips.start[example], 0.0
        sites = sites_of(strips, example, size, strips.unary, state, state)
        first, last = first_and_last(field)
        for strip in range(field.shape.n_strips):
            for p in range(first, last + 1):
                site = strip * field.shape.positions + p
                of_labels = address(allowed[start : start + size])
                _log_terms(sites, field, site, strips.n_labels, mode, of_labels, work, terms)
                begin, end = _lanes_of(field, strip, p)
                total += _sum_of_lanes(terms, n_directions * LANES, begin, end)
                for direction in range(n_directions):
                    rows, columns = rows_and_columns(direction, False, field.height, field.width)
                    begin, end = lanes_between(field.shape.slope, strip, p, rows, columns)
                    gain = _sum_of_lanes(terms, direction * LANES, begin, end)
                    total += rho * (gain - _sum_of_lanes(terms, n_directions * LANES, begin, end))
        bounds[example] = total
    return bounds


# Configurations


@kernel
def _choose(sites, field, place, to_later, n_labels, scores, messages, states):
    """Choose the states of the sites of a position; send their rows of tables in place of messages."""
    site, slope = place[0] * field.shape.positions + place[1], field.shape.slope
    at = site * field.shape.row + 1
    begin, end = lanes_between(slope, place[0], place[1], (0, field.height), (0, field.width))
    for lane in range(begin, end):
        best = 0
        for x in range(1, n_labels):
            if scores[x * LANES + lane] > scores[best * LANES + lane]:
                best = x
        states[_node_at(field, place[0], place[1], lane)] = best
        for direction in range(len(field.steps)):
            table = table_at(field, direction, to_later, site, n_labels)
            to = direction * field.shape.size + at + lane
            for x in range(n_labels):
                put(entry_of_lane(table, x, best, lane), messages, to + x * STRIDE)


@kernel
def choose_states(strips, state, chosen, to_later):
    """Choose states by rows, each the best given those chosen before; `chosen` is an initial state."""
    n, states = strips.n_values, np.empty(strips.node_ptr[-1], np.int64)
    memory = np.empty((5, n * LANES))
    for example in range(len(strips.shapes)):
        field, work = field_of(strips, example), work_in(memory, n)
        start, size = 2 * strips.n_directions * strips.start[example], field.shape.size
        later, earlier = (chosen, state) if to_later else (state, chosen)
        sites = sites_of(strips, example, size, strips.unary, later, earlier)
        messages = sites.later if to_later else sites.earlier
        mine = states[strips.node_ptr[example] : strips.node_ptr[example + 1]]
        first, last = first_and_last(field)
        for i in range(field.shape.n_strips):
            strip = i if to_later else field.shape.n_strips - 1 - i
            for m in range(last - first + 1):
                place = strip, (first + m if to_later else last - m)
                at = (place[0] * field.shape.positions + place[1]) * field.shape.row + 1
                beliefs(sites, field.steps, at, work)
                _choose(sites, field, place, to_later, n, memory[0], messages, mine)
            copy_side(strips, field.shape, chosen, start, strip, to_later)
    return states


@kernel
def score_of(strips, theta, edge_table, states):
    """Compute the score of a configuration per example."""
    scores = np.zeros(len(strips.shapes))
    for example in range(len(scores)):
        height, width = strips.shapes[example]
        first, total = strips.node_ptr[example], 0.0
        for node in range(first, strips.node_ptr[example + 1]):
            total += theta.unary[node, states[node]]
        for direction in range(strips.n_directions):
            rows, columns = rows_and_columns(direction, True, height, width)
            step = width if direction > RIGHT else 0
            step += 0 if direction == DOWN else -1 if direction == RISING else 1
            for r in range(rows[0], rows[1]):
                edge = edge_at(strips, example, direction, r, columns[0])
                for node in range(first + r * width + columns[0], first + r * width + columns[1]):
                    total += theta.tables[edge_table[edge], states[node], states[node + step]]
                    edge += 1
        scores[example] = total
    return scores
