"""Lattices of pixels and directed Markov meshes."""

import numpy as np

from skcrf.graph._graph_cache import shared
from skcrf.graph._pairwise_graph import Graph, single_graph

# The neighbours of a pixel that make its edges, (down, right), by connectivity. Their order is the order of
# the sweeps: right and left, down and up, then the diagonals.
OFFSETS = {4: [(0, 1), (1, 0)], 8: [(0, 1), (1, 0), (1, 1), (1, -1)]}
#: Offset from each possible parent of a pixel in a Markov mesh. All parents come earlier, line by line.
PARENTS = {"left": (0, 1), "above": (1, 0), "above_left": (1, 1), "above_right": (1, -1)}


def lattice(height, width, connectivity=4, tied=True):
    """Make the lattice of a `height` x `width` image; pixel (r, c) is node ``r * width + c``.

    Parameters
    ----------
    height, width : int
        Size of the image.
    connectivity : {4, 8}, default=4
        Neighbours of a pixel.
    tied : bool, default=True
        Whether all edges of a direction share one table.

    Returns
    -------
    graph : Graph
        The graph, with edges grouped by direction. Calls share its arrays, so do not write to them.
    """
    return _lattice(height, width, tuple(OFFSETS[connectivity]), tied)


def mesh(height, width, parents, tied=True):
    """Make the Markov mesh of an image: a directed lattice, whose edges lead from parents to children.

    Parameters
    ----------
    height, width : int
        Size of the image.
    parents : sequence of {"left", "above", "above_left", "above_right"}
        The neighbours of a pixel that are its parents; each makes a group of edges.
    tied : bool, default=True
        Whether all edges of a direction share one table.

    Returns
    -------
    graph : Graph
        The graph, as `lattice` makes it.
    """
    return _lattice(height, width, tuple(PARENTS[parent] for parent in parents), tied)


@shared(Graph)
def _lattice(height, width, offsets, tied):
    node = np.arange(height * width).reshape(height, width)
    edges, groups, forward, n_edges = [], [], [], 0
    for group, (down, right) in enumerate(offsets):
        first = node[: height - down, max(0, -right) : width - max(0, right)].ravel()
        edges.append(np.stack([first, first + down * width + right], axis=1))
        groups.append(np.full(len(first), group))
        forward.append(2 * np.arange(n_edges, n_edges + len(first)) + 1)
        n_edges += len(first)
    row, column = np.divmod(node.ravel(), width)
    # Neighbours have different colours, so that the nodes of one colour may be visited at once.
    has_diagonals = any(0 not in offset for offset in offsets)
    colour = 2 * (row % 2) + column % 2 if has_diagonals else (row + column) % 2
    groups = np.concatenate(groups)
    graph = single_graph(
        height * width,
        np.concatenate(edges),
        forward=forward,
        tied_groups=groups if tied else None,
        node_order=np.argsort(colour, kind="stable"),
        shape=(height, width),
    )
    if not tied:
        graph = graph._replace(table_group=np.ascontiguousarray(groups, dtype=np.int64))
    return graph
