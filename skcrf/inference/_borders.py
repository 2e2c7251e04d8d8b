"""Into the tiles and out of them: potentials, messages, and their adjoints."""

from skcrf._numerics import kernel
from skcrf.inference._tiles import array_of, messages_of, tables_of


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
def swap(tiles, from1, to0):
    """Copy arrays from layout 1 to layout 0."""
    for example in range(len(tiles.shapes)):
        source, target = array_of(tiles, from1, example, 1), array_of(tiles, to0, example, 0)
        height, width = tiles.shapes[example]
        lanes0, lanes1 = target.shape[3], source.shape[3]
        for row in range(height):
            for x in range(source.shape[2]):
                for column in range(width):
                    value = source[column // lanes1, row, x, column % lanes1]
                    target[row // lanes0, column, x, row % lanes0] = value


@kernel
def leave_unary(tiles, d0, d1, d_unary):
    """Add the adjoints in both layouts to those of the nodes."""
    n_labels, n_rows = tiles.sizes
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        rows, columns = array_of(tiles, d0, example, 0), array_of(tiles, d1, example, 1)
        lanes0, lanes1 = rows.shape[3], columns.shape[3]
        for node in range(height * width):
            r, c = node // width, node % width
            for x in range(n_rows):
                value = rows[r // lanes0, c, x, r % lanes0] + columns[c // lanes1, r, x, c % lanes1]
                d_unary[tiles.node_ptr[example] + node, n_labels - n_rows + x] += value
                if n_rows < n_labels:
                    d_unary[tiles.node_ptr[example] + node, 0] -= value


@kernel
def _edge_steps(tiles, edge_ptr, example, layout):
    """The first edge along the lines of a layout, and the steps of edge numbers across and along them."""
    height, width = tiles.shapes[example]
    if layout == 0:
        return edge_ptr[example], width - 1, 1
    return edge_ptr[example] + height * (width - 1), 1, width


@kernel
def enter_tables(tiles, edge_ptr, tables, layout, out):
    """theta / rho of edges that have tables of their own, its largest value 0."""
    for example in range(len(tiles.shapes)):
        first, by_line, along = _edge_steps(tiles, edge_ptr, example, layout)
        inside = tables_of(tiles, out, example, layout)
        _, n_gaps, n_labels, _, lanes = inside.shape
        for line in range(tiles.shapes[example, layout]):
            for p in range(n_gaps):
                table = tables[first + line * by_line + p * along]
                top = table.max()
                for x in range(n_labels):
                    for z in range(n_labels):
                        value = (table[x, z] - top) / tiles.rho[example, layout]
                        inside[line // lanes, p, x, z, line % lanes] = value


@kernel
def leave_tables(tiles, edge_ptr, d_inside, layout, d_tables):
    for example in range(len(tiles.shapes)):
        first, by_line, along = _edge_steps(tiles, edge_ptr, example, layout)
        inside = tables_of(tiles, d_inside, example, layout)
        _, n_gaps, n_labels, _, lanes = inside.shape
        for line in range(tiles.shapes[example, layout]):
            for p in range(n_gaps):
                d_table = d_tables[first + line * by_line + p * along]
                for x in range(n_labels):
                    for z in range(n_labels):
                        value = inside[line // lanes, p, x, z, line % lanes]
                        d_table[x, z] += value / tiles.rho[example, layout]


@kernel
def move_messages(tiles, edge_ptr, rows, state, leaving):
    """Copy messages, or their adjoints, between a state and rows that are numbered as `Graph` says."""
    n_labels, n_rows = tiles.sizes
    for example in range(len(tiles.shapes)):
        for layout in range(2):
            first, by_line, along = _edge_steps(tiles, edge_ptr, example, layout)
            f, b = messages_of(tiles, state, example, layout)
            lanes = f.shape[3]
            for line in range(tiles.shapes[example, layout]):
                t, lane = line // lanes, line % lanes
                for p in range(f.shape[1] - 1):
                    edge = first + line * by_line + p * along
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
