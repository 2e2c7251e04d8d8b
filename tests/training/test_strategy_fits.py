"""Fits with every gradient strategy, and the memory of their gradients."""

import tracemalloc

import fields
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from strategies import STRATEGIES

from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.gradients import GRADIENTS, Backprop, Implicit, Perturbation
from skcrf.graph import lattice
from skcrf.inference import BP, INFERENCE, TRW, MeanField

# Memory


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("cls", [BP, TRW, MeanField])
def test_memory_does_not_grow_with_iterations(cls, name):
    """No tape is kept at a fixed point; with a tape, memory grows."""
    graph = lattice(40, 40)
    theta = fields.attractive(graph, 3, np.random.default_rng(0), strength=0.5)
    d_mu = np.ones_like(theta.unary) * [1.0, 2.0, 3.0]

    def peak(strategy, tol):
        inference = strategy.wrap(cls(tol=tol, max_iter=2000))
        inference.backward(inference.forward(graph, theta), d_mu=d_mu)  # compiles
        tracemalloc.start()
        beliefs = inference.forward(graph, theta)
        inference.backward(beliefs, d_mu=d_mu)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most, int(beliefs.n_iter[0])

    (few, n_few), (many, n_many) = (peak(STRATEGIES[name], tol) for tol in (1e-1, 1e-12))
    assert n_many > 3 * n_few
    assert many < 1.1 * few
    (few, _), (many, _) = (peak(Backprop(mode="truncated"), tol) for tol in (1e-1, 1e-12))
    assert many > few + 0.9 * (n_many - n_few) * theta.unary.nbytes


# Fits


@pytest.mark.parametrize("name", ["trw", "mean_field"])
@pytest.mark.parametrize("loss", ["univariate_logistic", "clique_logistic"])
def test_fits_with_all_strategies_reach_the_same_weights(loss, name):
    X, Y = make_binary_denoising(n_images=4, shape=(10, 10), noise=1.5, random_state=0)
    inference = INFERENCE[name](tol=1e-10, max_iter=2000)
    fitted = {
        gradient: GridCRFClassifier(inference, loss, gradient=gradient, alpha=0.1, tol=1e-5).fit(X, Y)
        for gradient in GRADIENTS
    }
    expected = fitted["backprop"]
    for gradient, est in fitted.items():
        assert_allclose(est.coef_, expected.coef_, rtol=0, atol=1e-3, err_msg=gradient)
        assert_allclose(est.edge_coef_, expected.edge_coef_, rtol=0, atol=1e-3, err_msg=gradient)
        assert_allclose(est.loss_curve_[-1], expected.loss_curve_[-1], rtol=1e-7)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few iterations suffice
def test_em_by_name_with_hidden_labels_and_every_strategy():
    """The mean field of EM converges if the inference does, as these strategies require."""
    X, Y = make_binary_denoising(n_images=4, shape=(8, 8), noise=1.5, random_state=0)
    Y = np.ma.masked_array(Y, mask=np.random.default_rng(0).random(Y.shape) < 0.3)
    inference = TRW(tol=1e-6, max_iter=500)
    curves = {
        gradient: GridCRFClassifier(inference, "em", gradient=gradient, max_iter=5).fit(X, Y).loss_curve_
        for gradient in GRADIENTS
    }
    for gradient, curve in curves.items():
        assert_allclose(curve, curves["backprop"], rtol=1e-4, err_msg=gradient)
        assert curve[-1] < curve[0]


def test_parameters_of_strategies_can_be_set_by_name():
    X, Y = make_binary_denoising(n_images=2, shape=(6, 6), random_state=0)
    est = GridCRFClassifier(TRW(tol=1e-4, max_iter=200), gradient=Perturbation(), max_iter=2, tol=10.0)
    est.set_params(gradient__sides=4, gradient__multiplier=3.0).fit(X, Y)
    assert (est.gradient_.sides, est.gradient_.multiplier) == (4, 3.0)
    est = clone(est).set_params(gradient=Implicit(), gradient__solver="direct").fit(X, Y)
    assert est.gradient_.solver == "direct"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few iterations suffice
def test_two_threads_give_the_same_bits():
    X, Y = make_binary_denoising(n_images=4, shape=(10, 10), random_state=0)
    for gradient in (Perturbation(), Implicit(), Implicit(solver="direct")):
        est = GridCRFClassifier(TRW(tol=1e-5, max_iter=200), gradient=gradient, max_iter=3, tol=1e-3)
        one, two = (clone(est).set_params(n_jobs=n_jobs).fit(X, Y) for n_jobs in (1, 2))
        assert_array_equal(one.edge_coef_, two.edge_coef_)
