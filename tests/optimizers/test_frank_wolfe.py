"""Block-coordinate Frank-Wolfe method."""

from itertools import product

import numpy as np
import pytest
from margin_problems import chains, minimum_of_the_svm, quietly, svm
from numpy.testing import assert_array_equal

from skcrf.optimizers import CCCP, FrankWolfe, Subgradient


@pytest.mark.parametrize("average", [False, True])
def test_duality_gap_bounds_the_distance_to_the_minimum(average):
    """Results do not depend on the number of jobs."""
    est = quietly(svm(FrankWolfe(average=average), tol=1e-3), *chains())
    best = quietly(svm(FrankWolfe(), tol=1e-7), *chains())
    assert best.optimizer_.gap_ <= 1e-3
    lowest = min(best.loss_curve_) - best.optimizer_.gap_
    assert 0 <= min(est.loss_curve_) - lowest <= est.optimizer_.gap_ + best.optimizer_.gap_
    again = quietly(svm(FrankWolfe(average=average), tol=1e-3, n_jobs=2), *chains())
    assert_array_equal(again.coef_, est.coef_)


@pytest.mark.parametrize("cost", [(1.0, 1.0), (0.5, 2.0)])
def test_duality_gap_bounds_the_distance_to_the_minimum_of_another_solver(cost):
    X, Y = (part[:4] for part in chains())
    lowest, objective = minimum_of_the_svm(X, Y, 0.3, cost)
    for average, max_iter in product((False, True), (1, 5, 100)):
        est = svm(FrankWolfe(average=average), class_weight=dict(enumerate(cost)), max_iter=max_iter, tol=0.0)
        value = objective(np.r_[quietly(est, X, Y).coef_.ravel(), est.edge_coef_.ravel()])
        # the best of all iterations and the start, which is zero
        assert value == pytest.approx(min(objective(np.zeros(8)), *est.loss_curve_), abs=1e-12)
        assert -1e-8 <= value - lowest <= est.optimizer_.gap_ + 1e-8
    assert est.optimizer_.gap_ < 1e-3


def test_all_optimizers_of_the_svm_agree():
    lowest = min(quietly(svm(FrankWolfe(), tol=1e-6), *chains()).loss_curve_)
    for optimizer in (
        Subgradient(best="value"),
        Subgradient(best="value", average=True),
        CCCP(inner_iter=100),
    ):
        est = quietly(svm(optimizer, tol=1e-6, max_iter=200), *chains())
        assert lowest - 1e-3 <= min(est.loss_curve_) <= lowest + 0.01, optimizer


@pytest.mark.parametrize(
    "parameters, problem",
    [
        ({"loss": "likelihood"}, "FrankWolfe needs a structured SVM, got a smooth objective"),
        ({"loss": "maximum_marginal"}, "FrankWolfe needs a convex objective, .* MaximumMarginal is not"),
        ({"fit_intercept": True}, "fit_intercept False for FrankWolfe, .*none on 2 of 10 weights"),
        ({"alpha": 0.0}, "alpha must be above 0 .* FrankWolfe, .*none on 10 of 10 weights"),
    ],
)
def test_other_objectives_raise_an_error(parameters, problem):
    with pytest.raises(ValueError, match=problem):
        svm("frank_wolfe", **parameters).fit(*chains())
