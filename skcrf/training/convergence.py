"""Convergence warnings."""

import warnings

from sklearn.exceptions import ConvergenceWarning

from skcrf.training.compatibility import inferences_of, is_smooth

# Parameters of inferences that help them to converge.
_HELPFUL = "max_iter", "max_sweeps", "tol", "damping"


def warn_interrupted():
    """Warn that the user interrupted a fit."""
    _warn("The fit was interrupted. The best weights so far are kept.")


def warn_inference(*inferences):
    """Warn that an inference, or one of those that a loss calls, did not converge."""
    params = {name for one in inferences for name in one.get_params(deep=False)}
    helpful = [name for name in _HELPFUL if name in params]
    truncate = ", or set tol=0" if "tol" in helpful else ""
    whose = "its" if len(inferences) == 1 else "their"
    advice = f" Increase {whose} {' or '.join(helpful)}{truncate}." if helpful else ""
    names = " or ".join(dict.fromkeys(type(one).__name__ for one in inferences))
    _warn(f"{names} did not converge on every example.{advice}")


def warn_optimizer(result, optimizer, loss, inference, model):
    """Warn that an optimizer did not converge; ``result.advice`` replaces the general advice."""
    problem = f"{type(optimizer).__name__} did not converge ({result.message})"
    advice = result.get("advice")
    if not advice:
        not_smooth = optimizer.general and not is_smooth(loss, inference, model.is_linear)
        inexact = optimizer.general and any(one.tol for one in inferences_of(loss, inference))
        other = "use optimizer='auto', as the loss is not smooth, " if not_smooth else ""
        closer = "decrease the tol of the inference, " if inexact else ""
        advice = f"{other}{closer}increase max_iter or tol, or scale the features"
    _warn(f"{problem}. {advice[0].upper()}{advice[1:]}.")


def _warn(message):
    warnings.warn(message, ConvergenceWarning, stacklevel=6)
