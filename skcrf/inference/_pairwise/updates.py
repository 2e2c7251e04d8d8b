"""Updates of messages on pairwise graphs, in blocks that are computed together."""

import numpy as np

from skcrf._numerics import kernel

#: Maximum number of messages per block.
BLOCK_SIZE = 32

#: Columns that describe a node that sends: the node, the range of the positions of its incoming messages, and
#: the position of the incoming message of the same edge.
NODE, FIRST, END, OWN = range(4)
#: More columns of `MessageSchedule.updates`: position and number of the message, the table of its edge, and
#: the row of `exp_tables` that its edge uses, -1 for none.
POSITION, MESSAGE, TABLE, EXP_TABLE = range(4, 8)


@kernel
def levels(graph):
    """Compute the level of each update in the order of ``graph.schedule``; those of a level are independent.

    An update reads the messages to its source and writes one to its target. It is above the updates that
    wrote what it reads, and above those that read what it overwrites.
    """
    level = np.empty(len(graph.schedule), np.int64)
    written, read = np.full(len(graph.node_order), -1), np.full(len(graph.node_order), -1)
    for p in range(len(level)):
        message = graph.schedule[p]
        target, source = graph.edges[message >> 1, message & 1], graph.edges[message >> 1, 1 - (message & 1)]
        level[p] = max(written[source], read[target]) + 1
        written[target], read[source] = max(written[target], level[p]), max(read[source], level[p])
    return level


@kernel
def _sorted_by(keys, order):
    """Sort indices by their keys, which are small integers from 0 on; equal keys keep their order."""
    ptr = np.zeros((keys.max() if len(keys) > 0 else 0) + 2, np.int64)
    for p in order:
        ptr[keys[p] + 1] += 1
    for key in range(len(ptr) - 1):
        ptr[key + 1] += ptr[key]
    out = np.empty_like(order)
    for p in order:
        out[ptr[keys[p]]] = p
        ptr[keys[p]] += 1
    return out


@kernel
def _block_order(level, example, order):
    """Move the updates of an example that do not fill a block behind full blocks of the same level.

    `order` is sorted by level, then by example. Returns the new order and where blocks start.
    """
    out, ptr = np.empty_like(order), np.empty(len(order) + 1, np.int64)
    n_blocks, first, n_out = 0, 0, 0
    rest = np.empty_like(order)
    while first < len(order):
        n_rest, this = 0, level[order[first]]
        while first < len(order) and level[order[first]] == this:
            end = first + 1
            while (
                end < len(order)
                and level[order[end]] == this
                and example[order[end]] == example[order[first]]
            ):
                end += 1
            while end - first >= BLOCK_SIZE:
                out[n_out : n_out + BLOCK_SIZE] = order[first : first + BLOCK_SIZE]
                ptr[n_blocks] = n_out
                first, n_out, n_blocks = first + BLOCK_SIZE, n_out + BLOCK_SIZE, n_blocks + 1
            rest[n_rest : n_rest + end - first] = order[first:end]
            first, n_rest = end, n_rest + end - first
        for r in range(n_rest):
            if r % BLOCK_SIZE == 0:
                ptr[n_blocks] = n_out
                n_blocks += 1
            out[n_out] = rest[r]
            n_out += 1
    ptr[n_blocks] = n_out
    return out, ptr[: n_blocks + 1].copy()


@kernel
def order_updates(graph, level, edge_exp_table):
    """Compute the fields `updates`, `example`, `block_ptr` and `block_table`."""
    n_messages = len(graph.schedule)
    position = np.empty(n_messages, np.int64)
    for q in range(n_messages):
        position[graph.incident[q]] = q
    example_of, kind = np.empty(n_messages, np.int32), np.empty(n_messages, np.int64)
    kind_of_edge, newest = np.empty(len(edge_exp_table), np.int64), 0
    for edge in range(len(edge_exp_table)):
        # Tables are numbered by example, so that updates sorted by them are also sorted by example.
        newest = max(newest, edge_exp_table[edge])
        kind_of_edge[edge] = edge_exp_table[edge] if edge_exp_table[edge] >= 0 else newest
    for example in range(len(graph.node_ptr) - 1):
        for p in range(2 * graph.edge_ptr[example], 2 * graph.edge_ptr[example + 1]):
            message = graph.schedule[p]
            example_of[p], kind[p] = example, 2 * kind_of_edge[message >> 1] + (message & 1)
    by_level = _sorted_by(level, _sorted_by(kind, np.arange(n_messages)))
    order, block_ptr = _block_order(level, example_of, by_level)
    updates, block_table = np.empty((n_messages, 8), np.int32), np.full(len(block_ptr) - 1, -1)
    example = np.empty(n_messages, np.int32)
    for n in range(n_messages):
        message = graph.schedule[order[n]]
        edge, side = message >> 1, message & 1
        source = graph.edges[edge, 1 - side]
        updates[n, NODE] = source
        updates[n, FIRST], updates[n, END] = graph.incident_ptr[source], graph.incident_ptr[source + 1]
        updates[n, OWN], updates[n, POSITION] = position[message ^ 1], position[message]
        updates[n, MESSAGE], updates[n, TABLE] = message, graph.edge_table[edge]
        updates[n, EXP_TABLE] = edge_exp_table[edge]
        example[n] = example_of[order[n]]
    for block in range(len(block_table)):
        first, end = block_ptr[block], block_ptr[block + 1]
        kind_of_block = 2 * updates[first, EXP_TABLE] + updates[first, MESSAGE] % 2
        is_uniform = end - first == BLOCK_SIZE and updates[first, EXP_TABLE] >= 0
        for n in range(first, end):
            is_uniform &= 2 * updates[n, EXP_TABLE] + updates[n, MESSAGE] % 2 == kind_of_block
        if is_uniform:  # the table is that of one example
            block_table[block] = kind_of_block
    return updates, example, block_ptr, block_table
