"""Pairwise graphs, factor graphs and their potentials."""

import warnings
from importlib import import_module

from skcrf.graph._arrays import (
    Potentials,
    canonical,
    canonical_graph,
    is_potts,
    pack,
    select,
    sum_by_example,
)
from skcrf.graph._clamp import augment, clamp
from skcrf.graph._errors import ExampleError, ImpossibleError
from skcrf.graph._factor_graph import FactorGraph, as_factors, from_factors
from skcrf.graph._factor_potentials import factor_potentials
from skcrf.graph._order import topological_order
from skcrf.graph._pairwise_graph import (
    OFFSETS,
    PARENTS,
    Graph,
    chain,
    from_edges,
    isolated,
    lattice,
    mesh,
    untied,
    without_edges,
)
from skcrf.graph._pairwise_potentials import (
    outer,
    over_edges,
    scaled,
    score,
    score_vjp,
    sum_by_edge,
    sum_by_node,
    sum_by_table,
    tables_of_edges,
)
from skcrf.graph._potts import EQUAL, UNEQUAL, full_tables, full_tables_vjp

# Names that moved to `skcrf.models`.
_MOVED = {"ancestral_samples", "conditionals", "conditionals_vjp", "families"}


def __getattr__(name):
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"skcrf.graph.{name} moved; import it from skcrf.models.", FutureWarning, stacklevel=2)
    return getattr(import_module("skcrf.models"), name)


__all__ = [
    "EQUAL",
    "OFFSETS",
    "PARENTS",
    "UNEQUAL",
    "ExampleError",
    "FactorGraph",
    "Graph",
    "ImpossibleError",
    "Potentials",
    "as_factors",
    "augment",
    "canonical",
    "canonical_graph",
    "chain",
    "clamp",
    "factor_potentials",
    "from_edges",
    "from_factors",
    "full_tables",
    "full_tables_vjp",
    "is_potts",
    "isolated",
    "lattice",
    "mesh",
    "outer",
    "over_edges",
    "pack",
    "scaled",
    "score",
    "score_vjp",
    "select",
    "sum_by_edge",
    "sum_by_example",
    "sum_by_node",
    "sum_by_table",
    "tables_of_edges",
    "topological_order",
    "untied",
    "without_edges",
]
