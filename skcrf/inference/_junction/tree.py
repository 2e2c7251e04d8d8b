"""Junction trees: cliques and the layout of their tables, cached by structure.

The axes of a clique's table are its nodes, in reverse order of elimination. So the axes of the *separator*,
the nodes shared with the parent clique, come first, and the entries that are summed or maximised for one
entry of a message are contiguous. A table is the sum of *terms*, the potentials of nodes and then of factors,
and of the messages of child cliques; both are its *summands*.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from skcrf._numerics import kernel
from skcrf.inference._junction.order import eliminate

# log2 of the number of entries of a clique at which to stop planning.
_MAX_LOG2_ENTRIES = 64.0
# Bytes below which the first order of elimination is good enough.
_CHEAP = 2.0**20
# Random orders are tried above this number of bytes, and below the allowed number times a factor.
_EXPENSIVE, _HOPE, _N_RANDOM = 2.0**26, 32.0, 30
# Entries of a table that are processed with one list of offsets.
_BLOCK = 1024


class JunctionTree(NamedTuple):
    """Cliques, each before its parent, and the layout of their tables.

    Attributes
    ----------
    n_nodes : ndarray of shape (1,)
        Number of nodes of the structure.
    group : ndarray of shape (n_cliques,)
        The elimination group of the nodes that are eliminated in each clique.
    is_root : ndarray of shape (n_cliques,)
        Whether a clique has no parent.
    axis_ptr : ndarray of shape (n_cliques + 1,)
        Where the axes of each clique start.
    axis_card : ndarray of shape (n_axes,)
        Length of each axis.
    n_outer : ndarray of shape (n_cliques,)
        Number of leading axes that are not part of a block.
    table_ptr, sep_ptr : ndarray of shape (n_cliques + 1,)
        Where the table and the separator of each clique start.
    summand_ptr : ndarray of shape (n_cliques + 1,)
        Where the summands of each clique start.
    summand : ndarray of shape (n_summands,)
        The index of a term, or the number of terms plus the index of a child clique.
    level : ndarray of shape (n_summands,)
        The first axis of the clique that a summand has, or the number of axes if it has none. Decreases
        within a clique.
    stride_ptr : ndarray of shape (n_summands + 1,)
        Where the strides of each summand start.
    stride : ndarray
        Strides of a summand along each axis of its clique.
    """

    n_nodes: np.ndarray
    group: np.ndarray
    is_root: np.ndarray
    axis_ptr: np.ndarray
    axis_card: np.ndarray
    n_outer: np.ndarray
    table_ptr: np.ndarray
    sep_ptr: np.ndarray
    summand_ptr: np.ndarray
    summand: np.ndarray
    level: np.ndarray
    stride_ptr: np.ndarray
    stride: np.ndarray


class Cost(NamedTuple):
    """Cost of a junction tree.

    Attributes
    ----------
    width : int
        Number of nodes of the largest clique, minus one.
    log2_largest : float
        log2 of the number of entries of the largest table.
    n_bytes : float
        Memory of all tables and separators, and of the largest table without its first axis.
    is_whole : bool
        Whether the numbers are those of the whole tree, or of the part that was planned.
    """

    width: int
    log2_largest: float
    n_bytes: float
    is_whole: bool


class Structure(NamedTuple):
    """Structure of an example, as bytes so that it can be a key.

    Attributes
    ----------
    cards : bytes
        Number of states of each node.
    group : bytes
        Elimination group of each node, lower groups first; -1 for nodes with one possible state.
    scope_ptr, scope, stride : bytes
        The nodes of each factor and the strides of its table.
    shape : bytes
        Height and width of the image whose pixels are the nodes, else zeros.
    """

    cards: bytes
    group: bytes
    scope_ptr: bytes
    scope: bytes
    stride: bytes
    shape: bytes


class _Cliques(NamedTuple):
    """Cliques of an order of elimination, each before its parent."""

    home: np.ndarray  # the clique of each step
    parent: np.ndarray
    axis_ptr: np.ndarray
    axis_node: np.ndarray
    n_sep: np.ndarray


class _Plan(NamedTuple):
    """An order of elimination, its cliques and their cost."""

    order: np.ndarray
    cliques: _Cliques
    cost: Cost

    @property
    def rank(self):
        """Key to compare plans with: whole ones first, then by memory."""
        return not self.cost.is_whole, self.cost.n_bytes


@lru_cache(maxsize=128)
def junction_tree(structure, max_bytes):
    """Plan a junction tree.

    Parameters
    ----------
    structure : Structure
        Structure of an example.
    max_bytes : float
        Maximum memory.

    Returns
    -------
    tree : JunctionTree or None
        The tree; None if it needs more memory.
    cost : Cost
        Cost of the tree.
    """
    cards, group, scope_ptr, scope, stride, shape = (
        np.frombuffer(field, np.int64).copy() for field in structure
    )
    # Nodes with one possible state are left out: eliminating them would connect their neighbours.
    is_free = group[scope] >= 0
    scope_ptr = np.concatenate([[0], np.cumsum(is_free)])[scope_ptr]
    scope, stride = scope[is_free], stride[is_free]
    problem = group, cards, scope_ptr, scope
    plan = _cheapest(_heuristics(*problem, shape), *problem, enough=_CHEAP)
    if plan.cost.is_whole and _EXPENSIVE < plan.cost.n_bytes < _HOPE * max_bytes:
        plan = _cheapest(_random_heuristics(group, cards), *problem, enough=_EXPENSIVE, best=plan)
    if not plan.cost.is_whole or plan.cost.n_bytes > max_bytes:
        return None, plan.cost
    return _assemble(plan, *problem, stride), plan.cost


def _cheapest(heuristics, group, cards, scope_ptr, scope, *, enough, best=None):
    """Try heuristics until the plan of one needs at most `enough` bytes; return the best plan."""
    for late, weights, nodes in heuristics:
        # Relabelled, because ties are broken by the labels.
        labels, logs = np.argsort(nodes), np.log2(cards)[nodes]
        steps = eliminate(scope_ptr, labels[scope], late[nodes], logs, weights[nodes], _MAX_LOG2_ENTRIES)
        order, member_ptr, members = nodes[steps[0]], steps[1], nodes[steps[2]]
        cliques = _Cliques(*_cliques(order, member_ptr, members, group, cards))
        plan = _Plan(order, cliques, _cost(cliques, cards, len(order) == np.count_nonzero(group >= 0)))
        if best is None or plan.rank < best.rank:
            best = plan
        if best.cost.n_bytes <= enough:
            break
    return best


def _heuristics(group, cards, scope_ptr, scope, shape):
    """Yield arguments of `eliminate`, `late` and `cost`, and the order of the nodes' labels."""
    ones, nodes = np.ones(len(cards)), np.arange(len(cards))
    yield group, ones, nodes
    # From one end to the other: on a lattice, min-fill alone works from all sides towards the middle.
    of_nodes = csr_array((np.ones(len(scope)), scope, scope_ptr), shape=(len(scope_ptr) - 1, len(cards)))
    rank = np.argsort(reverse_cuthill_mckee(csr_array(of_nodes.T @ of_nodes), symmetric_mode=True))
    yield _in_order(group, rank), ones, nodes
    if shape.min() > 1:  # along the longer side, so that cliques are as wide as the shorter one
        lines = nodes.reshape(shape)
        lines = lines if shape[0] > shape[1] else lines.T
        yield _in_order(group, np.argsort(lines.ravel())), ones, nodes
    if len(np.unique(cards)) > 1:
        yield group, cards.astype(np.float64), nodes


