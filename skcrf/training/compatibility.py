"""Compatibility: which losses, inferences, gradients, optimizers and decodings go together.

The only module with rules about several of them. Error messages list what the registries hold.
"""

from skcrf._registry import names_of
from skcrf.gradients import GRADIENTS
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES
from skcrf.optimizers import OPTIMIZERS

#: Task that the inference must be able to do for each decoding.
DECODING_TASKS = {"mpm": "sum", "map": "max", "marginal_map": "mixed"}

_VERBS = {"sum": "sum", "max": "maximise", "mixed": "maximise over some nodes and sum over others"}


def calls_inference(loss):
    """Return whether a loss calls its inference."""
    return bool(loss.needs or loss.tasks)


def inferences_of(loss, inference):
    """Return the inferences that a loss calls.

    Parameters
    ----------
    loss : BaseLoss
        The loss.
    inference : BaseInference
        The inference of the estimator, which may be wrapped by a gradient strategy.

    Returns
    -------
    inferences : list of BaseInference
        None, that of the estimator, or also the second inference of the loss.
    """
    if not calls_inference(loss):
        return []
    second = loss.second_inference_of(inference)
    return [inference] if second is None else [inference, second]


def takes_compact(loss, inference):
    """Return whether a loss and the inferences that it calls take Potts tables as two numbers each."""
    return not loss.reads_tables and all("potts" in one.layouts for one in inferences_of(loss, inference))


def is_smooth(loss, inference, is_linear):
    """Return whether a loss is smooth with an inference.

    With a MAP solver, which cannot sum, a loss that is smooth otherwise is piecewise linear in potentials,
    and so in the weights of a linear model.
    """
    maximises = is_linear and any("sum" not in one.tasks for one in inferences_of(loss, inference))
    return loss.is_smooth and not maximises


def not_convex_because(loss, hides_labels, is_linear):
    """Return the reason why the objective of a loss need not be convex, or None if it is convex.

    Parameters
    ----------
    loss : BaseLoss
        The loss.
    hides_labels : bool
        Whether labels are hidden.
    is_linear : bool
        Whether the potentials of the model are linear in the weights.

    Returns
    -------
    reason : str or None
        A clause.
    """
    name = type(loss).__name__
    if not loss.is_convex:
        return f"{name} is not convex"
    if hides_labels:
        return f"{name} is not convex where labels are hidden"
    if not is_linear:
        return "the potentials of the model are not linear in the weights"
    return None


def check_difference(loss, is_linear, optimizer):
    """Raise an error if the objective of a loss is not a difference of convex functions.

    Parameters
    ----------
    loss : BaseLoss
        The loss.
    is_linear : bool
        Whether the potentials of the model are linear in the weights.
    optimizer : str
        Name of the optimizer, for the message.
    """
    if loss.difference is None:
        able = names_of(LOSSES, lambda one: one.difference is not None)
        raise ValueError(
            f"loss must be a difference of convex functions for {optimizer}, got {type(loss).__name__}. "
            f"Use one of {able}, or optimizer='auto'."
        )
    if not is_linear:
        raise ValueError(
            f"optimizer must suit the model: {optimizer} needs a difference of convex functions, got "
            "potentials that are not linear in the weights. Use optimizer='auto'."
        )


def default_optimizer(loss, inference, is_linear):
    """Return the name of the optimizer that suits a loss, an inference and a model.

    Parameters
    ----------
    loss : BaseLoss
        The loss.
    inference : BaseInference
        The inference.
    is_linear : bool
        Whether the potentials of the model are linear in the weights. If not, nothing is known to be convex.

    Returns
    -------
    optimizer : str
        A name in `skcrf.optimizers.OPTIMIZERS`.
    """
    if is_smooth(loss, inference, is_linear):
        return "lbfgs"
    # A smooth loss with a MAP solver is least where all weights are 0: weights are kept by training error.
    if not is_linear or loss.difference is None or loss.is_smooth:
        return "subgradient"
    return "cccp" if loss.takes_hidden_labels else "bundle"


