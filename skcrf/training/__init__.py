"""Training: the objective of a fit, its starts and stages, and which components go together."""

from skcrf.training.compatibility import (
    calls_inference,
    check_class_weight,
    check_inference,
    check_layout,
    choose_decoding,
    default_optimizer,
    inferences_of,
    is_smooth,
    missing_epochs,
    missing_marginals,
    takes_compact,
)
from skcrf.training.convergence import warn_inference, warn_interrupted, warn_optimizer
from skcrf.training.minimise import (
    STARTS,
    Monitor,
    fitted_attributes,
    run_stages,
    start_from_estimator,
)
from skcrf.training.objective import Evaluation, Objective

__all__ = [
    "STARTS",
    "Evaluation",
    "Monitor",
    "Objective",
    "calls_inference",
    "check_class_weight",
    "check_inference",
    "check_layout",
    "choose_decoding",
    "default_optimizer",
    "fitted_attributes",
    "inferences_of",
    "is_smooth",
    "missing_epochs",
    "missing_marginals",
    "run_stages",
    "start_from_estimator",
    "takes_compact",
    "warn_inference",
    "warn_interrupted",
    "warn_optimizer",
]
