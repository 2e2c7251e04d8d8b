"""Convergence warnings."""

import warnings

from sklearn.exceptions import ConvergenceWarning

from skcrf.training.compatibility import calls_inference, is_smooth

# Parameters of inferences that help them to converge.
_HELPFUL = "max_iter", "max_sweeps", "tol", "damping"


def warn_interrupted():
    """Warn that the user interrupted a fit."""
    _warn("The fit was interrupted. The best weights so far are kept.")


def warn_inference(inference):
    """Warn that an inference did not converge."""
    helpful = [name for name in _HELPFUL if name in inference.get_params(deep=False)]
    truncate = ", or set tol=0" if "tol" in helpful else ""
    advice = f" Increase its {' or '.join(helpful)}{truncate}." if helpful else ""
    _warn(f"{type(inference).__name__} did not converge on every example.{advice}")


def warn_optimizer(result, optimizer, loss, inference, model):
    """Warn that an optimizer did not converge; ``result.advice`` replaces the general advice."""
    problem = f"{type(optimizer).__name__} did not converge ({result.message})"
    advice = result.get("advice")
    if not advice:
        not_smooth = optimizer.general and not is_smooth(loss, inference, model.is_linear)
        inexact = optimizer.general and calls_inference(loss) and bool(inference.tol)
        other = "use optimizer='auto', as the loss is not smooth, " if not_smooth else ""
        closer = "decrease the tol of the inference, " if inexact else ""
        advice = f"{other}{closer}increase max_iter or tol, or scale the features"
    _warn(f"{problem}. {advice[0].upper()}{advice[1:]}.")


def _warn(message):
    warnings.warn(message, ConvergenceWarning, stacklevel=6)
