"""Memory of iterations: tapes with gaps, and messages that are kept between evaluations."""

import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import fields
import methods
import numpy as np
import pytest
from engines import CountingEngine, record_tape, tape_strides
from limits import set_limit
from loss_definitions import able, calls_inference, hidden_share
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.gradients import Backprop
from skcrf.graph import Potentials, chain, from_edges, lattice, pack
from skcrf.inference import BP, INFERENCE, TRW
from skcrf.losses import LOSSES, CliqueLoss
from skcrf.optimizers import LBFGS

ITERATIVE = {name: cls for name, cls in methods.LEARNING.items() if "max_iter" in cls().get_params()}


def batch():
    """Make a batch of a lattice, which has tiles, and other graphs."""
    return pack([lattice(3, 4), chain(4), from_edges(4, [(0, 1), (1, 2), (2, 0), (2, 3)], tied=True)])


# Tapes


@pytest.fixture
def strides(monkeypatch):
    """Record the strides of all tapes."""
    return tape_strides(monkeypatch)


@pytest.mark.parametrize("max_iter", [1, 2, 3, 4, 7, 9, 10])
@pytest.mark.parametrize("name", ITERATIVE)
def test_tape_with_gaps_gives_the_same_bits(name, max_iter, seed, strides):
    rng = np.random.default_rng(seed)
    graph = batch()
    theta = fields.normal(graph, 2, rng)
    inference = ITERATIVE[name](max_iter=max_iter)
    d_mu, d_log_z = rng.normal(size=theta.unary.shape), rng.normal(size=graph.n_examples)
    whole = inference.backward(inference.forward(graph, theta, tape=True), d_mu, None, d_log_z)
    gaps = inference.backward(inference.forward(graph, theta, tape=1), d_mu, None, d_log_z)
    for expected, found in zip(whole, gaps, strict=True):
        assert_array_equal(found, expected)
    assert (min(strides), max(strides)) == (1, int(np.ceil(np.sqrt(max_iter))))


@pytest.mark.parametrize("name", ITERATIVE)
def test_threads_can_differentiate_the_same_beliefs(name, seed):
    rng = np.random.default_rng(seed)
    graph = lattice(40, 50)
    theta = fields.normal(graph, 3, rng)
    inference = ITERATIVE[name](max_iter=16)
    beliefs = inference.forward(graph, theta, tape=1)
    d_mu = rng.normal(size=(4, *theta.unary.shape))
    alone = [inference.backward(beliefs, d) for d in d_mu]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(partial(inference.backward, beliefs), d_mu))
    for expected, found in zip(alone, together, strict=True):
        for part, other in zip(expected, found, strict=True):
            assert_array_equal(part, other)


@pytest.mark.parametrize("name", ITERATIVE)
def test_tape_with_gaps_if_examples_stop_at_different_times(name, seed, strides):
    rng = np.random.default_rng(seed)
    graph = batch()
    theta = fields.normal(graph, 2, rng, strength=0.6)
    inference = ITERATIVE[name](max_iter=300, tol=1e-5)
    beliefs = [inference.forward(graph, theta, tape=tape) for tape in (True, 1)]
    assert len(set(beliefs[0].n_iter.tolist())) > 1
    d_mu = rng.normal(size=theta.unary.shape)
    for expected, found in zip(*(inference.backward(one, d_mu) for one in beliefs), strict=True):
        assert_array_equal(found, expected)
    assert max(strides) > 1


def test_tape_with_gaps_keeps_about_the_root_of_all_states():
    for n, n_kept in ((1, 1), (4, 2), (16, 4), (17, 4), (100, 10)):
        engine = CountingEngine()
        tape = record_tape(engine, n, max_bytes=1)
        assert len(tape.states) + len(tape.records) == n_kept
        engine.done.clear()
        steps = [(before.item(), after.item()) for (before, after), _ in tape.reversed()]
        assert steps == [(i, i + 1) for i in range(n - 1, -1, -1)]
        assert len(engine.done) == (n if n > 1 else 0)  # each step once
        whole = record_tape(engine, n, max_bytes=8 * n)
        assert len(whole.records) == n  # with enough memory, no step is repeated


