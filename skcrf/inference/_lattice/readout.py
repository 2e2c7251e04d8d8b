"""Expected tables of lattices, in tiles: the marginals of edges, summed over those that share a table.

The marginal of the pair at positions p and p + 1 of a line is the table times both cavities, normalised; each
cavity leaves out the message from the other. Arrays are as in `_tiles` and `_lanes`.
"""

import numpy as np

from skcrf._numerics import kernel, reduction_kernel, vector_kernel
from skcrf.inference._lattice.cross import listen
from skcrf.inference._lattice.layout import (
    array_of,
    cut,
    messages_of,
    n_lines,
    rho_of,
    seam,
    slope,
    table_at,
    tables_of,
)
from skcrf.inference._lattice.message import cavities


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


# Pairs are divided by their sum one by one, so that a pair which is certain weighs exactly 1.


@vector_kernel
def _sums(table, first, second, total):
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


@reduction_kernel
def _sum_of_lines(t, first, second, total):
    of_all = 0.0
    for lane in range(len(first)):
        of_all += t * first[lane] * second[lane] / total[lane]
    return of_all


@vector_kernel
def _add_each(table, first, second, total, out):
    for x in range(len(first)):
        for z in range(len(second)):
            for lane in range(first.shape[1]):
                out[x, z, lane] += table[x, z, lane] * first[x, lane] * second[z, lane] / total[lane]


@kernel
def _expect(q, f, b, tables, rho, n_labels, lines, slope, width, out):
    n_tiles, positions, _, lanes = q.shape
    first, second, work = np.empty((n_labels, lanes)), np.empty((n_labels, lanes)), np.empty(lanes)
    for t in range(n_tiles):
        rho_t = rho[0], rho[1][t * lanes : (t + 1) * lanes]
        for p in range(positions - 1):
            table, sums = table_at(tables, t, p, False), table_at(out, t, p, False)
            _weights(q[t, p], f[t, p], b[t, p], rho_t, work, first)
            _weights(q[t, p + 1], b[t, p + 1], f[t, p + 1], rho_t, work, second)
            _sums(table, first, second, work)
            if slope != 0:  # no edge where a diagonal comes in again
                cut(first, t * lanes, seam(slope, width, p), 0.0)
            if tables.ndim == 3:  # one table for all edges
                n = min(lanes, lines - t * lanes)
                for x in range(n_labels):
                    for z in range(n_labels):
                        sums[x, z] += _sum_of_lines(table[x, z], first[x, :n], second[z, :n], work[:n])
            else:
                _add_each(table, first, second, work, sums)


@kernel
def expect_tables(tiles, layout, state, scratch, parts, out):
    """Add the expected tables along the lines of a layout.

    `parts` are those of all layouts, None where there are two.
    """
    for example in range(len(tiles.shapes)):
        q = array_of(tiles, scratch, example, layout)
        listen(tiles, layout, state, example, parts, q)
        f, b = messages_of(tiles, state, example, layout)
        tables = tables_of(tiles, tiles.tables[layout], example, layout)
        sums = tables_of(tiles, out, example, layout)
        rho, lines = rho_of(tiles, example, layout), n_lines(tiles, example, layout)
        width = tiles.shapes[example, 1]
        _expect(q, f, b, tables, rho, tiles.sizes[0], lines, slope(layout), width, sums)
