"""Concave-convex procedure."""

import numpy as np
import pytest
from margin_problems import chains, masked_chains, options, quietly, svm
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from skcrf import ChainCRFClassifier
from skcrf.inference import BruteForce
from skcrf.losses import Unified
from skcrf.optimizers import CCCP, OPTIMIZERS, Subgradient


def test_loss_that_is_no_difference_raises_an_error():
    with pytest.raises(
        ValueError, match=r"difference of convex .*, got Pseudolikelihood\. Use one of .*'latent_hinge'"
    ):
        svm("cccp", loss="pseudolikelihood").fit(*chains())


@pytest.mark.parametrize(
    "inner", [n for n, method in OPTIMIZERS.items() if method.objectives not in ("any", "convex")]
)
def test_unsupported_inner_optimizers_raise_an_error(inner):
    crf = ChainCRFClassifier(loss="latent_hinge", optimizer=CCCP(inner=inner))
    with pytest.raises(ValueError, match=rf"inner must be .* convex objectives, got '{inner}'.*'lbfgs'"):
        crf.fit(*chains())


@pytest.mark.parametrize("inner", [None, "lbfgs", Subgradient(best="value")])
@pytest.mark.parametrize("loss", ["likelihood", "latent_hinge", "marginal_hinge", Unified(1.0, 1.0)])
def test_cccp_never_increases_the_objective(loss, inner):
    X, Y = masked_chains()
    est = ChainCRFClassifier(BruteForce(), loss, optimizer=CCCP(inner), alpha=0.05, tol=1e-4, init="zeros")
    est = quietly(est.set_params(max_iter=4, optimizer__inner_iter=25), X, Y)
    assert (np.diff(est.loss_curve_) <= 1e-12).all()
    assert est.loss_curve_[0] < 1.2
    assert est.score(X, Y) > 0.6


@pytest.mark.parametrize("loss", ["latent_hinge", "marginal_hinge"])
def test_cccp_has_not_converged_if_inner_iterations_are_too_few(loss):
    """A bundle that gathers planes does not move; then no change is no sign of a minimum."""
    est = ChainCRFClassifier("exact", loss, optimizer=CCCP(inner_iter=1), alpha=0.05, init="zeros", tol=1e-3)
    with pytest.warns(ConvergenceWarning, match=r"found in inner_iter=1 iterations\)\. Increase inner_iter"):
        short = est.fit(*masked_chains())
    assert not short.converged_ and short.n_iter_ < est.max_iter
    higher = short.loss_curve_[-1]
    longer = quietly(est.set_params(optimizer__inner_iter=50), *masked_chains())
    assert longer.converged_ and longer.loss_curve_[-1] < higher - 0.01


def test_cccp_reaches_the_minimum_of_the_likelihood():
    X, Y = masked_chains()
    est = ChainCRFClassifier(alpha=0.1, tol=1e-6, max_iter=200, init="zeros")
    expected = est.fit(X, Y).edge_coef_
    assert_allclose(est.set_params(optimizer=CCCP(inner_iter=100)).fit(X, Y).edge_coef_, expected, atol=2e-3)


def test_inner_iterations_are_printed_but_not_counted(capsys):
    est = ChainCRFClassifier(loss="latent_hinge", optimizer=CCCP(inner_iter=4), max_iter=3, tol=0.0)
    quietly(est.set_params(init="zeros", verbose=1), *masked_chains())
    printed = [line.split(":")[0].split("] ")[1] for line in capsys.readouterr().out.splitlines()]
    inner = [[f"iteration {i}, inner iteration {j}" for j in (1, 2, 3, 4)] for i in (1, 2, 3)]
    assert printed == [*inner[0], "iteration 1", *inner[1], "iteration 2", *inner[2], "iteration 3"]
    assert est.n_iter_ == len(est.loss_curve_) == len(est.train_error_curve_) == 3
    quietly(est.set_params(verbose=0), *masked_chains())
    assert capsys.readouterr().out == ""


def test_cccp_stops_without_improvement():
    """Values that vary, as those of an approximate inference, do not take max_iter iterations."""
    values = iter(np.tile([1.0, 0.9, 1.1, 0.95], 100))

    class Wandering:
        is_smooth, batches = True, []

        def __call__(self, w, *batches):
            return next(values), np.zeros(1)

        def split(self):
            return Still(), Still()

    class Still(Wandering):
        def __call__(self, w, *batches):
            return 0.0, np.zeros(1)

    for patience in (3, 5):
        how = options(max_iter=50, tol=1e-4)
        found = CCCP(patience=patience).minimize(Wandering(), np.zeros(1), **how)
        assert found.success and found.nit == 1 + patience
        assert found.fun == 0.9  # the lowest
        assert f"in {patience} iterations" in found.message
        values = iter(np.tile([1.0, 0.9, 1.1, 0.95], 100))