def test_max_memory_bounds_the_memory_of_a_gradient():
    graph = lattice(60, 60)
    theta = fields.attractive(graph, 3, np.random.default_rng(0), strength=0.5)
    n_iter, one = 64, 4 * 60 * 60 * 3 * 8

    def peak(max_memory):
        inference = Backprop(max_memory=max_memory).wrap(BP(max_iter=n_iter))
        inference.backward(inference.forward(graph, theta), d_mu=np.ones_like(theta.unary))  # compiles
        tracemalloc.start()
        inference.backward(inference.forward(graph, theta), d_mu=np.ones_like(theta.unary))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(None) > n_iter * one
    assert peak(10 * one) < 26 * one  # two times the root of 64, and what the kernels need


# Edge marginals


@pytest.mark.parametrize("hidden", [0.0, 0.3])
@pytest.mark.parametrize("loss", [name for name in LOSSES if calls_inference(name) and able(name, TRW)])
def test_only_clique_losses_hold_one_table_per_edge(loss, hidden, seed):
    rng = np.random.default_rng(seed)
    graph, n_states = lattice(32, 32), 48
    hidden = hidden_share(loss, hidden)
    theta, y = fields.normal(graph, n_states, rng), fields.labels(graph, n_states, rng, hidden=hidden)
    table_per_edge = graph.n_edges * n_states**2 * 8
    evaluate = partial(LOSSES[loss](), Backprop().wrap(TRW(max_iter=2)), graph, theta, y)
    evaluate()  # with the compilation of its kernels
    tracemalloc.start()
    evaluate()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Marginals and their derivative; other arrays have one number per edge and label, not per pair.
    assert most < (2 * issubclass(LOSSES[loss], CliqueLoss) + 0.8) * table_per_edge


@pytest.mark.parametrize("hidden", [0.0, 0.4])
@pytest.mark.parametrize("loss", [name for name, cls in LOSSES.items() if issubclass(cls, CliqueLoss)])
def test_clique_losses_in_chunks_give_the_same_bits(loss, hidden, seed, monkeypatch):
    rng = np.random.default_rng(seed)
    graph = batch()
    theta, y = fields.normal(graph, 3, rng), fields.labels(graph, 3, rng, hidden=hidden)
    evaluate = partial(LOSSES[loss](), Backprop().wrap(TRW(max_iter=2)), graph, theta, y)
    value, gradient, _ = evaluate()
    set_limit(monkeypatch, "entries per chunk", 20)  # two edges
    found, found_gradient, _ = evaluate()
    assert_array_equal(found, value)
    for part, expected in zip(found_gradient, gradient, strict=True):
        assert_array_equal(part, expected)


# Messages that are kept between evaluations


def resumed(inference, graph, theta, other):
    """Infer with `theta`, starting from the messages for `other`."""
    start = inference.start_of(inference.forward(graph, other))
    return inference.forward(graph, theta, start=start)


@pytest.mark.parametrize("tol", [1e-4, 1e-8])
def test_resumed_beliefs_are_within_the_tolerance(tol, seed):
    rng = np.random.default_rng(seed)
    for graph in (lattice(5, 6), batch(), lattice(3, 3, 8)):
        theta, other = fields.attractive(graph, 2, rng), fields.attractive(graph, 2, rng)
        inference = TRW(tol=tol, max_iter=5000)
        assert inference.resumes
        cold, warm = inference.forward(graph, theta), resumed(inference, graph, theta, other)
        exact = TRW(tol=1e-12, max_iter=50_000).forward(graph, theta)
        assert warm.converged.all()
        # both are as close to the fixed point as the tolerance
        assert np.abs(warm.mu - exact.mu).max() < max(20 * tol, 2 * np.abs(cold.mu - exact.mu).max())


