"""Losses, by name, and the base classes to add one."""

import warnings
from importlib import import_module

from skcrf.losses._augmented import AugmentedLogPartition
from skcrf.losses._base import BaseLoss
from skcrf.losses._log_partition import ClampedLogPartition, DifferenceLoss, FreeLogPartition
from skcrf.losses.clique import CliqueLogistic, CliqueLoss, CliqueQuadratic, CliqueSmoothed
from skcrf.losses.likelihood import EM, Likelihood
from skcrf.losses.margin import Hinge, LatentHinge, MarginalHinge, Unified
from skcrf.losses.piecewise import Piecewise
from skcrf.losses.pseudolikelihood import PatchPseudolikelihood, Pseudolikelihood
from skcrf.losses.single_configuration import ContrastiveDivergence, MaximumMarginal
from skcrf.losses.univariate import (
    SmoothedClassification,
    UnivariateLogistic,
    UnivariateLoss,
    UnivariateQuadratic,
)

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
    "AugmentedLogPartition",
    "BaseLoss",
    "ClampedLogPartition",
    "CliqueLogistic",
    "CliqueLoss",
    "CliqueQuadratic",
    "CliqueSmoothed",
    "ContrastiveDivergence",
    "DifferenceLoss",
    "FreeLogPartition",
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
    "UnivariateLoss",
    "UnivariateQuadratic",
]


def _has_kinks(loss, inference):
    """Return whether a loss is non-smooth with an inference and a model that is linear in its weights."""
    return not import_module("skcrf.training").is_smooth(loss, inference, is_linear=True)


def __getattr__(name):
    if name != "has_kinks":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "skcrf.losses.has_kinks is deprecated; use `not skcrf.training.is_smooth(loss, inference, "
        "is_linear)`.",
        FutureWarning,
        stacklevel=2,
    )
    return _has_kinks
