"""Losses, by name."""

from skcrf.losses._base import BaseLoss, has_kinks
from skcrf.losses._log_partition import Free as FreeLogPartition
from skcrf.losses.clique import CliqueLogistic, CliqueQuadratic, CliqueSmoothed
from skcrf.losses.likelihood import EM, Likelihood
from skcrf.losses.margin import Hinge, LatentHinge, MarginalHinge, Unified
from skcrf.losses.piecewise import Piecewise
from skcrf.losses.pseudolikelihood import PatchPseudolikelihood, Pseudolikelihood
from skcrf.losses.single_configuration import ContrastiveDivergence, MaximumMarginal
from skcrf.losses.univariate import SmoothedClassification, UnivariateLogistic, UnivariateQuadratic

LOSSES = {
    "clique_logistic": CliqueLogistic,
    "clique_quadratic": CliqueQuadratic,
    "clique_smoothed": CliqueSmoothed,
    "contrastive_divergence": ContrastiveDivergence,
    "em": EM,
    "hinge": Hinge,
    "latent_hinge": LatentHinge,
    "likelihood": Likelihood,
    "marginal_hinge": MarginalHinge,
    "maximum_marginal": MaximumMarginal,
    "patch_pseudolikelihood": PatchPseudolikelihood,
    "piecewise": Piecewise,
    "pseudolikelihood": Pseudolikelihood,
    "smoothed_classification": SmoothedClassification,
    "unified": Unified,
    "univariate_logistic": UnivariateLogistic,
    "univariate_quadratic": UnivariateQuadratic,
}

__all__ = [
    "EM",
    "LOSSES",
    "BaseLoss",
    "CliqueLogistic",
    "CliqueQuadratic",
    "CliqueSmoothed",
    "ContrastiveDivergence",
    "Hinge",
    "LatentHinge",
    "Likelihood",
    "MarginalHinge",
    "MaximumMarginal",
    "PatchPseudolikelihood",
    "Piecewise",
    "Pseudolikelihood",
    "SmoothedClassification",
    "Unified",
    "UnivariateLogistic",
    "UnivariateQuadratic",
    "has_kinks",
]
