"""Optimizers and schedules, by name, and their base classes."""

from skcrf.optimizers._base import AtOnce, BaseOptimizer, BaseSchedule, Doubling
from skcrf.optimizers._mini_batch import StepOptimizer
from skcrf.optimizers.adam import Adam
from skcrf.optimizers.bundle import Bundle
from skcrf.optimizers.cccp import CCCP
from skcrf.optimizers.frank_wolfe import FrankWolfe
from skcrf.optimizers.lbfgs import LBFGS
from skcrf.optimizers.subgradient import Subgradient

OPTIMIZERS = {
    "adam": Adam,
    "bundle": Bundle,
    "cccp": CCCP,
    "frank_wolfe": FrankWolfe,
    "lbfgs": LBFGS,
    "subgradient": Subgradient,
}
SCHEDULES = {"at_once": AtOnce, "doubling": Doubling}

__all__ = [
    "CCCP",
    "LBFGS",
    "OPTIMIZERS",
    "SCHEDULES",
    "Adam",
    "AtOnce",
    "BaseOptimizer",
    "BaseSchedule",
    "Bundle",
    "Doubling",
    "FrankWolfe",
    "StepOptimizer",
    "Subgradient",
]
