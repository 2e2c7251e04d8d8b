"""Losses, by name."""

from skcrf.losses._base import BaseLoss
from skcrf.losses.clique import CliqueLogistic, CliqueQuadratic, CliqueSmoothed
from skcrf.losses.likelihood import EM, Likelihood
from skcrf.losses.piecewise import Piecewise
from skcrf.losses.pseudolikelihood import PatchPseudolikelihood, Pseudolikelihood
from skcrf.losses.univariate import SmoothedClassification, UnivariateLogistic, UnivariateQuadratic

LOSSES = {
    "clique_logistic": CliqueLogistic,
    "clique_quadratic": CliqueQuadratic,
    "clique_smoothed": CliqueSmoothed,
    "em": EM,
    "likelihood": Likelihood,
    "patch_pseudolikelihood": PatchPseudolikelihood,
    "piecewise": Piecewise,
    "pseudolikelihood": Pseudolikelihood,
    "smoothed_classification": SmoothedClassification,
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
    "Likelihood",
    "PatchPseudolikelihood",
    "Piecewise",
    "Pseudolikelihood",
    "SmoothedClassification",
    "UnivariateLogistic",
    "UnivariateQuadratic",
]
