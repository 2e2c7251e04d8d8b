"""Graphs and potentials: the two layouts that everything behind the inference door shares."""

from skcrf.graph._directed import (
    ancestral_samples,
    conditionals,
    conditionals_vjp,
    families,
    topological_order,
)
from skcrf.graph._factor_potentials import factor_potentials
from skcrf.graph._factors import FactorGraph, as_factors, from_factors
from skcrf.graph._packing import pack, select
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
    PARENTS,
    Graph,
    chain,
    from_edges,
    isolated,
    lattice,
    mesh,
    without_edges,
)

__all__ = [
    "OFFSETS",
    "PARENTS",
    "FactorGraph",
    "Graph",
    "Potentials",
    "ancestral_samples",
    "as_factors",
    "augment",
    "canonical",
    "chain",
    "clamp",
    "conditionals",
    "conditionals_vjp",
    "factor_potentials",
    "families",
    "from_edges",
    "from_factors",
    "isolated",
    "lattice",
    "mesh",
    "outer",
    "pack",
    "scaled",
    "score",
    "score_vjp",
    "select",
    "sum_by_example",
    "sum_by_node",
    "sum_by_table",
    "topological_order",
    "without_edges",
]
