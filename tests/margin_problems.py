"""Small problems for max-margin losses, and the minimum of a structured SVM by a general solver."""

import warnings
from functools import cache
from itertools import product

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from skcrf import ChainCRFClassifier
from skcrf.datasets import make_binary_denoising


@cache
def chains():
    """Make eight chains of six sites with two features, one of them constant, and their labels."""
    rng = np.random.RandomState(0)
    Y = [np.cumsum(rng.rand(6) < 0.3) % 2 for _ in range(8)]
    return [np.column_stack([y + rng.normal(scale=0.8, size=6), np.ones(6)]) for y in Y], Y


@cache
def masked_chains():
    """Make the same chains with a third of the labels hidden."""
    X, Y = chains()
    return X, [np.ma.masked_array(y, np.arange(6) % 3 == 1) for y in Y]


@cache
def images():
    """Make four noisy binary images."""
    return make_binary_denoising(n_images=4, shape=(8, 9), noise=1.5, random_state=0)


def svm(optimizer, **parameters):
    """Build a structured SVM for chains."""
    given = {"loss": "hinge", "fit_intercept": False, "alpha": 0.3, "max_iter": 60, "random_state": 0}
    return ChainCRFClassifier(optimizer=optimizer, **(given | parameters))


def quietly(est, X, Y):
    """Fit without warnings of convergence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return est.fit(X, Y)


def options(**others):
    """Return arguments of `minimize` of an optimizer that runs alone."""
    return {"callback": lambda w, value, **known: False, "rng": None} | others


class Function:
    """Objective of a function that returns value and gradient."""

    is_smooth = False
    not_convex_because = None

    def __init__(self, function):
        self.function = function

    def __call__(self, w):
        return self.function(w)

    def training_error(self, w):
        return None


def minimum_of_the_svm(X, Y, alpha, cost):
    """Minimise a structured SVM with one inequality per configuration; return minimum and objective."""
    every = np.array(list(product((0, 1), repeat=len(Y[0]))))
    pairs = every[:, :-1] * 2 + every[:, 1:]
    slopes, constants = [], []
    for x, y in zip(X, Y, strict=True):
        sums = [(every == label) @ x for label in (0, 1)]
        features = np.hstack([*sums, *((pairs == pair).sum(axis=1, keepdims=True) for pair in range(4))])
        slopes.append(features - features[(every == y).all(axis=1)])
        constants.append((every != y) @ np.asarray(cost)[y])
    n_labels, n_weights = np.size(Y), slopes[0].shape[1]

    def objective(w):
        losses = [(a @ w + b).max() for a, b in zip(slopes, constants, strict=True)]
        return np.sum(losses) / n_labels + 0.5 * alpha * (w @ w)

    A = np.block([[-a, np.repeat(np.eye(len(X))[[i]], len(a), axis=0)] for i, a in enumerate(slopes)])
    found = minimize(
        lambda z: z[n_weights:].sum() / n_labels + 0.5 * alpha * (z[:n_weights] @ z[:n_weights]),
        np.r_[np.zeros(n_weights), [b.max() for b in constants]],
        jac=lambda z: np.r_[alpha * z[:n_weights], np.full(len(X), 1 / n_labels)],
        constraints={"type": "ineq", "fun": lambda z: A @ z - np.concatenate(constants), "jac": lambda z: A},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 300},
    )
    return objective(found.x[:n_weights]), objective
