"""Inference methods, by name."""

from skcrf.inference._base import BaseInference, Beliefs
from skcrf.inference.bp import BP
from skcrf.inference.bruteforce import BruteForce
from skcrf.inference.exact import Exact
from skcrf.inference.graph_cut import GraphCut
from skcrf.inference.mean_field import MeanField
from skcrf.inference.tree import Tree
from skcrf.inference.trw import TRW
from skcrf.inference.trw_s import TRWS

INFERENCE = {
    "bp": BP,
    "bruteforce": BruteForce,
    "exact": Exact,
    "graph_cut": GraphCut,
    "mean_field": MeanField,
    "tree": Tree,
    "trw": TRW,
    "trw_s": TRWS,
}

__all__ = [
    "BP",
    "INFERENCE",
    "TRW",
    "TRWS",
    "BaseInference",
    "Beliefs",
    "BruteForce",
    "Exact",
    "GraphCut",
    "MeanField",
    "Tree",
]
