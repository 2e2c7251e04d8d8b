"""Gradient strategies, by name, and their base class."""

from skcrf.gradients._base import Backprop, BaseGradient
from skcrf.gradients.implicit import Implicit
from skcrf.gradients.perturbation import Perturbation

GRADIENTS = {"backprop": Backprop, "implicit": Implicit, "perturbation": Perturbation}

__all__ = ["GRADIENTS", "Backprop", "BaseGradient", "Implicit", "Perturbation"]
