"""Junction trees: what an order of elimination makes of a structure, kept from call to call.

A clique's table has its nodes for axes, those that are eliminated later before the others. So the states that
it shares with the clique that it reports to, its *separator*, come first, and what is summed or maximised for
a message stands together. *Terms* are what potentials say: first of each node, then of each factor.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from skcrf._numerics import kernel
from skcrf.inference._junction.order import eliminate

# log2 of the entries of a clique with which to give up: to plan further would take long, for nothing.
_HOPELESS = 64.0
# Bytes below which the first order of elimination is good enough.
_CHEAP = 2.0**20
# Bytes above which to try other orders, unless they are too many by this factor; and how many orders.
_DEAR, _REACH, _TRIES = 2.0**26, 32.0, 30
# Entries of a table that are done at a time, with one list of where they are found in a smaller table.
_BLOCK = 1024


class JunctionTree(NamedTuple):
    """Cliques, each before the one that it reports to, and how terms and messages are laid into their tables.

    Attributes
    ----------
    n_nodes : ndarray of shape (1,)
        Number of nodes of the structure.
    kind : ndarray of shape (n_cliques,)
        The kind of a clique's own nodes, which tells how they are eliminated.
    is_root : ndarray of shape (n_cliques,)
        Whether it reports to none.
    axis_ptr : ndarray of shape (n_cliques + 1,)
        Where the axes of each clique start.
    axis_card : ndarray of shape (n_axes,)
        Their lengths.
    n_outer : ndarray of shape (n_cliques,)
        Number of axes before those that are done at a time.
    rest : ndarray of shape (n_cliques,)
        Number of states of the nodes that are eliminated in a clique.
    table_ptr, sep_ptr : ndarray of shape (n_cliques + 1,)
        Where the tables and the separators start.
    part_ptr : ndarray of shape (n_cliques + 1,)
        Where the parts of each clique start: its terms, and the messages of cliques that report to it.
    part : ndarray of shape (n_parts,)
        The number of a term, or the number of terms plus that of a clique.
    level : ndarray of shape (n_parts,)
        The first axis of the clique that a part has, or their number if it has none: parts come by falling
        level.
    stride_ptr : ndarray of shape (n_parts + 1,)
        Where the strides of each part start.
    stride : ndarray
        How far apart entries of the part stand that differ by one along each axis of the clique.
    """

    n_nodes: np.ndarray
    kind: np.ndarray
    is_root: np.ndarray
    axis_ptr: np.ndarray
    axis_card: np.ndarray
    n_outer: np.ndarray
    rest: np.ndarray
    table_ptr: np.ndarray
    sep_ptr: np.ndarray
    part_ptr: np.ndarray
    part: np.ndarray
    level: np.ndarray
    stride_ptr: np.ndarray
    stride: np.ndarray


class Cost(NamedTuple):
    """What a junction tree asks for.

    Attributes
    ----------
    width : int
        Nodes of the largest clique, less one.
    log2_largest : float
        log2 of the entries of the largest table.
    n_bytes : float
        Memory of all tables and separators, and of the largest table without its first axis.
    is_whole : bool
        Whether these are the numbers of the whole tree, not of the part that was planned.
    """

    width: int
    log2_largest: float
    n_bytes: float
    is_whole: bool


class Structure(NamedTuple):
    """What a plan depends on, as bytes, which can be looked up.

    Attributes
    ----------
    cards : bytes
        Number of states of each node.
    kind : bytes
        -1 for nodes with one possible state; those of others are eliminated in the order of their kinds.
    scope_ptr, scope, stride : bytes
        The nodes of each factor and the strides of its table.
    """

    cards: bytes
    kind: bytes
    scope_ptr: bytes
    scope: bytes
    stride: bytes


@lru_cache(maxsize=128)
def junction_tree(structure, max_bytes):
    """Plan a junction tree.

    Parameters
    ----------
    structure : Structure
        What to plan it for.
    max_bytes : float
        Memory beyond which there is no tree.

    Returns
    -------
    tree : JunctionTree or None
        The tree, unless it would take more.
    cost : Cost
        What it takes.
    """
    cards, kind, scope_ptr, scope, stride = (np.frombuffer(part, np.int64).copy() for part in structure)
    # A node of one possible state takes no part: it would join its neighbours for nothing.
    keep = kind[scope] >= 0
    kept_ptr = np.concatenate([[0], np.cumsum(keep)])[scope_ptr]
    scope, stride = scope[keep], stride[keep]
    links = kind, cards, kept_ptr, scope
    best = _cheapest(_ways(*links), *links, enough=_CHEAP)
    cost = best[2]
    if cost.is_whole and _DEAR < cost.n_bytes < _REACH * max_bytes:
        best = _cheapest(_more_ways(*links), *links, enough=_DEAR, best=best)
    order, cliques, cost = best
    if not cost.is_whole or cost.n_bytes > max_bytes:
        return None, cost
    return _assemble(order, *cliques, *links, stride), cost


def _cheapest(ways, kind, cards, scope_ptr, scope, *, enough, best=None):
    """Try orders of elimination until one takes no more bytes than that; an order, its cliques and cost."""
    for late, weights, names in ways:
        # Nodes have other numbers in between: ties are broken by these.
        labels, logs = np.argsort(names), np.log2(cards)[names]
        steps = eliminate(scope_ptr, labels[scope], late[names], logs, weights[names], _HOPELESS)
        steps = names[steps[0]], steps[1], names[steps[2]]
        cliques = _cliques(*steps, kind, cards)
        cost = _cost(cliques, cards, len(steps[0]) == np.count_nonzero(kind >= 0))
        if best is None or (not cost.is_whole, cost.n_bytes) < (not best[2].is_whole, best[2].n_bytes):
            best = steps[0], cliques, cost
        if best[2].n_bytes <= enough:
            break
    return best


def _ways(kind, cards, scope_ptr, scope):
    """What to try: which nodes come later than others, what it costs to join them, and their numbers."""
    once, names, n_nodes = np.ones(len(cards)), np.arange(len(cards)), len(cards)
    yield kind, once, names
    # From one end to the other: min-fill alone meets itself in the middle of a lattice.
    of_nodes = csr_array((np.ones(len(scope)), scope, scope_ptr), shape=(len(scope_ptr) - 1, n_nodes))
    rank = np.argsort(reverse_cuthill_mckee(csr_array(of_nodes.T @ of_nodes), symmetric_mode=True))
    yield np.where(kind < 0, kind, rank + n_nodes * kind), once, names
    if len(np.unique(cards)) > 1:
        yield kind, cards.astype(np.float64), names


def _more_ways(kind, cards, scope_ptr, scope):
    """Break ties otherwise: by numbers that are drawn, the same ones for the same structure."""
    rng = np.random.default_rng(0)
    for _ in range(_TRIES):
        yield kind, np.ones(len(cards)), rng.permutation(len(cards))


def _cost(cliques, cards, is_whole):
    _, _, axis_ptr, axis_node, n_sep = cliques
    log_card = np.concatenate([[0.0], np.cumsum(np.log2(cards[axis_node]))])
    sizes = log_card[axis_ptr[1:]] - log_card[axis_ptr[:-1]]
    seps = log_card[axis_ptr[:-1] + n_sep] - log_card[axis_ptr[:-1]]
    first = log_card[np.minimum(axis_ptr[:-1] + 1, axis_ptr[1:])] - log_card[axis_ptr[:-1]]
    with np.errstate(over="ignore"):
        n_entries = np.exp2(sizes).sum() + np.exp2(seps).sum() + np.exp2(sizes - first).max()
    return Cost(int(np.diff(axis_ptr).max()) - 1, float(sizes.max()), 8.0 * float(n_entries), bool(is_whole))


@kernel
def _cliques(order, member_ptr, members, kind, cards):
    """Gather the steps of an elimination into cliques; of each its nodes, first those of its separator."""
    n_steps, position = len(order), np.full(len(cards), -1, np.int64)
    for step in range(n_steps):
        position[order[step]] = step
    onward = np.full(n_steps, -1, np.int64)  # the first step in which a neighbour is eliminated
    for step in range(n_steps):
        for p in range(member_ptr[step], member_ptr[step + 1]):
            at = position[members[p]]
            if at >= 0 and (onward[step] < 0 or at < onward[step]):
                onward[step] = at
    home, n_cliques = _homes(order, member_ptr, onward, kind)
    n_cliques = max(n_cliques, 1)  # one without nodes, where there are none
    n_own, n_sep = np.zeros(n_cliques, np.int64), np.zeros(n_cliques, np.int64)
    for step in range(n_steps):
        n_own[home[step]] += 1
        n_sep[home[step]] = member_ptr[step + 1] - member_ptr[step]  # that of the last step stays
    axis_ptr = np.zeros(n_cliques + 1, np.int64)
    axis_ptr[1:] = np.cumsum(n_own + n_sep)
    axis_node, parent = np.empty(axis_ptr[-1], np.int64), np.full(n_cliques, -1, np.int64)
    for step in range(n_steps - 1, -1, -1):
        q = home[step]
        if n_own[q] > 0:  # the last step of the clique: its neighbours are the separator
            around = members[member_ptr[step] : member_ptr[step + 1]]
            axis_node[axis_ptr[q] : axis_ptr[q] + n_sep[q]] = around[np.argsort(-position[around])]
            if onward[step] >= 0:
                parent[q] = home[onward[step]]
            n_own[q] = -n_sep[q]
        axis_node[axis_ptr[q] - n_own[q]] = order[step]
        n_own[q] -= 1
    return home, parent, axis_ptr, axis_node, n_sep


@kernel
def _homes(order, member_ptr, onward, kind):
    """Number cliques by their last steps, which come before those of what they report to."""
    n_steps, n_cliques = len(order), 0
    home, last = np.full(n_steps, -1, np.int64), np.empty(n_steps, np.int64)
    for step in range(n_steps):
        if home[step] < 0:
            home[step] = n_cliques
            n_cliques += 1
        last[home[step]], after = step, onward[step]
        if after >= 0 and home[after] < 0 and kind[order[after]] == kind[order[step]]:
            # The clique of that step is the same but for this step's node, and needs no table of its own.
            if member_ptr[after + 1] - member_ptr[after] == member_ptr[step + 1] - member_ptr[step] - 1:
                home[after] = home[step]
    rank, n_ranked = np.empty(n_cliques, np.int64), 0
    for step in range(n_steps):
        if last[home[step]] == step:
            rank[home[step]] = n_ranked
            n_ranked += 1
    for step in range(n_steps):
        home[step] = rank[home[step]]
    return home, n_cliques


def _assemble(order, home, parent, axis_ptr, axis_node, n_sep, kind, cards, scope_ptr, scope, stride):
    """Lay terms and messages into the cliques' tables."""
    # Terms: a node by itself, and factors. A node of one state, and what it leaves of a factor, is a number.
    alone = np.flatnonzero(kind >= 0)
    term_ptr = np.concatenate([np.cumsum(kind >= 0) - (kind >= 0), len(alone) + scope_ptr])
    term_node, term_stride = np.concatenate([alone, scope]), np.concatenate([np.ones_like(alone), stride])
    table_ptr, sep_ptr, rest, n_outer = _sizes(axis_ptr, cards[axis_node], n_sep)
    node_home = np.zeros(len(cards), np.int64)
    position = np.zeros(len(cards), np.int64)
    node_home[order], position[order] = home, np.arange(len(order))
    part_ptr, part = _parts(term_ptr, term_node, node_home, position, parent)
    stride_ptr = np.concatenate([[0], np.cumsum(np.repeat(np.diff(axis_ptr), np.diff(part_ptr)))])
    terms = term_ptr, term_node, term_stride
    level, laid = _strides(axis_ptr, axis_node, cards, n_sep, part_ptr, part, stride_ptr, *terms)
    kinds = np.zeros(len(parent), dtype=np.int64)
    kinds[home] = kind[order]
    return JunctionTree(
        np.array([len(cards)]),
        kinds,
        (parent < 0).astype(np.int64),
        axis_ptr,
        cards[axis_node],
        n_outer,
        rest,
        table_ptr,
        sep_ptr,
        part_ptr,
        part,
        level,
        stride_ptr,
        laid,
    )


