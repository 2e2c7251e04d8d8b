"""Models: from weights to potentials, and gradients back."""

from skcrf.models._base import BaseModel, ChangeOfVariables, Combinations
from skcrf.models._conditionals import ancestral_samples, conditionals, conditionals_vjp, families
from skcrf.models.directed import DirectedModel
from skcrf.models.pairwise import TIES, IndependentModel, PairwiseModel

__all__ = [
    "TIES",
    "BaseModel",
    "ChangeOfVariables",
    "Combinations",
    "DirectedModel",
    "IndependentModel",
    "PairwiseModel",
    "ancestral_samples",
    "conditionals",
    "conditionals_vjp",
    "families",
]
