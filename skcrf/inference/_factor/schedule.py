"""What is prepared once so that messages pass quickly along factors, as `_route` does it along edges."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel
from skcrf.inference._pairwise.schedule import RUN, distinct

#: What becomes of a node that a message comes from: it is summed out, maximised out, or summed over those of
#: its states alone that are best by its own belief.
SUM, MAXIMUM, BEST = 0, 1, 2


class FactorRoute(NamedTuple):
    """The messages of an iteration, in the order of the schedule.

    A message is told by the position at which it stands in `graph.incident`, as in `Route`. Its *sources* are
    the other nodes of its factor, in the order in which their axes are contracted.

    Attributes
    ----------
    steps : ndarray of shape (n_links, 6), int32
        Of each message the first source and the one behind the last, its position, its factor, the number of
        states of its target, and the entries of the factor.
    sources : ndarray of shape (n_sources, 8), int32
        The node, the first position of what arrives there and the one behind the last, the position of what
        arrives there from the same factor; the number of its states, and those of entries before and behind
        its axis when that is contracted; and what becomes of it.
    step_of : ndarray of shape (n_links,)
        Where each message stands in the schedule.
    run_ptr : ndarray of shape (n_runs + 1,)
        Where runs start. Of the messages of a run, none depends on another, so that they can be sent at once.
    example_ptr : ndarray of shape (n_examples + 1,)
        Where the runs of each example start.
    weights : ndarray of shape (n_links,)
        rho, by position.
    exponentials : ndarray of shape (n,)
        ``exp((theta - max theta) / rho)`` of every table, for each weight of its factors.
    starts : ndarray of shape (n_edges,)
        Where those of a factor start, -1 if there are none.
    sizes : ndarray of shape (2,)
        The most sources of a run, and the most numbers on the way from a table to a message.
    """

    steps: np.ndarray
    sources: np.ndarray
    step_of: np.ndarray
    run_ptr: np.ndarray
    example_ptr: np.ndarray
    weights: np.ndarray
    exponentials: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


def factor_route_of(graph, theta, rho, maximised):
    """Prepare to pass messages.

    Parameters
    ----------
    graph : FactorGraph
        The batch.
    theta : Potentials
        Potentials.
    rho : ndarray of shape (n_edges,)
        Weights of factors.
    maximised : ndarray of shape (n_nodes,)
        Which nodes are maximised, not summed out. If all are, there are no exponentials.

    Returns
    -------
    route : FactorRoute
        What kernels need.
    """
    steps, sources, step_of, run_ptr, example_ptr, sizes = _steps(graph, maximised)
    exponentials, starts = np.empty(0), np.full(graph.n_edges, -1)
    if not maximised.all():
        first, pair_of = distinct(graph, rho)
        ptr = np.concatenate([[0], np.cumsum(np.diff(graph.belief_ptr)[first])])
        exponentials = _exponentials(graph, theta.tables, rho, first, ptr)
        starts = np.where(pair_of < 0, -1, ptr[pair_of])
    weights = np.repeat(rho, np.diff(graph.scope_ptr))[graph.incident]
    return FactorRoute(steps, sources, step_of, run_ptr, example_ptr, weights, exponentials, starts, sizes)


@kernel
def _exponentials(graph, tables, rho, factors, ptr):
    out = np.empty(ptr[-1])
    for p in range(len(factors)):
        start, size = graph.entry_ptr[graph.edge_table[factors[p]]], ptr[p + 1] - ptr[p]
        top = tables[start : start + size].max()
        top = top if top > -np.inf else 0.0
        for entry in range(size):
            out[ptr[p] + entry] = np.exp((tables[start + entry] - top) / rho[factors[p]])
    return out


@kernel
def _sources(graph, maximised, position, link, factor, sources, n):
    """Write the sources of a message behind the first `n`; returns how many there are, and numbers between.

    What is summed out is so before anything is maximised, and the last axis first.
    """
    first, last = graph.scope_ptr[factor], graph.scope_ptr[factor + 1]
    left, between = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor], 0
    alive = np.ones(last - first, np.bool_)
    for maximum in (False, True):
        for other in range(last - 1, first - 1, -1):
            node = graph.scope[other]
            kept = maximised[node] and maximised[graph.scope[link]]
            if other == link or kept != maximum:
                continue
            alive[other - first] = False
            outer, card = 1, graph.cards[node]
            for before in range(first, other):
                if alive[before - first]:
                    outer *= graph.cards[graph.scope[before]]
            left //= card
            between += left
            sources[n, 0], sources[n, 1] = node, graph.incident_ptr[node]
            sources[n, 2], sources[n, 3] = graph.incident_ptr[node + 1], position[other]
            sources[n, 4], sources[n, 5], sources[n, 6] = card, outer, left // outer
            sources[n, 7] = MAXIMUM if kept else BEST if maximised[node] else SUM
            n += 1
    return n, between


@kernel
def _steps(graph, maximised):
    n_links, n_examples, n_sources = len(graph.scope), len(graph.node_ptr) - 1, 0
    position, factor_of = np.empty(n_links, np.int64), np.empty(n_links, np.int64)
    for factor in range(len(graph.edge_table)):
        arity = graph.scope_ptr[factor + 1] - graph.scope_ptr[factor]
        n_sources += arity * (arity - 1)
        for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
            factor_of[link] = factor
    for q in range(n_links):
        position[graph.incident[q]] = q
    steps, sources = np.empty((n_links, 6), np.int32), np.empty((n_sources, 8), np.int32)
    step_of, run_ptr = np.empty(n_links, np.int64), np.empty(n_links + 1, np.int64)
    example_ptr, sizes = np.zeros(n_examples + 1, np.int64), np.ones(2, np.int64)
    reached = np.full(len(graph.node_order), -1)  # the last run that had a message to a node
    n, n_runs, p, start, first_source = 0, 0, 0, 0, 0
    for example in range(n_examples):
        start = p - RUN
        for _ in range(
            graph.scope_ptr[graph.edge_ptr[example]], graph.scope_ptr[graph.edge_ptr[example + 1]]
        ):
            link = graph.schedule[p]
            factor = factor_of[link]
            size = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]
            before = n
            n, between = _sources(graph, maximised, position, link, factor, sources, n)
            depends = p - start >= RUN
            for s in range(before, n):
                depends |= reached[sources[s, 0]] == n_runs - 1
            if depends:
                start, first_source = p, before
                run_ptr[n_runs] = p
                n_runs += 1
            reached[graph.scope[link]] = n_runs - 1
            sizes[0], sizes[1] = max(sizes[0], n - first_source), max(sizes[1], size + between)
            steps[p, 0], steps[p, 1], steps[p, 2], steps[p, 3] = before, n, position[link], factor
            steps[p, 4], steps[p, 5] = graph.cards[graph.scope[link]], size
            step_of[link] = p
            p += 1
        example_ptr[example + 1] = n_runs
    run_ptr[n_runs] = n_links
    return steps, sources, step_of, run_ptr[: n_runs + 1].copy(), example_ptr, sizes
