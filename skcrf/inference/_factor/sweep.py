"""Sweeps of messages along factors, in the log domain: D13 Eq 18 and Algorithm 3 for cliques of any size.

What `_sends` does for edges. Messages are rows in the order of arrival, see `FactorRoute`, with a maximum of
0, and 0 where a node has no such state.
"""

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, vector_kernel
from skcrf.inference._factor.contract import (
    contract,
    contract_exponentials_vjp,
    contract_logs,
    contract_logs_vjp,
    contract_vjp,
)
from skcrf.inference._factor.schedule import BEST, MAXIMUM
from skcrf.inference._pairwise.schedule import RUN
from skcrf.inference._pairwise.sweep import SMALL, arrive, exponentials, logarithms, whole


@inlined_kernel
def _sum(exponentials, start, sources, first, last, row, scaled, work, at):
    """Sum over the states of all sources, whose rows start at `row`; returns where the sums start in `work`.

    Of at least one source. Numbers between stand at `at` and behind, in the order in which they are computed.
    """
    found = at
    for s in range(first, last):
        card, outer, inner = sources[s, 4], sources[s, 5], sources[s, 6]
        if s == first:
            contract(exponentials, start, outer, card, inner, scaled, row, work, at)
        else:
            contract(work, found, outer, card, inner, scaled, row + s - first, work, at)
        found, at = at, at + outer * inner
    return found


@inlined_kernel
def _sum_vjp(
    exponentials, start, sources, first, last, row, scaled, power, work, d_work, found, d_cavity, d_tables,
    table,
):  # fmt: skip
    """Pull derivatives back to cavities and theta; those of the sums stand where `_sum` put the sums."""
    at = found
    for s in range(last - 1, first, -1):
        card, outer, inner, r = sources[s, 4], sources[s, 5], sources[s, 6], row + s - first
        before = at - outer * card * inner
        contract_vjp(work, before, outer, card, inner, scaled, r, d_work, at, d_cavity, r, d_work, before)
        at = before
        for x in range(card):
            d_cavity[r, x] *= scaled[r, x]
    card, outer, inner = sources[first, 4], sources[first, 5], sources[first, 6]
    contract_exponentials_vjp(
        exponentials, start, outer, card, inner, scaled, row, d_work, at, power, d_cavity, d_tables, table
    )


@kernel
def sum_with_care(steps, sources, step, row, cavity, power, tables, table, work):
    """Compute one message for any potentials, in the log domain; returns where it starts in `work`."""
    first, size = steps[step, 0], steps[step, 5]
    for entry in range(size):
        work[entry] = power * tables[table + entry]
    found, at = 0, size
    for s in range(first, steps[step, 1]):
        card, outer, inner, maximise = sources[s, 4], sources[s, 5], sources[s, 6], sources[s, 7] == MAXIMUM
        contract_logs(work, found, outer, card, inner, maximise, cavity, row + s - first, at)
        found, at = at, at + outer * inner
    return found


