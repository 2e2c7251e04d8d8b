"""Weights of the classes, and of sites by their class."""

import numpy as np
from sklearn.utils.class_weight import compute_class_weight


def compute_class_weights(class_weight, classes, counts):
    """Compute the weight of each class.

    Parameters
    ----------
    class_weight : dict or "balanced"
        Parameter of the estimator.
    classes : ndarray of shape (n_classes,)
        Labels.
    counts : ndarray of shape (n_classes,)
        Weight of the sites that have each label.

    Returns
    -------
    weights : ndarray of shape (n_classes,)
        Weights.
    """
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
    """Return the weight of each site: that of its class, 0 where the label is hidden."""
    return np.where(y >= 0, weights[y], 0.0)
