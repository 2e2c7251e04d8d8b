"""Sweeps of messages along factors, in the log domain: D13 Eq 18 and Algorithm 3 for cliques of any size.

What `_sends` does for edges. Messages are rows in the order of arrival, see `FactorRoute`, with a maximum of
0, and 0 where a node has no such state.
"""

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, vector_kernel
from skcrf.inference._contract import contract, contract_logs, contract_logs_vjp, contract_vjp
from skcrf.inference._factor_route import BEST, MAXIMUM
from skcrf.inference._route import RUN
from skcrf.inference._sends import SMALL, arrive, exponentials, logarithms, whole


@inlined_kernel
def _sum(route, step, row, scaled, work, size):
    """Sum over the states of all sources, whose rows start at `row`; returns where the sums start in `work`.

    The numbers between stand behind `size` others, in the order in which they were computed.
    """
    first, last, start = route.steps[step, 0], route.steps[step, 1], route.starts[route.steps[step, 3]]
    at = size
    for s in range(first, last):
        card, outer, inner = route.sources[s, 4], route.sources[s, 5], route.sources[s, 6]
        if s == first:
            contract(route.exponentials, start, outer, card, inner, scaled, row, work, at)
        else:
            contract(work, start, outer, card, inner, scaled, row + s - first, work, at)
        start, at = at, at + outer * inner
    return start


@kernel
def _sum_vjp(route, step, row, scaled, power, work, d_work, d_cavity, d_tables, table):
    """Pull derivatives back to cavities and theta; those of the sums stand where `_sum` put them."""
    first, last = route.steps[step, 0], route.steps[step, 1]
    factor, size = route.steps[step, 3], route.steps[step, 5]
    at = size
    for s in range(first, last):
        at += route.sources[s, 5] * route.sources[s, 6]
    for s in range(last - 1, first - 1, -1):
        card, outer, inner = route.sources[s, 4], route.sources[s, 5], route.sources[s, 6]
        at -= outer * inner
        r = row + s - first
        if s == first:
            values, start, d_start = route.exponentials, route.starts[factor], 0
        else:
            values, start, d_start = work, at - outer * card * inner, at - outer * card * inner
        contract_vjp(values, start, outer, card, inner, scaled, r, d_work, at, d_cavity, r, d_work, d_start)
        for x in range(card):
            d_cavity[r, x] *= scaled[r, x]
    start = route.starts[factor]
    for entry in range(size):
        d_tables[table + entry] += power * route.exponentials[start + entry] * d_work[entry]


@kernel
def sum_with_care(route, step, row, cavity, power, tables, table, work):
    """Compute one message for any potentials, in the log domain; returns where it starts in `work`."""
    size = route.steps[step, 5]
    for entry in range(size):
        work[entry] = power * tables[table + entry]
    start, at, first = 0, size, route.steps[step, 0]
    for s in range(first, route.steps[step, 1]):
        card, outer, inner = route.sources[s, 4], route.sources[s, 5], route.sources[s, 6]
        maximise = route.sources[s, 7] == MAXIMUM
        contract_logs(work, start, outer, card, inner, maximise, cavity, row + s - first, at)
        start, at = at, at + outer * inner
    return start


@kernel
def _sum_with_care_vjp(route, step, row, cavity, power, work, d_work, d_cavity, d_tables, table):
    first, last, size = route.steps[step, 0], route.steps[step, 1], route.steps[step, 5]
    at = size
    for s in range(first, last):
        at += route.sources[s, 5] * route.sources[s, 6]
    for s in range(last - 1, first - 1, -1):
        card, outer, inner = route.sources[s, 4], route.sources[s, 5], route.sources[s, 6]
        at -= outer * inner
        start, r = at - outer * card * inner, row + s - first
        contract_logs_vjp(work, start, outer, card, inner, cavity, r, at, d_work, d_cavity, r)
    for entry in range(size):
        d_tables[table + entry] += power * d_work[entry]


@kernel
def restrict(unary, weights, messages, node, first, last, belief, cavity, row):
    """Forbid all states of a cavity but those that are best by the belief of the node."""
    arrive(unary, weights, messages, node, first, last, -1, belief, 0)
    for x in range(belief.shape[1]):
        if belief[0, x] < 0.0:  # the maximum is 0
            cavity[row, x] = -np.inf