@kernel
def _sizes(axis_ptr, axis_card, n_sep):
    n_cliques = len(n_sep)
    table_ptr, sep_ptr = np.zeros(n_cliques + 1, np.int64), np.zeros(n_cliques + 1, np.int64)
    rest, n_outer = np.ones(n_cliques, np.int64), np.zeros(n_cliques, np.int64)
    for q in range(n_cliques):
        size, sep = 1, 1
        for axis in range(axis_ptr[q + 1] - 1, axis_ptr[q] - 1, -1):
            size *= axis_card[axis]
            if axis - axis_ptr[q] < n_sep[q]:
                sep *= axis_card[axis]
            if size > _BLOCK and axis < axis_ptr[q + 1] - 1:  # one axis is always done at a time
                n_outer[q] = max(n_outer[q], axis - axis_ptr[q] + 1)
        rest[q] = size // sep
        table_ptr[q + 1], sep_ptr[q + 1] = table_ptr[q] + size, sep_ptr[q] + sep
    return table_ptr, sep_ptr, rest, n_outer


@kernel
def _parts(term_ptr, term_node, node_home, position, parent):
    """Give each term to the clique in which the first of its nodes is eliminated, messages to the parent."""
    n_terms, n_cliques = len(term_ptr) - 1, len(parent)
    place, part_ptr = np.zeros(n_terms + n_cliques, np.int64), np.zeros(n_cliques + 1, np.int64)
    place[n_terms:] = parent
    for term in range(n_terms):
        first = len(position)
        for p in range(term_ptr[term], term_ptr[term + 1]):
            if position[term_node[p]] < first:
                first, place[term] = position[term_node[p]], node_home[term_node[p]]
    for q in place:
        if q >= 0:
            part_ptr[q + 1] += 1
    part_ptr = np.cumsum(part_ptr)
    part, free = np.empty(part_ptr[-1], np.int64), part_ptr[:-1].copy()
    for number in range(len(place)):
        q = place[number]
        if q >= 0:
            part[free[q]] = number
            free[q] += 1
    return part_ptr, part


