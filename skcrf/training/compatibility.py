"""Compatibility: which losses, inferences, gradients, optimizers and decodings go together.

The only module that sees all of them.
"""

from skcrf.gradients import GRADIENTS
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES, FreeLogPartition

#: Task that the inference must be able to do for each decoding.
DECODING_TASKS = {"mpm": "sum", "map": "max", "marginal_map": "mixed"}

_VERBS = {"sum": "sum", "max": "maximise", "mixed": "maximise over some nodes and sum over others"}


def calls_inference(loss):
    """Return whether a loss calls its inference."""
    return bool(loss.needs or loss.tasks)


def is_smooth(loss, inference):
    """Return whether a loss is smooth with an inference.

    With a MAP solver, which cannot sum, a loss that is smooth otherwise is piecewise linear.
    """
    return loss.is_smooth and not (calls_inference(loss) and "sum" not in inference.tasks)


def conditions_on_labels(loss):
    """Return whether a loss asks nothing of a normalised field but the field with its labels clamped.

    The likelihood is the difference of a free and a clamped log-partition function. The free one of a
    normalised field is 0.
    """
    return loss.difference is not None and isinstance(loss.difference[0], FreeLogPartition)


def default_optimizer(loss, inference, is_linear=True):
    """Return the name of the optimizer that suits a loss, an inference and a model.

    Parameters
    ----------
    loss : BaseLoss
        The loss.
    inference : BaseInference
        The inference.
    is_linear : bool, default=True
        Whether the potentials of the model are linear in the weights. If not, nothing is known to be convex.

    Returns
    -------
    optimizer : str
        A name in `skcrf.optimizers.OPTIMIZERS`.
    """
    if not is_linear:
        return "lbfgs" if loss.is_smooth else "subgradient"
    if is_smooth(loss, inference):
        return "lbfgs"
    # A smooth loss with a MAP solver is least where all weights are 0: weights are kept by training error.
    if loss.difference is None or loss.is_smooth:
        return "subgradient"
    return "cccp" if loss.takes_hidden_labels else "bundle"


def default_decoding(loss, inference):
    """Return the name of the decoding that suits a loss, among those that the inference can do."""
    suited = "marginal_map" if "mixed" in loss.tasks else "map" if loss.tasks == {"max"} else "mpm"
    return next(name for name in (suited, *DECODING_TASKS) if DECODING_TASKS[name] in inference.tasks)


def choose_decoding(decoding, loss, inference):
    """Resolve the parameter `decoding`, or raise an error if the inference cannot do it."""
    if decoding == "auto":
        return default_decoding(loss, inference)
    task = DECODING_TASKS[decoding]
    if task not in inference.tasks:
        able = sorted(name for name, method in INFERENCE.items() if task in method.tasks)
        raise ValueError(
            f"decoding={decoding!r} needs an inference that can {_VERBS[task]}, got "
            f"{type(inference).__name__}. Use one of {able}, or decoding='auto'."
        )
    return decoding


def serves(inference, gradient, loss):
    """Return whether an inference, differentiated by a gradient strategy, does what a loss asks for."""
    return loss.tasks <= inference.tasks and loss.needs <= gradient.differentiable(inference)


def check_inference(losses, inference, gradient):
    """Raise an error if an inference cannot do what a loss asks for.

    Parameters
    ----------
    losses : iterable of tuple
        Pairs of the parameter that asks for a loss and the loss.
    inference : BaseInference
        The inference.
    gradient : BaseGradient
        The gradient strategy.
    """
    for name, loss in losses:
        if serves(inference, gradient, loss):
            continue
        if loss.tasks <= inference.tasks:
            gradient.wrap(inference)  # raises the more specific error if the strategy does not fit
        wanted = [f"the tasks {sorted(loss.tasks)}"] if loss.tasks else []
        wanted += [f"a derivative of {' and '.join(sorted(loss.needs))}"] if loss.needs else []
        methods = sorted(one for one, method in INFERENCE.items() if serves(method(), gradient, loss))
        strategies = sorted(one for one, strategy in GRADIENTS.items() if serves(inference, strategy(), loss))
        remedy = f"inference as one of {methods}"
        if strategies:
            remedy = f"gradient as one of {strategies}, or {remedy}"
        raise ValueError(
            f"{type(loss).__name__}, asked for by {name}, needs an inference with {' and '.join(wanted)}, "
            f"got {type(inference).__name__} with gradient {type(gradient).__name__}. Set {remedy}."
        )


def check_class_weight(losses, class_weight):
    """Raise an error if class weights mean nothing to a loss; `losses` as for `check_inference`."""
    for name, loss in losses:
        if not loss.site_weighted:
            able = sorted(n for n, one in LOSSES.items() if one.site_weighted)
            raise ValueError(
                f"class_weight={class_weight!r} needs a loss that is a sum over sites, or of costs at sites, "
                f"got {type(loss).__name__}, asked for by {name}. Use one of {able}."
            )


def missing_marginals(method, inference):
    """Return a message if an inference gives no marginals, else None.

    Parameters
    ----------
    method : BaseInference
        The inference, or its class.
    inference : str or BaseInference
        Parameter of the estimator, for the message.

    Returns
    -------
    message : str or None
        Message.
    """
    if "sum" in method.tasks:
        return None
    able = sorted(name for name, one in INFERENCE.items() if "sum" in one.tasks)
    return f"Probabilities need an inference that gives marginals, got {inference!r}. Use one of {able}."
