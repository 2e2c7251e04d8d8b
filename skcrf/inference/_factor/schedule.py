"""Schedules of messages on factor graphs: their order and the indices and exponentials that a sweep needs."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel
from skcrf.inference._pairwise.schedule import Links, distinct_tables
from skcrf.inference._pairwise.updates import BLOCK_SIZE, END, FIRST, NODE, OWN

#: Columns of `FactorSchedule.updates`.
FIRST_SOURCE, END_SOURCE, POSITION, FACTOR, TARGET_CARD, SIZE = range(6)
#: More columns of `FactorSchedule.sources`, after those of a node that sends (NODE, FIRST, END, OWN).
CARD, OUTER, INNER, OPERATION = range(4, 8)
#: Operations that eliminate a source: its sum, its maximum, or the sum over the best states by its belief.
SUM, MAXIMUM, SUM_OF_BEST = range(3)


class FactorSchedule(NamedTuple):
    """The message updates of one iteration.

    The position of a message is its index in `graph.incident`, as in `MessageSchedule`. Its sources are the
    other nodes of its factor, in the order in which their axes are contracted.

    Attributes
    ----------
    updates : ndarray of shape (n_links, 6), int32
        One row per message, in the order of the schedule: the range of its sources (FIRST_SOURCE,
        END_SOURCE), its POSITION and FACTOR, the number of states of its target (TARGET_CARD), and the number
        of entries of the factor (SIZE).
    sources : ndarray of shape (n_sources, 8), int32
        One row per source: NODE, FIRST, END and OWN as in `MessageSchedule`, the number of its states (CARD),
        of entries before and behind its axis when that is contracted (OUTER, INNER), and its OPERATION.
    update_of : ndarray of shape (n_links,)
        The update of each message.
    position : ndarray of shape (n_links,)
        The position of each message.
    block_ptr : ndarray of shape (n_blocks + 1,)
        Where blocks of updates start. The messages of a block do not depend on each other.
    example_ptr : ndarray of shape (n_examples + 1,)
        Where the blocks of each example start.
    weights : ndarray of shape (n_links,)
        rho, by position.
    exp_tables : ndarray
        ``exp((theta - max theta) / rho)`` for each distinct pair of a table and a weight, flat.
    exp_start : ndarray of shape (n_edges,)
        Where the table of a factor starts in `exp_tables`, -1 for none.
    sizes : ndarray of shape (2,)
        The maximum numbers of sources per block, and of values between a table and a message.
    """

    updates: np.ndarray
    sources: np.ndarray
    update_of: np.ndarray
    position: np.ndarray
    block_ptr: np.ndarray
    example_ptr: np.ndarray
    weights: np.ndarray
    exp_tables: np.ndarray
    exp_start: np.ndarray
    sizes: np.ndarray


def factor_schedule(graph, theta, rho, maximised):
    """Prepare the updates in the order of ``graph.schedule``; maximising all nodes needs no exponentials."""
    factor_of, position = factors_of_links(graph), np.empty_like(graph.incident)
    position[graph.incident] = np.arange(len(graph.incident))
    updates, sources, update_of, block_ptr, example_ptr, sizes = _updates(
        graph, maximised, factor_of, position
    )
    exp_tables, exp_start = np.empty(0), np.full(graph.n_edges, -1)
    if not maximised.all():
        first, pair_of = distinct_tables(graph, rho)
        ptr = np.concatenate([[0], np.cumsum(np.diff(graph.belief_ptr)[first])])
        exp_tables = _exp_tables(graph, theta.tables, rho, first, ptr)
        exp_start = np.where(pair_of < 0, -1, ptr[pair_of])
    weights = rho[factor_of][graph.incident]
    order = updates, sources, update_of, position, block_ptr, example_ptr
    return FactorSchedule(*order, weights, exp_tables, exp_start, sizes)


def factors_of_links(graph):
    """List the factor of each link."""
    return np.repeat(np.arange(graph.n_edges), np.diff(graph.scope_ptr))


def factor_links(graph):
    """List the neighbours on a factor graph."""
    ptr, link = _neighbour_links(graph, factors_of_links(graph))
    return Links(ptr, link, graph.scope)


@kernel
def _neighbour_links(graph, factor_of):
    """Compute the fields `ptr` and `link` of `Links`."""
    n_nodes, n_found = len(graph.node_order), 0
    ptr = np.zeros(n_nodes + 1, np.int64)
    for factor in range(len(graph.edge_table)):
        arity = graph.scope_ptr[factor + 1] - graph.scope_ptr[factor]
        n_found += arity * (arity - 1)
    link, n_found = np.empty(n_found, np.int64), 0
    for node in range(n_nodes):
        for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            factor = factor_of[graph.incident[q]]
            for other in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
                if other != graph.incident[q]:
                    link[n_found] = other
                    n_found += 1
        ptr[node + 1] = n_found
    return ptr, link


@kernel
def _exp_tables(graph, tables, rho, factors, ptr):
    out = np.empty(ptr[-1])
    for p in range(len(factors)):
        start, size = graph.entry_ptr[graph.edge_table[factors[p]]], ptr[p + 1] - ptr[p]
        top = tables[start : start + size].max()
        top = top if top > -np.inf else 0.0
        for entry in range(size):
            out[ptr[p] + entry] = np.exp((tables[start + entry] - top) / rho[factors[p]])
    return out


@kernel
def _add_sources(graph, maximised, position, link, factor, sources, n):
    """Write the sources of a message from row `n` on; returns the next row, and the number of values between.

    Sums are computed before maxima, and the last axis first.
    """
    first, end = graph.scope_ptr[factor], graph.scope_ptr[factor + 1]
    left, n_between = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor], 0
    is_left = np.ones(end - first, np.bool_)
    for maximum in (False, True):
        for other in range(end - 1, first - 1, -1):
            node = graph.scope[other]
            is_maximum = maximised[node] and maximised[graph.scope[link]]
            if other == link or is_maximum != maximum:
                continue
            is_left[other - first] = False
            outer, card = 1, graph.cards[node]
            for before in range(first, other):
                if is_left[before - first]:
                    outer *= graph.cards[graph.scope[before]]
            left //= card
            n_between += left
            sources[n, NODE], sources[n, FIRST] = node, graph.incident_ptr[node]
            sources[n, END], sources[n, OWN] = graph.incident_ptr[node + 1], position[other]
            sources[n, CARD], sources[n, OUTER], sources[n, INNER] = card, outer, left // outer
            sources[n, OPERATION] = MAXIMUM if is_maximum else SUM_OF_BEST if maximised[node] else SUM
            n += 1
    return n, n_between


@kernel
def _updates(graph, maximised, factor_of, position):
    """Compute the fields of `FactorSchedule` that depend on the structure."""
    n_links, n_examples, n_sources = len(graph.scope), len(graph.node_ptr) - 1, 0
    for factor in range(len(graph.edge_table)):
        arity = graph.scope_ptr[factor + 1] - graph.scope_ptr[factor]
        n_sources += arity * (arity - 1)
    updates, sources = np.empty((n_links, 6), np.int32), np.empty((n_sources, 8), np.int32)
    update_of, block_ptr = np.empty(n_links, np.int64), np.empty(n_links + 1, np.int64)
    example_ptr, sizes = np.zeros(n_examples + 1, np.int64), np.ones(2, np.int64)
    reached = np.full(len(graph.node_order), -1)  # the last block with a message to a node
    n, n_blocks, p, start, first_source = 0, 0, 0, 0, 0
    for example in range(n_examples):
        start = p - BLOCK_SIZE
        for _ in range(
            graph.scope_ptr[graph.edge_ptr[example]], graph.scope_ptr[graph.edge_ptr[example + 1]]
        ):
            link = graph.schedule[p]
            factor = factor_of[link]
            size = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]
            before = n
            n, n_between = _add_sources(graph, maximised, position, link, factor, sources, n)
            depends = p - start >= BLOCK_SIZE
            for s in range(before, n):
                depends |= reached[sources[s, NODE]] == n_blocks - 1
            if depends:
                start, first_source = p, before
                block_ptr[n_blocks] = p
                n_blocks += 1
            reached[graph.scope[link]] = n_blocks - 1
            sizes[0], sizes[1] = max(sizes[0], n - first_source), max(sizes[1], size + n_between)
            updates[p, FIRST_SOURCE], updates[p, END_SOURCE] = before, n
            updates[p, POSITION], updates[p, FACTOR] = position[link], factor
            updates[p, TARGET_CARD], updates[p, SIZE] = graph.cards[graph.scope[link]], size
            update_of[link] = p
            p += 1
        example_ptr[example + 1] = n_blocks
    block_ptr[n_blocks] = n_links
    return updates, sources, update_of, block_ptr[: n_blocks + 1].copy(), example_ptr, sizes