@kernel
def _strides(axis_ptr, axis_node, cards, n_sep, part_ptr, part, stride_ptr, term_ptr, term_node, term_stride):
    """Find the levels and strides of all parts; sorts the parts of each clique."""
    laid, axis_of = np.zeros(stride_ptr[-1], np.int64), np.empty(len(cards), np.int64)
    n_terms, level = len(term_ptr) - 1, np.empty(len(part), np.int64)
    for q in range(len(n_sep)):
        for axis in range(axis_ptr[q], axis_ptr[q + 1]):
            axis_of[axis_node[axis]] = axis - axis_ptr[q]
        parts = slice(part_ptr[q], part_ptr[q + 1])
        for p in range(part_ptr[q], part_ptr[q + 1]):
            level[p] = axis_ptr[q + 1] - axis_ptr[q]
            if part[p] < n_terms:
                for link in range(term_ptr[part[p]], term_ptr[part[p] + 1]):
                    level[p] = min(level[p], axis_of[term_node[link]])
            else:  # a message: axes are in the same order everywhere
                level[p] = axis_of[axis_node[axis_ptr[part[p] - n_terms]]]
        by_level = np.argsort(-level[parts], kind="mergesort")
        level[parts], part[parts] = level[parts][by_level], part[parts][by_level]
        for p in range(part_ptr[q], part_ptr[q + 1]):
            if part[p] < n_terms:
                for link in range(term_ptr[part[p]], term_ptr[part[p] + 1]):
                    laid[stride_ptr[p] + axis_of[term_node[link]]] = term_stride[link]
            else:
                child, step = part[p] - n_terms, 1
                for axis in range(axis_ptr[child] + n_sep[child] - 1, axis_ptr[child] - 1, -1):
                    laid[stride_ptr[p] + axis_of[axis_node[axis]]] = step
                    step *= cards[axis_node[axis]]
    return level, laid
