"""Expected tables of lattices, in tiles: the marginals of edges, summed over those that share a table.

The marginal of the pair at positions p and p + 1 of a line is the table times both cavities, normalised; each
cavity leaves out the message from the other. Arrays are as in `_tiles` and `_lanes`.
"""

import numpy as np

from skcrf._numerics import kernel, reduction_kernel, vector_kernel
from skcrf.inference._lanes import cavities
from skcrf.inference._tiles import array_of, cross, messages_of, table_at, tables_of


@vector_kernel
def _weights(q, said, heard, rho, top, out):
    """Cavities of all labels, the largest of each lane 1, so that products of two cannot vanish."""
    n_labels, lanes = out.shape
    if len(q) < n_labels:  # a ratio: the first label has no number
        for lane in range(lanes):
            out[0, lane] = 1.0
    cavities(q, said, heard, rho, out[n_labels - len(q) :])
    for lane in range(lanes):
        top[lane] = 0.0
    for x in range(n_labels):
        for lane in range(lanes):
            top[lane] = max(top[lane], out[x, lane])
    for x in range(n_labels):
        for lane in range(lanes):
            out[x, lane] /= top[lane]


@vector_kernel
def _normalise(table, first, second, scale, total):
    """Scale `first` so that all pairs together weigh `scale`."""
    n_labels, lanes = first.shape
    for lane in range(lanes):
        total[lane] = 0.0
    for x in range(n_labels):
        for z in range(n_labels):
            if table.ndim == 2:
                t = table[x, z]
                for lane in range(lanes):
                    total[lane] += t * first[x, lane] * second[z, lane]
            else:
                for lane in range(lanes):
                    total[lane] += table[x, z, lane] * first[x, lane] * second[z, lane]
    for x in range(n_labels):
        for lane in range(lanes):
            first[x, lane] *= scale / total[lane]


@reduction_kernel
def _add_sum(table, first, second, n_lines, out):
    """Add the pairs of all lines to the one table that they share."""
    for x in range(len(first)):
        for z in range(len(second)):
            total = 0.0
            for lane in range(n_lines):
                total += first[x, lane] * second[z, lane]
            out[x, z] += table[x, z] * total


@vector_kernel
def _add_each(table, first, second, out):
    for x in range(len(first)):
        for z in range(len(second)):
            for lane in range(first.shape[1]):
                out[x, z, lane] += table[x, z, lane] * first[x, lane] * second[z, lane]


@kernel
def _expect(q, f, b, tables, rho, n_labels, n_lines, out):
    n_tiles, positions, _, lanes = q.shape
    first, second, work = np.empty((n_labels, lanes)), np.empty((n_labels, lanes)), np.empty(lanes)
    for t in range(n_tiles):
        for p in range(positions - 1):
            table, sums = table_at(tables, t, p, False), table_at(out, t, p, False)
            _weights(q[t, p], f[t, p], b[t, p], rho, work, first)
            _weights(q[t, p + 1], b[t, p + 1], f[t, p + 1], rho, work, second)
            _normalise(table, first, second, rho, work)
            if tables.ndim == 3:  # one table for all edges
                _add_sum(table, first, second, min(lanes, n_lines - t * lanes), sums)
            else:
                _add_each(table, first, second, sums)


@kernel
def expect_tables(tiles, layout, state, scratch, out):
    """Add ``rho`` times the expected tables along the lines of a layout, as adjoints of tables are kept."""
    other = 1 - layout
    for example in range(len(tiles.shapes)):
        q = array_of(tiles, scratch, example, layout)
        f, b = messages_of(tiles, state, example, other)
        cross(f, b, tiles.rho[example, other], array_of(tiles, tiles.unary[other], example, other), q)
        f, b = messages_of(tiles, state, example, layout)
        tables = tables_of(tiles, tiles.tables[layout], example, layout)
        n_lines = tiles.shapes[example, layout]
        rho, sums = tiles.rho[example, layout], tables_of(tiles, out, example, layout)
        _expect(q, f, b, tables, rho, tiles.sizes[0], n_lines, sums)