def _in_order(group, rank):
    """Compute `late` so that the nodes of a group are eliminated in the order of their ranks."""
    return np.where(group < 0, group, rank + len(rank) * group)


def _random_heuristics(group, cards):
    """Yield heuristics with random tie-breaking, the same for the same structure."""
    rng = np.random.default_rng(0)
    for _ in range(_N_RANDOM):
        yield group, np.ones(len(cards)), rng.permutation(len(cards))


def _cost(cliques, cards, is_whole):
    axis_ptr, n_sep = cliques.axis_ptr, cliques.n_sep
    log_card = np.concatenate([[0.0], np.cumsum(np.log2(cards[cliques.axis_node]))])
    sizes = log_card[axis_ptr[1:]] - log_card[axis_ptr[:-1]]
    seps = log_card[axis_ptr[:-1] + n_sep] - log_card[axis_ptr[:-1]]
    first = log_card[np.minimum(axis_ptr[:-1] + 1, axis_ptr[1:])] - log_card[axis_ptr[:-1]]
    with np.errstate(over="ignore"):
        n_entries = np.exp2(sizes).sum() + np.exp2(seps).sum() + np.exp2(sizes - first).max()
    return Cost(int(np.diff(axis_ptr).max()) - 1, float(sizes.max()), 8.0 * float(n_entries), bool(is_whole))