def test_resuming_near_the_fixed_point_takes_fewer_iterations(seed):
    rng = np.random.default_rng(seed)
    graph = lattice(12, 12)
    theta = fields.attractive(graph, 2, rng)
    near = theta._replace(unary=theta.unary + 1e-4 * rng.normal(size=theta.unary.shape))
    inference = TRW(tol=1e-6, max_iter=1000)
    cold, warm = inference.forward(graph, theta), resumed(inference, graph, theta, near)
    assert warm.n_iter[0] < 0.7 * cold.n_iter[0]


def test_gradient_after_resuming_is_that_of_the_fixed_point(seed):
    rng = np.random.default_rng(seed)
    graph = lattice(6, 6)
    theta = fields.attractive(graph, 2, rng, strength=1.5)
    inference = TRW(tol=1e-5, max_iter=5000)
    cold, exact = inference.forward(graph, theta), TRW(tol=1e-9, max_iter=5000)
    warm = inference.forward(graph, theta, start=exact.start_of(exact.forward(graph, theta)))
    assert 2 * warm.n_iter[0] < cold.n_iter[0]
    d_mu = rng.normal(size=theta.unary.shape)
    for expected, found in zip(inference.backward(cold, d_mu), inference.backward(warm, d_mu), strict=True):
        assert_allclose(found, expected, rtol=0, atol=1e-3)


def test_messages_of_any_size_can_be_kept():
    """Ratios may be larger, and probabilities smaller, than the range of single precision."""
    graph = lattice(3, 3)
    for n_states in (2, 3):
        unary = np.zeros((9, n_states))
        unary[:, 1] = 120.0
        theta = Potentials(unary, np.tile(-61.0 * (1 - np.eye(n_states)), (2, 1, 1)))
        inference = TRW(tol=1e-3, max_iter=200)
        cold, warm = inference.forward(graph, theta), resumed(inference, graph, theta, theta)
        assert_allclose(warm.mu, cold.mu, rtol=0, atol=1e-3)


def test_start_of_another_problem_is_ignored():
    inference, graph = TRW(tol=1e-6, max_iter=500), lattice(3, 3)
    theta = fields.attractive(graph, 2, np.random.default_rng(0))
    strange = inference.start_of(inference.forward(lattice(4, 3), fields.constant(lattice(4, 3), 2, None)))
    expected = inference.forward(graph, theta, start=None)
    assert_array_equal(inference.forward(graph, theta, start=strange).mu, expected.mu)


@pytest.mark.parametrize("name", INFERENCE)
def test_only_inferences_with_a_unique_fixed_point_resume(name):
    inference = methods.build(INFERENCE[name], tol=1e-6)
    assert inference.resumes == (name in {"trw", "trw_s"})
    assert not INFERENCE[name]().resumes
    assert not TRW(rho=1.0, tol=1e-6).resumes
    assert not TRW(tol=1e-2).resumes  # the result would depend on the start


def test_inference_with_a_tape_does_not_resume():
    for mode in ("auto", "fixed_point", "truncated"):
        assert Backprop(mode=mode).wrap(TRW(tol=1e-4)).resumes == (mode != "truncated")


def test_resumed_runs_converge_by_the_same_tolerance(seed):
    """They iterate beyond `tol`, but this is not required for convergence."""
    rng = np.random.default_rng(seed)
    graph = lattice(8, 8)
    theta = fields.attractive(graph, 2, rng)
    other = theta._replace(unary=theta.unary + 3e-4 * rng.normal(size=theta.unary.shape))
    inference = TRW(tol=1e-4, max_iter=5000)
    start = inference.start_of(inference.forward(graph, other))
    n_iter = [inference.forward(graph, theta, start=start).n_iter[0] - less for less in (0, 1, 2)]
    beliefs = [TRW(tol=1e-4, max_iter=int(n)).forward(graph, theta, start=start) for n in n_iter]
    assert all(one.converged.all() for one in beliefs)
    assert not TRW(tol=1e-4, max_iter=1).forward(graph, theta, start=start).converged.any()


