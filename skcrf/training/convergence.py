"""What is said where something did not converge, and what to do then."""

import warnings

from sklearn.exceptions import ConvergenceWarning

from skcrf.training.learning import suited


def warn_of(problem, advice):
    """Warn that something did not converge.

    Parameters
    ----------
    problem, advice : str
        What is wrong, and what to do.
    """
    warnings.warn(f"{problem}: {advice}.", ConvergenceWarning, stacklevel=5)


def not_inferred(inference):
    """Say that an inference did not converge.

    Parameters
    ----------
    inference : BaseInference
        The inference.

    Returns
    -------
    problem, advice : str
        What `warn_of` takes.
    """
    own = [p for p in ("max_iter", "max_sweeps", "tol", "damping") if hasattr(inference, p)]
    or_not = ", or set tol=0" if "tol" in own else ""
    problem = f"{type(inference).__name__} did not converge on every example"
    return problem, f"raise its {' or '.join(own)}{or_not}"


def not_minimised(result, optimizer, loss, inference, linear):
    """Say that an optimizer did not converge.

    Parameters
    ----------
    result : scipy.optimize.OptimizeResult
        What it returned; its own advice comes first.
    optimizer : BaseOptimizer
        The optimizer.
    loss : BaseLoss
        The loss.
    inference : BaseInference
        The inference.
    linear : bool
        Whether potentials are linear in the weights.

    Returns
    -------
    problem, advice : str
        What `warn_of` takes.
    """
    problem = f"{type(optimizer).__name__} did not converge ({result.message})"
    if result.get("advice"):
        return problem, result.advice
    by_slopes = optimizer.general
    kinks = by_slopes and suited(loss, inference, linear) != "lbfgs"
    rough = by_slopes and bool(loss.needs) and (inference.tol or 0) > 0
    other = "take optimizer 'auto' for a loss of kinks, " if kinks else ""
    closer = "lower the tol of the inference, " if rough else ""
    return problem, f"{other}{closer}raise max_iter or tol, or scale the features"
