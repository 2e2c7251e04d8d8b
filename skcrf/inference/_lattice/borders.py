"""Into the tiles and out of them: potentials, messages, and their adjoints."""

from skcrf._numerics import kernel
from skcrf.inference._lattice.cross import swap
from skcrf.inference._lattice.layout import (
    array_of,
    edge_at,
    messages_of,
    n_lines,
    place,
    rho_of,
    tables_of,
)


@kernel
def enter_unary(tiles, unary, out):
    """theta of the nodes in layout 1, its largest value 0; the difference of two labels."""
    n_labels, n_rows = tiles.sizes
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        inside = array_of(tiles, out, example, 1)
        n_tiles, _, _, lanes = inside.shape
        for row in range(height):
            for t in range(n_tiles):
                for lane in range(min(lanes, width - t * lanes)):
                    node = tiles.node_ptr[example] + row * width + t * lanes + lane
                    top = unary[node, 0]
                    for x in range(1, n_rows):
                        top = max(top, unary[node, x])
                    for x in range(n_rows):
                        inside[t, row, x, lane] = unary[node, n_labels - n_rows + x] - top


@kernel
def spread_unary(tiles, from1, to0):
    """Copy theta of the nodes from layout 1 to layout 0."""
    for example in range(len(tiles.shapes)):
        swap(array_of(tiles, from1, example, 1), array_of(tiles, to0, example, 0))


@kernel
def leave_unary(tiles, d_inside, d_unary):
    """Add the adjoints in all layouts to those of the nodes."""
    n_labels, n_rows = tiles.sizes
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        for layout in range(len(d_inside)):
            inside = array_of(tiles, d_inside[layout], example, layout)
            lanes = inside.shape[3]
            for node in range(height * width):
                line, p = place(layout, width, node // width, node % width)
                t, lane = line // lanes, line % lanes
                for x in range(n_rows):
                    value = inside[t, p, x, lane]
                    d_unary[tiles.node_ptr[example] + node, n_labels - n_rows + x] += value
                    if n_rows < n_labels:
                        d_unary[tiles.node_ptr[example] + node, 0] -= value


@kernel
def enter_weights(tiles, layout, rho, out):
    """Weights of the rows or columns, where these have edges."""
    for example in range(len(tiles.shapes)):
        start = tiles.lane_start[example, layout]
        if tiles.shapes[example, 1 - layout] > 1:
            for line in range(n_lines(tiles, example, layout)):
                out[start + line] = rho[edge_at(tiles, example, layout, line, 0)]


@kernel
def enter_tables(tiles, shared, tables, layout, out):
    """theta / rho by lane, its largest value 0.

    `shared` is the table that all edges along the lines of an example have in common, or -1 if each has its
    own.
    """
    for example in range(len(tiles.shapes)):
        inside, weights = tables_of(tiles, out, example, layout), rho_of(tiles, example, layout)[1]
        _, n_gaps, n_labels, _, lanes = inside.shape
        for line in range(n_lines(tiles, example, layout)):
            for p in range(n_gaps):
                at = shared[example] if shared[example] >= 0 else edge_at(tiles, example, layout, line, p)
                if at < 0:
                    continue
                top = tables[at].max()
                for x in range(n_labels):
                    for z in range(n_labels):
                        value = (tables[at, x, z] - top) / weights[line]
                        inside[line // lanes, p, x, z, line % lanes] = value


@kernel
def leave_tables(tiles, shared, d_inside, layout, d_tables):
    for example in range(len(tiles.shapes)):
        inside, weights = tables_of(tiles, d_inside, example, layout), rho_of(tiles, example, layout)[1]
        _, n_gaps, n_labels, _, lanes = inside.shape
        for line in range(n_lines(tiles, example, layout)):
            for p in range(n_gaps):
                at = shared[example] if shared[example] >= 0 else edge_at(tiles, example, layout, line, p)
                if at < 0:
                    continue
                for x in range(n_labels):
                    for z in range(n_labels):
                        value = inside[line // lanes, p, x, z, line % lanes]
                        d_tables[at, x, z] += value / weights[line]


@kernel
def move_messages(tiles, rows, state, leaving):
    """Copy messages, or their adjoints, between a state and rows that are numbered as `Graph` says."""
    n_labels, n_rows = tiles.sizes
    for example in range(len(tiles.shapes)):
        for layout in range(tiles.rho.shape[1]):
            f, b = messages_of(tiles, state, example, layout)
            lanes = f.shape[3]
            for line in range(n_lines(tiles, example, layout)):
                t, lane = line // lanes, line % lanes
                for p in range(f.shape[1] - 1):
                    edge = edge_at(tiles, example, layout, line, p)
                    if edge < 0:
                        continue
                    for x in range(n_rows):
                        at = n_labels - n_rows + x
                        if leaving:
                            rows[2 * edge + 1, at], rows[2 * edge, at] = (
                                f[t, p + 1, x, lane],
                                b[t, p, x, lane],
                            )
                        else:
                            f[t, p + 1, x, lane], b[t, p, x, lane] = (
                                rows[2 * edge + 1, at],
                                rows[2 * edge, at],
                            )