def optimizer_of_start(optimizer, objective):
    """Choose the optimizer of a start, whose objective need not suit the optimizer of the fit.

    Parameters
    ----------
    optimizer : BaseOptimizer
        Optimizer of the fit.
    objective : Objective
        Objective of the start.

    Returns
    -------
    optimizer : BaseOptimizer
        The optimizer of the fit if it minimises any smooth function and the objective is smooth, else the
        one that suits the objective.
    """
    if optimizer.general and objective.is_smooth:
        return optimizer
    return OPTIMIZERS[default_optimizer(objective.loss, objective.inference, objective.model.is_linear)]()


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
        able = names_of(INFERENCE, lambda method: task in method.tasks)
        raise ValueError(
            f"inference must {_VERBS[task]} for decoding={decoding!r}, got {type(inference).__name__}, which "
            f"does not. Use one of {able}, or decoding='auto'."
        )
    return decoding


def serves(inference, gradient, loss):
    """Return whether an inference, differentiated by a gradient strategy, does what a loss asks for."""
    return loss.tasks <= inference.tasks and loss.needs <= gradient.differentiable(inference)


def check_inference(losses, inference, gradient):
    """Raise an error if an inference, or the second inference of a loss, cannot do what the loss asks for.

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
        if not serves(inference, gradient, loss):
            if loss.tasks <= inference.tasks:
                gradient.wrap(inference)  # raises the more specific error if the strategy does not fit
            _raise_unsuited("inference", name, loss, inference, gradient)
        for second in inferences_of(loss, inference)[1:]:
            if not serves(second, gradient, loss):
                _raise_unsuited(f"second inference of {loss!r}", name, loss, second, gradient)
            loss.second_inference_of(gradient.wrap(inference))  # raises an error if the strategy does not fit


def check_layout(losses, inference, layout):
    """Raise an error if the inference, or the second inference of a loss, does not take a layout of graphs.

    Parameters
    ----------
    losses : iterable of tuple
        Pairs of the parameter that asks for a loss and the loss.
    inference : BaseInference
        The inference, of predictions too.
    layout : {"pairwise", "factor"}
        Layout of the graphs of the model.
    """
    inference.check_layout(layout)
    for _, loss in losses:
        for second in inferences_of(loss, inference)[1:]:
            second.check_layout(layout)


def _raise_unsuited(role, name, loss, inference, gradient):
    """Raise the error that a loss needs another inference in a role, or another gradient."""
    wanted = [f"the tasks {sorted(loss.tasks)}"] if loss.tasks else []
    wanted += [f"a derivative of {' and '.join(sorted(loss.needs))}"] if loss.needs else []
    methods = names_of(INFERENCE, lambda method: serves(method, gradient, loss))
    strategies = names_of(GRADIENTS, lambda strategy: serves(inference, strategy, loss))
    remedy = f"{role} to one of {methods}"
    if strategies:
        remedy = f"gradient to one of {strategies}, or {remedy}"
    raise ValueError(
        f"{role} must have {' and '.join(wanted)} for {type(loss).__name__}, asked for by {name}, got "
        f"{type(inference).__name__} with the gradient {type(gradient).__name__}. Set {remedy}."
    )


def check_class_weight(losses, class_weight):
    """Raise an error if class weights mean nothing to a loss; `losses` as for `check_inference`."""
    for name, loss in losses:
        if not loss.site_weighted:
            able = names_of(LOSSES, lambda one: one.site_weighted)
            raise ValueError(
                f"loss must be a sum over sites, or of costs at sites, for class_weight={class_weight!r}, "
                f"got {type(loss).__name__}, asked for by {name}. Use one of {able}, or class_weight=None."
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
    able = names_of(INFERENCE, lambda one: "sum" in one.tasks)
    return f"inference must give marginals for probabilities, got {inference!r}. Use one of {able}."


def missing_epochs(optimizer):
    """Return a message if an optimizer cannot make single passes over mini-batches, else None.

    Parameters
    ----------
    optimizer : str or BaseOptimizer
        Parameter of the estimator.

    Returns
    -------
    message : str or None
        Message.
    """
    able = names_of(OPTIMIZERS, lambda one: one.makes_epochs)
    if optimizer in able if isinstance(optimizer, str) else optimizer.makes_epochs:
        return None
    return f"optimizer must make single passes for partial_fit, got {optimizer!r}. Use one of {able}."