@kernel
def _cliques(order, member_ptr, members, group, cards):
    """Merge the steps of an elimination into cliques; returns the fields of `_Cliques`."""
    n_steps, position = len(order), np.full(len(cards), -1, np.int64)
    for step in range(n_steps):
        position[order[step]] = step
    onward = np.full(n_steps, -1, np.int64)  # the first later step that eliminates a neighbour
    for step in range(n_steps):
        for p in range(member_ptr[step], member_ptr[step + 1]):
            at = position[members[p]]
            if at >= 0 and (onward[step] < 0 or at < onward[step]):
                onward[step] = at
    home, n_cliques = _homes(order, member_ptr, onward, group)
    n_cliques = max(n_cliques, 1)  # without nodes, one empty clique
    n_own, n_sep = np.zeros(n_cliques, np.int64), np.zeros(n_cliques, np.int64)
    for step in range(n_steps):
        n_own[home[step]] += 1
        n_sep[home[step]] = member_ptr[step + 1] - member_ptr[step]  # the last step of the clique decides
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
def _homes(order, member_ptr, onward, group):
    """Assign steps to cliques, numbered by their last steps; also returns the number of cliques."""
    n_steps, n_cliques = len(order), 0
    home, last = np.full(n_steps, -1, np.int64), np.empty(n_steps, np.int64)
    for step in range(n_steps):
        if home[step] < 0:
            home[step] = n_cliques
            n_cliques += 1
        last[home[step]], after = step, onward[step]
        if after >= 0 and home[after] < 0 and group[order[after]] == group[order[step]]:
            # The clique of that step has the same nodes except this step's, and needs no table of its own.
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


def _assemble(plan, group, cards, scope_ptr, scope, stride):
    """Lay out the tables and summands of all cliques."""
    home, parent, axis_ptr, axis_node, n_sep = plan.cliques
    # The terms of nodes, then of factors. Without its nodes of one possible state, a term may be a number.
    free = np.flatnonzero(group >= 0)
    term_ptr = np.concatenate([np.cumsum(group >= 0) - (group >= 0), len(free) + scope_ptr])
    term_node, term_stride = np.concatenate([free, scope]), np.concatenate([np.ones_like(free), stride])
    table_ptr, sep_ptr, n_outer = _sizes(axis_ptr, cards[axis_node], n_sep)
    node_home = np.zeros(len(cards), np.int64)
    position = np.zeros(len(cards), np.int64)
    node_home[plan.order], position[plan.order] = home, np.arange(len(plan.order))
    summand_ptr, summand = _summands(term_ptr, term_node, node_home, position, parent)
    n_axes = np.repeat(np.diff(axis_ptr), np.diff(summand_ptr))
    stride_ptr = np.concatenate([[0], np.cumsum(n_axes)])
    terms = term_ptr, term_node, term_stride
    level, strides = _strides(axis_ptr, axis_node, cards, n_sep, summand_ptr, summand, stride_ptr, *terms)
    clique_group = np.zeros(len(parent), dtype=np.int64)
    clique_group[home] = group[plan.order]
    return JunctionTree(
        n_nodes=np.array([len(cards)]),
        group=clique_group,
        is_root=(parent < 0).astype(np.int64),
        axis_ptr=axis_ptr,
        axis_card=cards[axis_node],
        n_outer=n_outer,
        table_ptr=table_ptr,
        sep_ptr=sep_ptr,
        summand_ptr=summand_ptr,
        summand=summand,
        level=level,
        stride_ptr=stride_ptr,
        stride=strides,
    )