@kernel
def _sum_with_care_vjp(
    steps, sources, step, row, cavity, power, work, d_work, found, d_cavity, d_tables,
    table,
):  # fmt: skip
    first, at = steps[step, 0], found
    for s in range(steps[step, 1] - 1, first - 1, -1):
        card, outer, inner, r = sources[s, 4], sources[s, 5], sources[s, 6], row + s - first
        before = at - outer * card * inner
        contract_logs_vjp(work, before, outer, card, inner, cavity, r, at, d_work, d_cavity, r)
        at = before
    for entry in range(steps[step, 5]):
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
    steps, sources, _, run_ptr, example_ptr, weights, factors, starts, sizes = route
    (unary, tables), entry_ptr, edge_table = theta, graph.entry_ptr, graph.edge_table
    n_states, summing = unary.shape[1], len(factors) > 0
    cavity, scaled = np.ones((sizes[0] + 3, n_states)), np.ones((sizes[0] + 3, n_states))
    new, belief, work = np.ones((RUN + 3, n_states)), np.empty((1, n_states)), np.empty(sizes[1])
    cavity_flat, scaled_flat, new_flat = cavity.reshape(-1), scaled.reshape(-1), new.reshape(-1)
    safe, change = np.zeros(RUN, np.bool_), np.zeros(len(active))
    for example in range(len(active)):
        if not active[example]:
            continue
        largest = 0.0
        for run in range(example_ptr[example], example_ptr[example + 1]):
            start, n_sent = run_ptr[run], run_ptr[run + 1] - run_ptr[run]
            base, end = steps[start, 0], steps[start + n_sent - 1, 1]
            for s in range(base, end):
                node, first, last, own = sources[s, 0], sources[s, 1], sources[s, 2], sources[s, 3]
                arrive(unary, weights, messages, node, first, last, own, cavity, s - base)
                if sources[s, 7] == BEST:
                    restrict(unary, weights, messages, node, first, last, belief, cavity, s - base)
            if summing:
                exponentials(cavity_flat, whole(end - base, n_states), scaled_flat)
                for at in range(n_sent):
                    first, last = steps[start + at, 0], steps[start + at, 1]
                    factor, card, least = starts[steps[start + at, 3]], steps[start + at, 4], 0.0
                    for x in range(card, n_states):
                        new[at, x] = 1.0
                    for s in range(first, last):
                        if sources[s, 7] == MAXIMUM:  # which is not done by exponentials
                            factor = -1
                    if factor >= 0:
                        found, least = 0, np.inf
                        if first == last:
                            for x in range(card):
                                work[x] = factors[factor + x]
                        else:
                            found = _sum(factors, factor, sources, first, last, first - base, scaled, work, 0)
                        for x in range(card):
                            new[at, x] = work[found + x]
                            least = min(least, work[found + x])
                    safe[at] = least > SMALL
                logarithms(new_flat, whole(n_sent, n_states))
            for at in range(n_sent):
                position, factor, card = steps[start + at, 2], steps[start + at, 3], steps[start + at, 4]
                if not safe[at]:
                    table, row, power = (
                        entry_ptr[edge_table[factor]],
                        steps[start + at, 0] - base,
                        1.0 / rho[factor],
                    )
                    found = sum_with_care(steps, sources, start + at, row, cavity, power, tables, table, work)
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
    steps, sources, _, run_ptr, example_ptr, weights, factors, starts, sizes = route
    (unary, tables), (d_unary, d_tables) = theta, d_theta
    n_states, entry_ptr, edge_table = unary.shape[1], graph.entry_ptr, graph.edge_table
    rows = np.ones((3, sizes[0] + 3, n_states))
    cavity, scaled, d_cavity = rows[0], rows[1], rows[2]
    cavity_flat, scaled_flat = cavity.reshape(-1), scaled.reshape(-1)
    work, d_work = np.empty(sizes[1]), np.empty(sizes[1])
    for example in range(len(active)):
        if not active[example]:
            continue
        for run in range(example_ptr[example + 1] - 1, example_ptr[example] - 1, -1):
            start, n_sent = run_ptr[run], run_ptr[run + 1] - run_ptr[run]
            base, end = steps[start, 0], steps[start + n_sent - 1, 1]
            for at in range(n_sent):
                for x in range(n_states):
                    messages[steps[start + at, 2], x] = before[steps[start + at, 2], x]
            for s in range(base, end):
                node, first, last, own = sources[s, 0], sources[s, 1], sources[s, 2], sources[s, 3]
                arrive(unary, weights, messages, node, first, last, own, cavity, s - base)
                for x in range(n_states):
                    d_cavity[s - base, x] = 0.0
            exponentials(cavity_flat, whole(end - base, n_states), scaled_flat)
            # Last first also within a run: a message may have been made of what a later one was before.
            for step in range(start + n_sent - 1, start - 1, -1):
                first, last, position = steps[step, 0], steps[step, 1], steps[step, 2]
                factor, card, size, row = (
                    steps[step, 3],
                    steps[step, 4],
                    steps[step, 5],
                    steps[step, 0] - base,
                )
                table, power, at = entry_ptr[edge_table[factor]], 1.0 / rho[factor], starts[factor]
                found, safe = 0, at >= 0 and first < last
                if safe:
                    found = _sum(factors, at, sources, first, last, row, scaled, work, size)
                    for x in range(card):
                        safe &= work[found + x] > SMALL
                if not safe:
                    found = sum_with_care(steps, sources, step, row, cavity, power, tables, table, work)
                # The derivative of subtracting the maximum, as on edges.
                total, top = 0.0, 0
                for x in range(card):
                    total += d_messages[position, x]
                    top = x if work[found + x] > work[found + top] else top
                for x in range(card):
                    d_new = (1.0 - damping) * (d_messages[position, x] - (total if x == top else 0.0))
                    d_work[found + x] = d_new / work[found + x] if safe else d_new
                    d_messages[position, x] *= damping
                if safe:
                    _sum_vjp(
                        factors, at, sources, first, last, row, scaled, power, work, d_work, found, d_cavity,
                        d_tables, table,
                    )  # fmt: skip
                else:
                    _sum_with_care_vjp(
                        steps,
                        sources,
                        step,
                        row,
                        cavity,
                        power,
                        work,
                        d_work,
                        found,
                        d_cavity,
                        d_tables,
                        table,
                    )
                for s in range(first, last):
                    node, from_, to, own = sources[s, 0], sources[s, 1], sources[s, 2], sources[s, 3]
                    for x in range(n_states):
                        d_unary[node, x] += d_cavity[s - base, x]
                    for q in range(from_, to):
                        weight = weights[q] - (q == own)
                        for x in range(n_states):
                            d_messages[q, x] += weight * d_cavity[s - base, x]
