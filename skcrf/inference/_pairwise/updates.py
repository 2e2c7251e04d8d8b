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
def node_levels(graph):
    """Compute the level of each node in examples whose schedule has two passes, -1 in others.

    In the first pass a node sends after all nodes that send to it, in the second in reverse. The nodes of a
    level do not send to each other.
    """
    level, sent = np.zeros(len(graph.node_order), np.int64), np.zeros(len(graph.node_order), np.int64)
    for example in range(len(graph.node_ptr) - 1):
        first, end = 2 * graph.edge_ptr[example], 2 * graph.edge_ptr[example + 1]
        for p in range(first, end):
            message, half = graph.schedule[p], 1 if 2 * p < first + end else 2
            target, source = (
                graph.edges[message >> 1, message & 1],
                graph.edges[message >> 1, 1 - (message & 1)],
            )
            sent[source] = half
            if sent[target] == half:
                level[graph.node_ptr[example] : graph.node_ptr[example + 1]] = -1
                break
            if half == 1:
                level[target] = max(level[target], level[source] + 1)
    return level


@kernel
def levels(graph, node_level):
    """Compute the level of each update in the order of ``graph.schedule``; those of a level are independent.

    An update reads the messages to its source and writes one to its target. It is above the updates that
    wrote what it reads, and above those that read what it overwrites. `node_level` is of `node_levels`: where
    it can, a node sends all messages of a pass at once.
    """
    level = np.empty(len(graph.schedule), np.int64)
    written, read = np.full(len(graph.node_order), -1), np.full(len(graph.node_order), -1)
    for example in range(len(graph.node_ptr) - 1):
        first, end, n_levels = 2 * graph.edge_ptr[example], 2 * graph.edge_ptr[example + 1], 0
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            n_levels = max(n_levels, node_level[node] + 1)
        for p in range(first, end):
            message = graph.schedule[p]
            target, source = (
                graph.edges[message >> 1, message & 1],
                graph.edges[message >> 1, 1 - (message & 1)],
            )
            if n_levels > 0:
                forward = 2 * p < first + end
                level[p] = node_level[source] if forward else 2 * n_levels - 1 - node_level[source]
            else:
                level[p] = max(written[source], read[target]) + 1
                written[target], read[source] = max(written[target], level[p]), max(read[source], level[p])
    return level


@kernel
def sorted_by(keys, order):
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
    source_of, n_users = np.empty(n_messages, np.int64), np.zeros(len(edge_exp_table), np.int64)
    for table in edge_exp_table:
        if table >= 0:
            n_users[table] += 1
    newest = 0
    for example in range(len(graph.node_ptr) - 1):
        # Tables are numbered by example, so that updates sorted by them are also sorted by example.
        oldest = newest
        for p in range(2 * graph.edge_ptr[example], 2 * graph.edge_ptr[example + 1]):
            message = graph.schedule[p]
            table = edge_exp_table[message >> 1]
            newest = max(newest, table + 1)
            fills_blocks = table >= 0 and n_users[table] >= BLOCK_SIZE
            kind[p] = 3 * table + 1 + (message & 1) if fills_blocks else 3 * oldest
            example_of[p], source_of[p] = example, graph.edges[message >> 1, 1 - (message & 1)]
    by_source = sorted_by(source_of, np.arange(n_messages))
    by_level = sorted_by(level, sorted_by(kind, by_source))
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