@vector_kernel
def sweep(route, graph, theta, rho, damping, measure, messages, active):
    """Send every message of the active examples once, run by run.

    Returns the largest change of a message in each example, if asked to `measure` it, as on edges.
    """
    steps, sources, weights = route.steps, route.sources, route.weights
    unary, tables = theta
    n_states = unary.shape[1]
    cavity, scaled = np.ones((route.sizes[0] + 3, n_states)), np.ones((route.sizes[0] + 3, n_states))
    new, belief, work = np.ones((RUN + 3, n_states)), np.empty((1, n_states)), np.empty(route.sizes[1])
    cavity_flat, scaled_flat, new_flat = cavity.reshape(-1), scaled.reshape(-1), new.reshape(-1)
    safe, change = np.zeros(RUN, np.bool_), np.zeros(len(active))
    for example in range(len(active)):
        if not active[example]:
            continue
        largest = 0.0
        for run in range(route.example_ptr[example], route.example_ptr[example + 1]):
            start, n_sent = route.run_ptr[run], route.run_ptr[run + 1] - route.run_ptr[run]
            base, end = steps[start, 0], steps[start + n_sent - 1, 1]
            for s in range(base, end):
                node, first, last, own = sources[s, 0], sources[s, 1], sources[s, 2], sources[s, 3]
                arrive(unary, weights, messages, node, first, last, own, cavity, s - base)
                if sources[s, 7] == BEST:
                    restrict(unary, weights, messages, node, first, last, belief, cavity, s - base)
            if len(route.exponentials) > 0:
                exponentials(cavity_flat, whole(end - base, n_states), scaled_flat)
            for at in range(n_sent):
                step = start + at
                row, card, safe[at] = steps[step, 0] - base, steps[step, 4], False
                for x in range(card, n_states):
                    new[at, x] = 1.0
                if route.starts[steps[step, 3]] < 0:
                    continue
                found, least = _sum(route, step, row, scaled, work, 0), np.inf
                values = work if steps[step, 1] > steps[step, 0] else route.exponentials
                for x in range(card):
                    new[at, x] = values[found + x]
                    least = min(least, values[found + x])
                safe[at] = least > SMALL
            if len(route.exponentials) > 0:
                logarithms(new_flat, whole(n_sent, n_states))
            for at in range(n_sent):
                step = start + at
                position, factor, card = steps[step, 2], steps[step, 3], steps[step, 4]
                if not safe[at]:
                    table, row = graph.entry_ptr[graph.edge_table[factor]], steps[step, 0] - base
                    found = sum_with_care(route, step, row, cavity, 1.0 / rho[factor], tables, table, work)
                    for x in range(card):
                        new[at, x] = work[found + x]
                top = new[at, 0]
                for x in range(1, card):
                    top = max(top, new[at, x])
                for x in range(card):
                    value = new[at, x] - top
                    old = messages[position, x]
                    if measure and value != old and abs(value - old) > largest:
                        largest = max(largest, 1.0 - np.exp(-abs(value - old)))
                    messages[position, x] = (1.0 - damping) * value + damping * old if damping > 0 else value
        change[example] = largest
    return change


@vector_kernel
def sweep_vjp(route, graph, theta, rho, damping, before, messages, active, d_messages, d_theta):
    """Undo a sweep run by run, last first; `messages` ends as `before` (D13 Alg 3, step 8)."""
    steps, sources, weights = route.steps, route.sources, route.weights
    (unary, tables), (d_unary, d_tables) = theta, d_theta
    n_states = unary.shape[1]
    rows = np.ones((3, route.sizes[0] + 3, n_states))
    cavity, scaled, d_cavity = rows[0], rows[1], rows[2]
    cavity_flat, scaled_flat, d_new = cavity.reshape(-1), scaled.reshape(-1), np.empty(n_states)
    work, d_work = np.empty(route.sizes[1]), np.empty(route.sizes[1])
    for example in range(len(active)):
        if not active[example]:
            continue
        for run in range(route.example_ptr[example + 1] - 1, route.example_ptr[example] - 1, -1):
            start, n_sent = route.run_ptr[run], route.run_ptr[run + 1] - route.run_ptr[run]
            base, end = steps[start, 0], steps[start + n_sent - 1, 1]
            for at in range(n_sent):
                for x in range(n_states):
                    messages[steps[start + at, 2], x] = before[steps[start + at, 2], x]
            for s in range(base, end):
                node, first, last, own = sources[s, 0], sources[s, 1], sources[s, 2], sources[s, 3]
                arrive(unary, weights, messages, node, first, last, own, cavity, s - base)
            exponentials(cavity_flat, whole(end - base, n_states), scaled_flat)
            # Last first also within a run: a message may have been made of what a later one was before.
            for step in range(start + n_sent - 1, start - 1, -1):
                row, position, factor = steps[step, 0] - base, steps[step, 2], steps[step, 3]
                card, size, n_sources = steps[step, 4], steps[step, 5], steps[step, 1] - steps[step, 0]
                table, power = graph.entry_ptr[graph.edge_table[factor]], 1.0 / rho[factor]
                found, safe = 0, route.starts[factor] >= 0
                if safe:
                    found = _sum(route, step, row, scaled, work, size)
                    if n_sources == 0:
                        found = 0
                        for x in range(card):
                            work[x] = route.exponentials[route.starts[factor] + x]
                    for x in range(card):
                        safe &= work[found + x] > SMALL
                if not safe:
                    found = sum_with_care(route, step, row, cavity, power, tables, table, work)
                # The derivative of subtracting the maximum, as on edges.
                total, top = 0.0, 0
                for x in range(card):
                    total += d_messages[position, x]
                    top = x if work[found + x] > work[found + top] else top
                for x in range(card):
                    d_new[x] = (1.0 - damping) * (d_messages[position, x] - (total if x == top else 0.0))
                    d_messages[position, x] *= damping
                for x in range(card):
                    d_work[found + x] = d_new[x] / work[found + x] if safe else d_new[x]
                for s in range(row, row + n_sources):
                    for x in range(n_states):
                        d_cavity[s, x] = 0.0
                if safe:
                    _sum_vjp(route, step, row, scaled, power, work, d_work, d_cavity, d_tables, table)
                else:
                    _sum_with_care_vjp(
                        route, step, row, cavity, power, work, d_work, d_cavity, d_tables, table
                    )
                for s in range(steps[step, 0], steps[step, 1]):
                    node, first, last, own = sources[s, 0], sources[s, 1], sources[s, 2], sources[s, 3]
                    for x in range(n_states):
                        d_unary[node, x] += d_cavity[s - base, x]
                    for q in range(first, last):
                        weight = weights[q] - (q == own)
                        for x in range(n_states):
                            d_messages[q, x] += weight * d_cavity[s - base, x]
