"""Gradient strategies, by name."""

from skcrf.gradients._base import BaseGradient
from skcrf.gradients.backprop import Backprop

GRADIENTS = {"backprop": Backprop}

__all__ = ["GRADIENTS", "Backprop", "BaseGradient"]
