"""Subgradient method."""

import numpy as np
import pytest
from margin_problems import Function, images, options, quietly
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from skcrf import GridCRFClassifier
from skcrf.optimizers import Subgradient


def test_fixed_steps_end_in_a_cycle_whose_best_weights_are_kept():
    """K05 section 7.2: the gradient never vanishes; weights are kept by their training error."""
    X, Y = images()
    fixed = Subgradient(learning_rate=2.0, decay=0.0, patience=1000)
    est = GridCRFClassifier(
        "bp", "maximum_marginal", optimizer=fixed, edge_features="contrast", symmetric=True
    )
    est = quietly(est.set_params(max_iter=40, alpha=1e-4, init="zeros"), X, Y)
    errors = np.array(est.train_error_curve_)
    assert len(errors) == len(est.loss_curve_) == est.n_iter_ == 40
    assert (np.diff(errors[10:]) > 0).sum() > 3  # it increases again and again
    assert 1 - est.score(X, Y) == pytest.approx(errors.min())
    assert_array_equal(est.edge_coef_, est.edge_coef_.transpose(0, 2, 1))
    assert est.edge_coef_.shape == (4, 2, 2) and est.edge_coef_.any()
    last = quietly(est.set_params(optimizer__best="last"), X, Y)
    assert last.train_error_curve_ == []


@pytest.mark.parametrize("average", [False, True])
def test_decreasing_steps_minimise_smooth_functions(average):
    target = np.array([1.0, -2.0, 0.5])

    @Function
    def objective(w):
        return float((w - target) @ (w - target)), 2 * (w - target)

    optimizer, how = (
        Subgradient(learning_rate=0.4, decay=0.2, average=average),
        {"max_iter": 500, "tol": 1e-4},
    )
    result = optimizer.minimize(objective, np.zeros(3), **options(**how))
    assert result.success
    assert_allclose(result.x, minimize(objective, np.zeros(3), jac=True).x, atol=0.05)
    assert optimizer.minimize(objective, target, **options(**how)).nit == 0
    far = Subgradient(learning_rate=1e3).minimize(objective, np.zeros(3), **options(**how))
    assert not far.success and "learning_rate" in far.message
    assert_array_equal(far.x, 0.0)
