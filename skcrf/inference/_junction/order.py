"""Order of elimination: greedily by minimum fill.

Eliminating a node connects its neighbours to each other; together with the node they form a clique. The
neighbours of all nodes stand in one pool. A list of neighbours that outgrows its room moves to the end of the
pool, so that an elimination reads only the lists that it changes.
"""

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel

# Columns of `lists`: where the neighbours of a node start in the pool, their number, and the room for them.
# The room of an eliminated node is _ELIMINATED. The last row holds the end of the pool's used part as _START.
_START, _COUNT, _ROOM = range(3)
_ELIMINATED = -1


class _Nodes(NamedTuple):
    """Properties of the nodes, and marks to compare sets of nodes with.

    `fill` is the cost of connecting the neighbours, `weight` log2 of the number of entries of the clique.
    """

    late: np.ndarray
    log_card: np.ndarray
    cost: np.ndarray
    fill: np.ndarray
    weight: np.ndarray
    mark: np.ndarray
    inside: np.ndarray


@kernel
def eliminate(scope_ptr, scope, late, log_card, cost, limit):
    """Find an order of elimination.

    Among nodes of equal fill, the one with the smallest clique goes first, then that of the lowest index.

    Parameters
    ----------
    scope_ptr : ndarray of shape (n_factors + 1,)
        Where the nodes of each factor start.
    scope : ndarray of shape (n_links,)
        The nodes of each factor.
    late : ndarray of shape (n_nodes,)
        Nodes with lower values are eliminated first; nodes with -1, which are in no scope, never.
    log_card : ndarray of shape (n_nodes,)
        log2 of the number of states.
    cost : ndarray of shape (n_nodes,)
        Connecting two nodes costs the product of their values.
    limit : float
        Stop at a clique with more entries than this, as log2.

    Returns
    -------
    order : ndarray of shape (n_steps,)
        The nodes.
    member_ptr : ndarray of shape (n_steps + 1,)
        Where the neighbours start that each node had when it was eliminated.
    members : ndarray
        These neighbours.
    """
    n_nodes = len(late)
    lists, pool = _neighbours(scope_ptr, scope, n_nodes)
    fill, weight = np.zeros(n_nodes), np.zeros(n_nodes)
    mark, inside, stamp = np.zeros(n_nodes, np.int64), np.zeros(n_nodes, np.int64), 0
    nodes = _Nodes(late, log_card, cost, fill, weight, mark, inside)
    heap = [(0, 0.0, 0.0, 0)]
    heap.pop()
    for node in range(n_nodes):
        if late[node] >= 0:
            stamp += 1
            fill[node], weight[node] = _fill_and_weight(lists, pool, node, nodes, stamp)
            heappush(heap, (late[node], fill[node], weight[node], node))
    order, member_ptr = np.empty(n_nodes, np.int64), np.zeros(n_nodes + 1, np.int64)
    members, n_steps = np.empty(len(scope) + 1, np.int64), 0
    while len(heap) > 0:
        _, node_fill, node_weight, node = heappop(heap)
        if lists[node, _ROOM] == _ELIMINATED or node_fill != fill[node] or node_weight != weight[node]:
            continue  # an outdated entry
        around = pool[lists[node, _START] : lists[node, _START] + lists[node, _COUNT]].copy()
        first = member_ptr[n_steps]
        if first + len(around) > len(members):
            members = np.concatenate((members, np.empty(len(members) + len(around), np.int64)))
        members[first : first + len(around)] = around
        order[n_steps], member_ptr[n_steps + 1] = node, first + len(around)
        n_steps += 1
        if node_weight > limit:
            break
        if node_fill > 0:
            inside[node] = stamp
            pool, stamp = _connect_all(lists, pool, around, nodes, stamp, heap)
        stamp = _remove_from_all(lists, pool, node, around, nodes, stamp, heap)
        lists[node, _ROOM] = _ELIMINATED
    return order[:n_steps], member_ptr[: n_steps + 1], members[: member_ptr[n_steps]]


@kernel
def _neighbours(scope_ptr, scope, n_nodes):
    """List the neighbours of each node; returns the lists and their pool."""
    lists, pool = np.zeros((n_nodes + 1, 3), np.int64), np.empty(4 * len(scope) + 1, np.int64)
    for factor in range(len(scope_ptr) - 1):
        for p in range(scope_ptr[factor], scope_ptr[factor + 1]):
            for q in range(scope_ptr[factor], p):
                i, j = scope[p], scope[q]
                if lists[i, _COUNT] > lists[j, _COUNT]:
                    i, j = j, i
                connected = False
                for r in range(lists[i, _START], lists[i, _START] + lists[i, _COUNT]):
                    connected = connected or pool[r] == j
                if not connected:
                    pool = _connect(lists, pool, i, j)
    return lists, pool


