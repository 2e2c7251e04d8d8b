"""Weights of examples and of classes."""

import numpy as np
from sklearn.utils import compute_class_weight


def check_weights(sample_weight, n_examples):
    """Validate `sample_weight`: return one finite weight of at least 0 per example."""
    try:
        weight = np.asarray(1.0 if sample_weight is None else sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight must be an array of numbers: {error}") from error
    weight = np.full(n_examples, float(weight)) if weight.ndim == 0 else weight
    if weight.shape != (n_examples,):
        raise ValueError(
            f"sample_weight must have one weight per example, ({n_examples},), got shape {weight.shape}."
        )
    good = np.isfinite(weight) & (weight >= 0)
    if not good.all():
        i = int(np.argmin(good))
        raise ValueError(
            f"sample_weight must be finite and at least 0, got {weight[i]} in sample_weight[{i}]."
        )
    return weight


def compute_class_weights(class_weight, classes, counts):
    """Compute the weight of each class.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Parameter of the estimator.
    classes : ndarray of shape (n_classes,)
        Labels.
    counts : ndarray of shape (n_classes,)
        Weight of the sites that have each label.

    Returns
    -------
    weights : ndarray of shape (n_classes,) or None
        Weights; None if `class_weight` is.
    """
    if class_weight is None:
        return None
    if class_weight != "balanced":
        weights = compute_class_weight(class_weight, classes=classes, y=classes)
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(f"class_weight must hold finite weights of at least 0, got {class_weight!r}.")
        if not weights[counts > 0].any():
            raise ValueError(
                f"class_weight must leave a labelled site with a weight above 0, got {class_weight!r}."
            )
        return weights
    present = counts > 0
    return np.where(present, counts.sum() / (present.sum() * np.where(present, counts, 1.0)), 1.0)


def site_weights(y, weights):
    """Return the weight of each site: that of its class, 0 where hidden; None without class weights."""
    return None if weights is None else np.where(y >= 0, weights[y], 0.0)
