"""Starts of a fit: zeros, the model without edges, another loss, or a fitted estimator."""

from functools import partial

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from skcrf.gradients import Backprop
from skcrf.inference import BP
from skcrf.losses import LOSSES, UnivariateLogistic


def start_from_zeros(objective, minimise):
    """Return weights that are all zero."""
    return objective.model.pack(objective.model.zeros())


def start_from_independent(objective, minimise):
    """Fit the model without edges, which is a good start for most losses.

    Parameters
    ----------
    objective : Objective
        Objective of the whole model.
    minimise : callable
        ``minimise(objective, w, title)`` returns the weights of the minimum, as `Monitor.minimise` does.

    Returns
    -------
    w : ndarray of shape (n_weights,)
        Weights; those of edges are zero.
    """
    w = start_from_zeros(objective, minimise)
    independent = objective.replace(
        model=objective.model.independent(),
        loss=UnivariateLogistic(),
        inference=Backprop().wrap(BP(max_iter=0)),  # without messages, marginals are those of single sites
    )
    has_edges = any(batch.n_sites > batch.n_examples for batch in objective.batches)
    return minimise(independent, w, "the model without edges") if has_edges else w


def start_from_loss(loss, objective, minimise):
    """Fit the model by another loss, itself from where that loss starts (D10 section 4)."""
    other = LOSSES[loss]()
    w = STARTS[other.starts_from](objective, minimise)
    return minimise(objective.replace(loss=other), w, type(other).__name__)


#: Starts by the name given as `init`.
STARTS = {
    "independent": start_from_independent,
    "zeros": start_from_zeros,
    **{name: partial(start_from_loss, name) for name in LOSSES},
}


def start_from_estimator(init, model, classes):
    """Return the parameters of a fitted estimator, or raise an error if they do not fit the model.

    Parameters
    ----------
    init : estimator
        Fitted estimator.
    model : BaseModel
        Model to be fitted.
    classes : ndarray of shape (n_classes,)
        Labels of the model.

    Returns
    -------
    params : dict of ndarray
        Parameters.
    """
    name = type(init).__name__
    try:
        check_is_fitted(init)
    except NotFittedError as error:
        raise ValueError(
            f"init must be fitted, got an unfitted {name}. Fit it first; where the model is cloned, as in "
            "GridSearchCV, wrap it in sklearn.frozen.FrozenEstimator, which keeps it fitted."
        ) from error
    fitted = {f"{parameter}_": parameter for parameter in model.shapes}
    lacking = [attribute for attribute in ("classes_", *fitted) if not hasattr(init, attribute)]
    if lacking:
        raise ValueError(
            f"init must be a fitted estimator of fields, such as GridCRFClassifier, got {name} without "
            f"{lacking[0]}. Pass the best_estimator_ of a search, or the last step of a pipeline."
        )
    params = {parameter: getattr(init, attribute) for attribute, parameter in fitted.items()}
    if not np.array_equal(init.classes_, classes):
        raise ValueError(
            f"init must have the classes {classes.tolist()}, got {name} with {init.classes_.tolist()}."
        )
    shapes = {parameter: values.shape for parameter, values in params.items()}
    if shapes != dict(model.shapes):
        raise ValueError(
            f"init must have weights of shapes {list(model.shapes.values())}, got {name} with "
            f"{list(shapes.values())}. Features, connectivity and edge_features must be the same."
        )
    return params
