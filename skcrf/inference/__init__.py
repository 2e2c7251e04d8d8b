"""Inference methods, by name."""

from skcrf.inference._base import BaseInference, Beliefs
from skcrf.inference.bp import BP, MaxProduct, MixedProduct
from skcrf.inference.bruteforce import BruteForce
from skcrf.inference.exact import Exact
from skcrf.inference.gibbs import Gibbs
from skcrf.inference.graph_cut import GraphCut
from skcrf.inference.icm import ICM
from skcrf.inference.mean_field import MeanField
from skcrf.inference.tree import Tree
from skcrf.inference.trw import TRW
from skcrf.inference.trw_s import TRWS

INFERENCE = {
    "bp": BP,
    "bruteforce": BruteForce,
    "exact": Exact,
    "gibbs": Gibbs,
    "graph_cut": GraphCut,
    "icm": ICM,
    "max_product": MaxProduct,
    "mean_field": MeanField,
    "mixed_product": MixedProduct,
    "tree": Tree,
    "trw": TRW,
    "trw_s": TRWS,
}

__all__ = [
    "BP",
    "ICM",
    "INFERENCE",
    "TRW",
    "TRWS",
    "BaseInference",
    "Beliefs",
    "BruteForce",
    "Exact",
    "Gibbs",
    "GraphCut",
    "MaxProduct",
    "MeanField",
    "MixedProduct",
    "Tree",
]
