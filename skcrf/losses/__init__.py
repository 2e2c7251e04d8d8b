"""Losses, by name."""

from skcrf.losses._base import BaseLoss
from skcrf.losses.clique import CliqueLogistic
from skcrf.losses.likelihood import Likelihood
from skcrf.losses.univariate import UnivariateLogistic

LOSSES = {
    "clique_logistic": CliqueLogistic,
    "likelihood": Likelihood,
    "univariate_logistic": UnivariateLogistic,
}

__all__ = ["LOSSES", "BaseLoss", "CliqueLogistic", "Likelihood", "UnivariateLogistic"]
