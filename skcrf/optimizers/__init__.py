"""Optimizers, which know an objective ``w -> (value, gradient)`` and nothing else, and schedules, by name."""

from skcrf.optimizers._base import BaseOptimizer
from skcrf.optimizers.adam import Adam
from skcrf.optimizers.lbfgs import LBFGS
from skcrf.optimizers.schedules import AtOnce, BaseSchedule, Doubling

OPTIMIZERS = {"adam": Adam, "lbfgs": LBFGS}
SCHEDULES = {"at_once": AtOnce, "doubling": Doubling}

__all__ = [
    "LBFGS",
    "OPTIMIZERS",
    "SCHEDULES",
    "Adam",
    "AtOnce",
    "BaseOptimizer",
    "BaseSchedule",
    "Doubling",
]
