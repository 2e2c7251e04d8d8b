"""In which order to eliminate nodes: greedily, the one that joins the fewest neighbours that were not joined.

An eliminated node leaves its neighbours joined to each other; with it they are a clique. Rows of neighbours
stand in one pool and move to its end when they grow, so that only what an elimination touches is looked at.
"""

from heapq import heappop, heappush

import numpy as np

from skcrf._numerics import kernel


@kernel
def eliminate(scope_ptr, scope, late, log_card, cost, limit):
    """Find an order of elimination.

    Among nodes that join as few, the one with the smallest clique goes first, then the one that comes first.

    Parameters
    ----------
    scope_ptr : ndarray of shape (n_factors + 1,)
        Where the nodes of each factor start.
    scope : ndarray of shape (n_links,)
        The nodes of each factor.
    late : ndarray of shape (n_nodes,)
        1 for nodes to be eliminated after those with 0; -1 for those that are in no factor's scope and stay.
    log_card : ndarray of shape (n_nodes,)
        log2 of the number of states.
    cost : ndarray of shape (n_nodes,)
        To join two nodes costs the product of theirs.
    limit : float
        log2 of the entries of a clique with which to stop.

    Returns
    -------
    order : ndarray of shape (n_steps,)
        The nodes.
    member_ptr : ndarray of shape (n_steps + 1,)
        Where the neighbours of each start that it was eliminated with.
    members : ndarray
        These neighbours.
    """
    n_nodes = len(late)
    rows, pool = _neighbours(scope_ptr, scope, n_nodes)
    mark, inside, stamp = np.zeros(n_nodes, np.int64), np.zeros(n_nodes, np.int64), 0
    fill, weight = np.zeros(n_nodes), np.zeros(n_nodes)
    heap = [(0, 0.0, 0.0, 0)]
    heap.pop()
    for node in range(n_nodes):
        if late[node] >= 0:
            stamp += 1
            fill[node], weight[node] = _judge(rows, pool, node, cost, log_card, mark, stamp)
            heappush(heap, (late[node], fill[node], weight[node], node))
    order, member_ptr = np.empty(n_nodes, np.int64), np.zeros(n_nodes + 1, np.int64)
    members, n_steps = np.empty(len(scope) + 1, np.int64), 0
    while len(heap) > 0:
        _, known, size, node = heappop(heap)
        if rows[node, 2] < 0 or known != fill[node] or size != weight[node]:
            continue  # gone, or it stands elsewhere by now
        around = pool[rows[node, 0] : rows[node, 0] + rows[node, 1]].copy()
        first = member_ptr[n_steps]
        if first + len(around) > len(members):
            members = np.concatenate((members, np.empty(len(members) + len(around), np.int64)))
        members[first : first + len(around)] = around
        order[n_steps], member_ptr[n_steps + 1] = node, first + len(around)
        n_steps += 1
        if size > limit:
            break
        if known > 0:
            inside[node] = stamp
            pool, stamp = _join_all(rows, pool, around, late, fill, weight, cost, mark, stamp, inside, heap)
        together = cost[around].sum()
        for other in around:
            if known > 0:
                _take_out(rows, pool, other, node)
                stamp += 1
                fill[other], weight[other] = _judge(rows, pool, other, cost, log_card, mark, stamp)
            else:  # all around the node are joined: what it was not joined to is outside
                outside = 0.0
                for p in range(rows[other, 0], rows[other, 0] + rows[other, 1]):
                    outside += cost[pool[p]]
                fill[other] -= cost[node] * (outside - cost[node] - (together - cost[other]))
                weight[other] -= log_card[node]
                _take_out(rows, pool, other, node)
            heappush(heap, (late[other], fill[other], weight[other], other))
        rows[node, 2] = -1
    return order[:n_steps], member_ptr[: n_steps + 1], members[: member_ptr[n_steps]]


@kernel
def _neighbours(scope_ptr, scope, n_nodes):
    """Where each node's row starts, its length and room; the pool; behind the last row, where it is free."""
    rows, pool = np.zeros((n_nodes + 1, 3), np.int64), np.empty(4 * len(scope) + 1, np.int64)
    for factor in range(len(scope_ptr) - 1):
        for p in range(scope_ptr[factor], scope_ptr[factor + 1]):
            for q in range(scope_ptr[factor], p):
                i, j = scope[p], scope[q]
                if rows[i, 1] > rows[j, 1]:
                    i, j = j, i
                known = False
                for r in range(rows[i, 0], rows[i, 0] + rows[i, 1]):
                    known = known or pool[r] == j
                if not known:
                    pool = _put_in(rows, _put_in(rows, pool, i, j), j, i)
    return rows, pool


@kernel
def _put_in(rows, pool, node, other):
    """Put a neighbour into the row of a node; returns the pool, a new one if it had to grow."""
    first, count, room = rows[node]
    if count == room:
        room, free = 2 * room + 4, rows[-1, 0]
        if free + room > len(pool):
            larger = np.empty(2 * len(pool) + room, np.int64)
            larger[:free] = pool[:free]
            pool = larger
        pool[free : free + count] = pool[first : first + count]
        first = rows[node, 0] = free
        rows[node, 2], rows[-1, 0] = room, free + room
    pool[first + count] = other
    rows[node, 1] = count + 1
    return pool


@kernel
def _take_out(rows, pool, node, other):
    """Take a neighbour out of the row of a node."""
    first, last = rows[node, 0], rows[node, 0] + rows[node, 1] - 1
    for p in range(first, last):
        if pool[p] == other:
            pool[p] = pool[last]
            break
    rows[node, 1] -= 1


@kernel
def _judge(rows, pool, node, cost, log_card, mark, stamp):
    """What it costs to join the neighbours of a node, and log2 of the entries of its clique."""
    first, end = rows[node, 0], rows[node, 0] + rows[node, 1]
    total, squares, joined, weight = 0.0, 0.0, 0.0, log_card[node]
    for p in range(first, end):
        other = pool[p]
        mark[other] = stamp
        total += cost[other]
        squares += cost[other] ** 2
        weight += log_card[other]
    for p in range(first, end):
        other = pool[p]
        for q in range(rows[other, 0], rows[other, 0] + rows[other, 1]):
            if mark[pool[q]] == stamp:
                joined += cost[other] * cost[pool[q]]
    return 0.5 * (total * total - squares - joined), weight


@kernel
def _join_all(rows, pool, around, late, fill, weight, cost, mark, stamp, inside, heap):
    """Join nodes to each other; others that saw a pair of them apart see it joined."""
    for node in around:
        inside[node] = stamp
    own = stamp
    for a in range(len(around)):
        i = around[a]
        stamp += 1
        for p in range(rows[i, 0], rows[i, 0] + rows[i, 1]):
            mark[pool[p]] = stamp
        for b in range(a + 1, len(around)):
            j = around[b]
            if mark[j] == stamp:
                continue
            for p in range(rows[j, 0], rows[j, 0] + rows[j, 1]):
                other = pool[p]
                if mark[other] == stamp and inside[other] != own:
                    fill[other] -= cost[i] * cost[j]
                    heappush(heap, (late[other], fill[other], weight[other], other))
            pool = _put_in(rows, _put_in(rows, pool, i, j), j, i)
    return pool, stamp