@kernel
def _connect(lists, pool, i, j):
    """Make two nodes neighbours; returns the pool, a new one if it had to grow."""
    return _append(lists, _append(lists, pool, i, j), j, i)


@kernel
def _append(lists, pool, node, other):
    """Append to the neighbours of a node; returns the pool, a new one if it had to grow."""
    first, count, room = lists[node]
    if count == room:
        room, free = 2 * room + 4, lists[-1, _START]
        if free + room > len(pool):
            larger = np.empty(2 * len(pool) + room, np.int64)
            larger[:free] = pool[:free]
            pool = larger
        pool[free : free + count] = pool[first : first + count]
        first = lists[node, _START] = free
        lists[node, _ROOM], lists[-1, _START] = room, free + room
    pool[first + count] = other
    lists[node, _COUNT] = count + 1
    return pool


@kernel
def _remove(lists, pool, node, other):
    """Remove from the neighbours of a node."""
    first, last = lists[node, _START], lists[node, _START] + lists[node, _COUNT] - 1
    for p in range(first, last):
        if pool[p] == other:
            pool[p] = pool[last]
            break
    lists[node, _COUNT] -= 1


@kernel
def _fill_and_weight(lists, pool, node, nodes, stamp):
    """Compute the fill and the weight of a node; leaves `stamp` as the mark of its neighbours."""
    first, end = lists[node, _START], lists[node, _START] + lists[node, _COUNT]
    total, squares, connected, weight = 0.0, 0.0, 0.0, nodes.log_card[node]
    for p in range(first, end):
        other = pool[p]
        nodes.mark[other] = stamp
        total += nodes.cost[other]
        squares += nodes.cost[other] ** 2
        weight += nodes.log_card[other]
    for p in range(first, end):
        other = pool[p]
        for q in range(lists[other, _START], lists[other, _START] + lists[other, _COUNT]):
            if nodes.mark[pool[q]] == stamp:
                connected += nodes.cost[other] * nodes.cost[pool[q]]
    return 0.5 * (total * total - squares - connected), weight


@kernel
def _connect_all(lists, pool, around, nodes, stamp, heap):
    """Connect nodes to each other, and lower the fill of their common neighbours."""
    for node in around:
        nodes.inside[node] = stamp
    own = stamp
    for a in range(len(around)):
        i = around[a]
        stamp += 1
        for p in range(lists[i, _START], lists[i, _START] + lists[i, _COUNT]):
            nodes.mark[pool[p]] = stamp
        for b in range(a + 1, len(around)):
            j = around[b]
            if nodes.mark[j] == stamp:
                continue
            for p in range(lists[j, _START], lists[j, _START] + lists[j, _COUNT]):
                other = pool[p]
                if nodes.mark[other] == stamp and nodes.inside[other] != own:
                    nodes.fill[other] -= nodes.cost[i] * nodes.cost[j]
                    heappush(heap, (nodes.late[other], nodes.fill[other], nodes.weight[other], other))
            pool = _connect(lists, pool, i, j)
    return pool, stamp


@kernel
def _remove_from_all(lists, pool, node, around, nodes, stamp, heap):
    """Remove a node from the lists of its neighbours, and update their fill and weight."""
    had_fill = nodes.fill[node] > 0
    total = nodes.cost[around].sum()
    for other in around:
        if had_fill:
            _remove(lists, pool, other, node)
            stamp += 1
            nodes.fill[other], nodes.weight[other] = _fill_and_weight(lists, pool, other, nodes, stamp)
        else:  # only pairs of the node with neighbours outside of `around` drop out
            outside = 0.0
            for p in range(lists[other, _START], lists[other, _START] + lists[other, _COUNT]):
                outside += nodes.cost[pool[p]]
            nodes.fill[other] -= nodes.cost[node] * (outside - nodes.cost[node] - (total - nodes.cost[other]))
            nodes.weight[other] -= nodes.log_card[node]
            _remove(lists, pool, other, node)
        heappush(heap, (nodes.late[other], nodes.fill[other], nodes.weight[other], other))
    return stamp