class Probe(LBFGS):
    """L-BFGS that first passes the objective and the start to a function."""

    def __init__(self, function=None):
        super().__init__()
        self.function = function

    def minimize(self, objective, w, **options):
        self.function(objective, w)
        return super().minimize(objective, w, **options)


def probe(function, *args, **parameters):
    """Fit an estimator from zeros, and pass its objective to a function."""
    X, Y = make_binary_denoising(n_images=3, shape=(8, 8), noise=1.25, random_state=0)
    est = GridCRFClassifier(
        *args, optimizer=Probe(function), init="zeros", max_iter=2, tol=10.0, **parameters
    )
    est.fit(X, Y)


def test_objective_is_a_function_of_the_weights_while_starts_are_kept():
    rng = np.random.default_rng(0)

    def check(objective, w):
        def draw(n):
            return rng.normal(size=(n, len(w)))

        for other in draw(2**7):  # starts do not change until evaluation 256
            objective(other)
        some = draw(7)
        first = [objective(one) for one in some]
        for other in draw(64):  # as many as the objective remembers
            objective(other)
        for one, (value, gradient) in zip(some, first, strict=True):
            again = objective(one)
            assert again[0] == value
            assert_array_equal(again[1], gradient)
        assert objective.batches[0].messages

    probe(check, TRW(tol=1e-4, max_iter=500))


@pytest.mark.parametrize("loss", ["univariate_logistic", "likelihood"])
def test_fits_that_resume_reach_the_same_objective(loss):
    for seed in range(3):
        X, Y = make_binary_denoising(n_images=3, shape=(12, 12), noise=1.25, random_state=seed)
        kept, afresh = (
            GridCRFClassifier(TRW(tol=1e-5, max_iter=500), loss, gradient=Backprop(max_memory=memory))
            for memory in (None, 0)
        )
        assert kept.fit(X, Y).converged_ and afresh.fit(X, Y).converged_
        assert_allclose(kept.loss_curve_[-1], afresh.loss_curve_[-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("loss", [name for name in LOSSES if LOSSES[name]().is_smooth])
def test_fits_that_resume_reach_the_same_weights_in_fewer_iterations(loss, monkeypatch):
    X, Y = make_binary_denoising(n_images=4, shape=(24, 24), noise=1.5, random_state=0)
    counts = []
    forward = TRW.forward

    def counted(self, *args, **options):
        beliefs = forward(self, *args, **options)
        if self.max_iter > 0:  # the start needs no messages
            counts.append(int(beliefs.n_iter.sum()))
        return beliefs

    monkeypatch.setattr(TRW, "forward", counted)
    fitted = {}
    for max_memory in (None, 0):
        gradient = Backprop(max_memory=max_memory)
        est = GridCRFClassifier(TRW(tol=1e-4, max_iter=500), loss, gradient=gradient, max_iter=100)
        counts.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            est.fit(X, Y)
        # per call, since the number of calls depends on the path of the optimizer
        fitted[max_memory] = est, np.mean(counts) if LOSSES[loss].needs else len(counts)
    (warm, few), (cold, many) = fitted[None], fitted[0]
    assert few < many if LOSSES[loss].needs else few == many == 0
    assert_allclose(warm.loss_curve_[-1], cold.loss_curve_[-1], rtol=1e-4)
    assert_allclose(warm.edge_coef_, cold.edge_coef_, rtol=0, atol=0.05)


def test_losses_without_inference_keep_no_messages():
    def check(objective, w):
        objective(w)
        assert objective.inference.resumes
        assert not any(batch.messages for batch in objective.batches)

    probe(check, TRW(tol=1e-5, max_iter=200), "pseudolikelihood")


def test_kept_messages_of_all_images_fit_into_max_memory():
    size = 3 * lattice(8, 8).n_edges * 2 * 2 * 4
    for max_memory, kept in ((size, True), (size - 1, False), (None, True)):

        def check(objective, w, kept=kept):
            objective(w)
            assert bool(objective.batches[0].messages) == kept

        probe(check, TRW(tol=1e-4, max_iter=50), gradient=Backprop(max_memory=max_memory))
