"""Small ragged images and a quick estimator for them."""

import numpy as np

from skcrf import GridCRFClassifier
from skcrf.datasets import make_potts
from skcrf.inference import TRW


def ragged_images():
    """Draw images of six sizes with three classes and two features."""
    X, Y = make_potts(n_images=6, shape=(6, 7), n_classes=3, coupling=0.8, random_state=0)
    sizes = [(6, 7), (5, 7), (6, 4), (3, 3), (1, 7), (6, 1)]
    return tuple([image[:h, :w] for image, (h, w) in zip(many, sizes, strict=True)] for many in (X, Y))


def quick(**params):
    """Make a classifier that is fitted quickly."""
    return GridCRFClassifier(**{"max_iter": 60, "tol": 1e-2, "inference": TRW(max_iter=3), **params})


def flat(P):
    """Concatenate arrays of any shapes."""
    return np.concatenate([np.ravel(p) for p in P])
