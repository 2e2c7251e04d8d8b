"""Graphs and potentials: the one layout that everything behind the inference door shares."""

from skcrf.graph._potentials import (
    Potentials,
    augment,
    canonical,
    clamp,
    outer,
    scaled,
    score,
    score_vjp,
    sum_by_example,
    sum_by_node,
    sum_by_table,
)
from skcrf.graph._structure import (
    OFFSETS,
    Graph,
    chain,
    from_edges,
    isolated,
    lattice,
    pack,
    select,
    without_edges,
)

__all__ = [
    "OFFSETS",
    "Graph",
    "Potentials",
    "augment",
    "canonical",
    "chain",
    "clamp",
    "from_edges",
    "isolated",
    "lattice",
    "outer",
    "pack",
    "scaled",
    "score",
    "score_vjp",
    "select",
    "sum_by_example",
    "sum_by_node",
    "sum_by_table",
    "without_edges",
]