@kernel
def _sizes(axis_ptr, axis_card, n_sep):
    """Compute where tables and separators start, and the number of outer axes of each clique."""
    n_cliques = len(n_sep)
    table_ptr, sep_ptr = np.zeros(n_cliques + 1, np.int64), np.zeros(n_cliques + 1, np.int64)
    n_outer = np.zeros(n_cliques, np.int64)
    for q in range(n_cliques):
        size, sep = 1, 1
        for axis in range(axis_ptr[q + 1] - 1, axis_ptr[q] - 1, -1):
            size *= axis_card[axis]
            if axis - axis_ptr[q] < n_sep[q]:
                sep *= axis_card[axis]
            if size > _BLOCK and axis < axis_ptr[q + 1] - 1:  # a block has at least one axis
                n_outer[q] = max(n_outer[q], axis - axis_ptr[q] + 1)
        table_ptr[q + 1], sep_ptr[q + 1] = table_ptr[q] + size, sep_ptr[q] + sep
    return table_ptr, sep_ptr, n_outer


@kernel
def _summands(term_ptr, term_node, node_home, position, parent):
    """Assign each term to the clique that eliminates the first of its nodes, and messages to the parent."""
    n_terms, n_cliques = len(term_ptr) - 1, len(parent)
    clique, summand_ptr = np.zeros(n_terms + n_cliques, np.int64), np.zeros(n_cliques + 1, np.int64)
    clique[n_terms:] = parent
    for term in range(n_terms):
        first = len(position)
        for p in range(term_ptr[term], term_ptr[term + 1]):
            if position[term_node[p]] < first:
                first, clique[term] = position[term_node[p]], node_home[term_node[p]]
    for q in clique:
        if q >= 0:
            summand_ptr[q + 1] += 1
    summand_ptr = np.cumsum(summand_ptr)
    summand, free = np.empty(summand_ptr[-1], np.int64), summand_ptr[:-1].copy()
    for index in range(len(clique)):
        q = clique[index]
        if q >= 0:
            summand[free[q]] = index
            free[q] += 1
    return summand_ptr, summand


@kernel
def _strides(
    axis_ptr, axis_node, cards, n_sep, summand_ptr, summand, stride_ptr, term_ptr, term_node, term_stride
):  # fmt: skip
    """Compute the levels and strides of all summands; sorts the summands of each clique by level."""
    strides, axis_of = np.zeros(stride_ptr[-1], np.int64), np.empty(len(cards), np.int64)
    n_terms, level = len(term_ptr) - 1, np.empty(len(summand), np.int64)
    for q in range(len(n_sep)):
        for axis in range(axis_ptr[q], axis_ptr[q + 1]):
            axis_of[axis_node[axis]] = axis - axis_ptr[q]
        own = slice(summand_ptr[q], summand_ptr[q + 1])
        for p in range(summand_ptr[q], summand_ptr[q + 1]):
            level[p] = axis_ptr[q + 1] - axis_ptr[q]
            if summand[p] < n_terms:
                for link in range(term_ptr[summand[p]], term_ptr[summand[p] + 1]):
                    level[p] = min(level[p], axis_of[term_node[link]])
            else:  # a message, whose axes are in the same order as those of the clique
                level[p] = axis_of[axis_node[axis_ptr[summand[p] - n_terms]]]
        by_level = np.argsort(-level[own], kind="mergesort")
        level[own], summand[own] = level[own][by_level], summand[own][by_level]
        for p in range(summand_ptr[q], summand_ptr[q + 1]):
            if summand[p] < n_terms:
                for link in range(term_ptr[summand[p]], term_ptr[summand[p] + 1]):
                    strides[stride_ptr[p] + axis_of[term_node[link]]] = term_stride[link]
            else:
                child, step = summand[p] - n_terms, 1
                for axis in range(axis_ptr[child] + n_sep[child] - 1, axis_ptr[child] - 1, -1):
                    strides[stride_ptr[p] + axis_of[axis_node[axis]]] = step
                    step *= cards[axis_node[axis]]
    return level, strides
