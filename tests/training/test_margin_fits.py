"""Fits by max-margin losses and approximate gradients: optimizers, decodings, hidden variables."""

import warnings
from copy import copy
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from skcrf import ChainCRFClassifier, GraphCRFClassifier, GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.estimators._decoding import DECODINGS
from skcrf.graph import score
from skcrf.inference import BP, ICM, INFERENCE, TRWS, BruteForce, Gibbs
from skcrf.losses import LOSSES, Hinge, LatentHinge, Unified
from skcrf.optimizers import CCCP, OPTIMIZERS, FrankWolfe, Subgradient
from skcrf.optimizers.bundle import simplex_minimum
from skcrf.training.learning import Monitor, serves
from skcrf.training.objective import Objective


@pytest.fixture(scope="module")
def chains():
    rng = np.random.RandomState(0)
    Y = [np.cumsum(rng.rand(6) < 0.3) % 2 for _ in range(8)]
    return [np.column_stack([y + rng.normal(scale=0.8, size=6), np.ones(6)]) for y in Y], Y


@pytest.fixture(scope="module")
def masked(chains):
    X, Y = chains
    return X, [np.ma.masked_array(y, np.arange(6) % 3 == 1) for y in Y]


@pytest.fixture(scope="module")
def images():
    return make_binary_denoising(n_images=4, shape=(8, 9), noise=1.5, random_state=0)


def svm(optimizer, **parameters):
    given = {"loss": "hinge", "fit_intercept": False, "alpha": 0.3, "max_iter": 60, "random_state": 0}
    return ChainCRFClassifier(optimizer=optimizer, **(given | parameters))


def quietly(est, X, Y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return est.fit(X, Y)


# ------------------------------------------------------------------------------------------- optimizers


@pytest.mark.parametrize("average", [False, True])
def test_frank_wolfe_knows_how_near_it_is(chains, average):
    """The duality gap is never below the distance from the minimum, and n_jobs changes nothing."""
    est = quietly(svm(FrankWolfe(average=average), tol=1e-3), *chains)
    best = quietly(svm(FrankWolfe(), tol=1e-7), *chains)
    assert best.optimizer_.gap_ <= 1e-3
    lowest = min(best.loss_curve_) - best.optimizer_.gap_
    assert 0 <= min(est.loss_curve_) - lowest <= est.optimizer_.gap_ + best.optimizer_.gap_
    again = quietly(svm(FrankWolfe(average=average), tol=1e-3, n_jobs=2), *chains)
    assert_array_equal(again.coef_, est.coef_)


def lowest_of_the_svm(X, Y, alpha, cost):
    """The minimum of the structured SVM, by an inequality for every configuration; and the objective."""
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


@pytest.mark.parametrize("cost", [(1.0, 1.0), (0.5, 2.0)])
def test_frank_wolfe_is_held_to_another_solver(chains, cost):
    """The gap is never below the distance from the minimum that a solver of quadratic programs finds."""
    X, Y = (part[:4] for part in chains)
    lowest, objective = lowest_of_the_svm(X, Y, 0.3, cost)
    for average, max_iter in product((False, True), (1, 5, 100)):
        est = svm(FrankWolfe(average=average), class_weight=dict(enumerate(cost)), max_iter=max_iter, tol=0.0)
        value = objective(np.r_[quietly(est, X, Y).coef_.ravel(), est.edge_coef_.ravel()])
        # the best on the way, of which zeros are the start
        assert value == pytest.approx(min(objective(np.zeros(8)), *est.loss_curve_), abs=1e-12)
        assert -1e-8 <= value - lowest <= est.optimizer_.gap_ + 1e-8
    assert est.optimizer_.gap_ < 1e-3


def test_all_optimizers_of_the_svm_agree(chains):
    lowest = min(quietly(svm(FrankWolfe(), tol=1e-6), *chains).loss_curve_)
    for optimizer in (
        Subgradient(best="value"),
        Subgradient(best="value", average=True),
        CCCP(inner_iter=100),
    ):
        est = quietly(svm(optimizer, tol=1e-6, max_iter=200), *chains)
        assert lowest - 1e-3 <= min(est.loss_curve_) <= lowest + 0.01, optimizer


def test_frank_wolfe_refuses_what_is_no_svm(chains):
    for parameters, problem in (
        ({"loss": "likelihood"}, "needs loss 'hinge', got Likelihood"),
        ({"fit_intercept": True}, "needs a ridge on every weight.*take fit_intercept=False"),
        ({"alpha": 0.0}, "needs a ridge on every weight, got alpha=0.0"),
    ):
        with pytest.raises(ValueError, match=problem):
            svm("frank_wolfe", **parameters).fit(*chains)
    with pytest.raises(ValueError, match=r"Pseudolikelihood is not a difference of convex .*'latent_hinge'"):
        svm("cccp", loss="pseudolikelihood").fit(*chains)


@pytest.mark.parametrize(
    "inner", [n for n, method in OPTIMIZERS.items() if method.objectives not in ("any", "convex")]
)
def test_cccp_refuses_inner_optimizers_that_are_not_for_it(chains, inner):
    crf = ChainCRFClassifier(loss="latent_hinge", optimizer=CCCP(inner=inner))
    with pytest.raises(ValueError, match=rf"inner='{inner}' is not for any convex function: .*'lbfgs'"):
        crf.fit(*chains)


@pytest.mark.parametrize("inner", [None, "lbfgs", Subgradient(best="value")])
@pytest.mark.parametrize("loss", ["likelihood", "latent_hinge", "marginal_hinge", Unified(1.0, 1.0)])
def test_cccp_never_goes_up(masked, loss, inner):
    X, Y = masked
    est = ChainCRFClassifier(BruteForce(), loss, optimizer=CCCP(inner), alpha=0.05, tol=1e-4, init="zeros")
    est = quietly(est.set_params(max_iter=4, optimizer__inner_iter=25), X, Y)
    assert (np.diff(est.loss_curve_) <= 1e-12).all()
    assert est.loss_curve_[0] < 1.2
    assert est.score(X, Y) > 0.6


@pytest.mark.parametrize("loss", ["latent_hinge", "marginal_hinge"])
def test_cccp_has_not_converged_where_its_inner_optimizer_had_no_time(masked, loss):
    """A bundle that gathers planes stays where it is: no change then is no sign of a minimum."""
    est = ChainCRFClassifier("exact", loss, optimizer=CCCP(inner_iter=1), alpha=0.05, init="zeros", tol=1e-3)
    with pytest.warns(ConvergenceWarning, match=r"inner_iter=1 ended before .*found\): raise inner_iter"):
        short = est.fit(*masked)
    assert not short.converged_ and short.n_iter_ < est.max_iter
    higher = short.loss_curve_[-1]
    longer = quietly(est.set_params(optimizer__inner_iter=50), *masked)
    assert longer.converged_ and longer.loss_curve_[-1] < higher - 0.01


def test_cccp_of_the_likelihood_reaches_its_minimum(masked):
    X, Y = masked
    est = ChainCRFClassifier(alpha=0.1, tol=1e-6, max_iter=200, init="zeros")
    expected = est.fit(X, Y).edge_coef_
    assert_allclose(est.set_params(optimizer=CCCP(inner_iter=100)).fit(X, Y).edge_coef_, expected, atol=2e-3)


def test_fixed_steps_end_in_a_cycle_of_which_the_best_is_kept(images):
    """K05 section 7.2: the rounded gradient never vanishes; errors tell which weights to keep."""
    X, Y = images
    fixed = Subgradient(learning_rate=2.0, decay=0.0, patience=1000)
    est = GridCRFClassifier(
        "bp", "maximum_marginal", optimizer=fixed, edge_features="contrast", symmetric=True
    )
    est = quietly(est.set_params(max_iter=40, alpha=1e-4, init="zeros"), X, Y)
    errors = np.array(est.train_error_curve_)
    assert len(errors) == len(est.loss_curve_) == est.n_iter_ == 40
    assert (np.diff(errors[10:]) > 0).sum() > 3  # it goes up again and again
    assert 1 - est.score(X, Y) == pytest.approx(errors.min())
    assert_array_equal(est.edge_coef_, est.edge_coef_.transpose(0, 2, 1))
    assert est.edge_coef_.shape == (4, 2, 2) and est.edge_coef_.any()
    last = quietly(est.set_params(optimizer__best="last"), X, Y)
    assert last.train_error_curve_ == []


@pytest.mark.parametrize("average", [False, True])
def test_decaying_steps_minimise_what_is_smooth_too(average):
    target = np.array([1.0, -2.0, 0.5])

    def objective(w):
        return float((w - target) @ (w - target)), 2 * (w - target)

    optimizer = Subgradient(learning_rate=0.4, decay=0.2, average=average)
    how = {"max_iter": 500, "tol": 1e-4, "callback": lambda w, value, **known: False, "rng": None}
    result = optimizer.minimize(objective, np.zeros(3), **how)
    assert result.success
    assert_allclose(result.x, minimize(objective, np.zeros(3), jac=True).x, atol=0.05)
    assert optimizer.minimize(objective, target, **how).nit == 0
    far = Subgradient(learning_rate=1e3).minimize(objective, np.zeros(3), **how)
    assert not far.success and "learning_rate" in far.message
    assert_array_equal(far.x, 0.0)


def interrupted_twice(monitor, w, value, error=None, start=False, inner=False):
    monitor._keep(w, value, error)
    monitor.loss_curve += [] if start or inner else [value]
    if len(monitor.loss_curve) == 2:
        raise KeyboardInterrupt
    return False


def test_interrupts_do_not_forget_the_start(chains, monkeypatch):
    monkeypatch.setattr(Monitor, "__call__", interrupted_twice)
    start = quietly(svm("bundle"), *chains)
    est = svm(Subgradient(learning_rate=1e3), init=start, tol=0.0)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.fit(*chains)
    assert_array_equal(est.coef_, start.coef_)


@pytest.mark.parametrize("optimizer", [name for name, cls in OPTIMIZERS.items() if cls.objectives != "any"])
def test_interrupts_keep_the_best(chains, optimizer, monkeypatch):
    monkeypatch.setattr(Monitor, "__call__", interrupted_twice)
    est = svm(optimizer, tol=0.0)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.fit(*chains)
    assert est.n_iter_ == 2 and est.coef_.any() and not est.converged_


@pytest.mark.parametrize("n_iter, n_told", [(0, 4), (1, 10)])
@pytest.mark.parametrize("inner", [None, "subgradient"])
@pytest.mark.parametrize("loss, judged", [("likelihood", False), ("latent_hinge", True)])
def test_interrupts_inside_of_an_iteration_keep_the_best(
    masked, loss, judged, inner, n_iter, n_told, monkeypatch
):
    """By value where that is all that is known; where errors are, that of the last weights is looked at."""
    told, take_note = [], Monitor.__call__

    def interrupted(monitor, w, value, error=None, start=False, inner=False):
        stop = take_note(monitor, w, value, error, start, inner)
        told.append((np.inf if error is None else error, value, -len(told), start or inner, w.copy()))
        if len(told) == n_told:
            raise KeyboardInterrupt
        return stop

    monkeypatch.setattr(Monitor, "__call__", interrupted)
    est = ChainCRFClassifier("bruteforce", loss, optimizer=CCCP(inner, inner_iter=5), tol=0.0, init="zeros")
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.fit(*masked)
    assert est.n_iter_ == len(est.loss_curve_) == n_iter and not est.converged_
    assert len(told) == n_told + judged and told[-1][3] and (told[-1][0] < np.inf) == judged
    *_, w = min(told)
    assert_array_equal(np.r_[est.coef_.ravel(), est.intercept_, est.edge_coef_.ravel()], w)


def test_an_interrupt_while_an_iteration_is_judged_loses_nothing(masked, monkeypatch):
    """What the inner optimizer ended with is looked at, though its error was not yet known."""
    est = ChainCRFClassifier("exact", "latent_hinge", init="zeros", alpha=0.05, tol=1e-3, max_iter=1)
    whole, judge, calls = quietly(est, *masked).coef_.copy(), Objective.training_error, []

    def interrupted(objective, w):
        calls.append(w)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return judge(objective, w)

    monkeypatch.setattr(Objective, "training_error", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.fit(*masked)
    assert est.n_iter_ == 0
    assert_array_equal(est.coef_, whole)


def test_inner_iterations_are_told_but_not_counted(masked, capsys):
    est = ChainCRFClassifier(loss="latent_hinge", optimizer=CCCP(inner_iter=4), max_iter=3, tol=0.0)
    quietly(est.set_params(init="zeros", verbose=1), *masked)
    told = [line.split(":")[0].split("] ")[1] for line in capsys.readouterr().out.splitlines()]
    inner = [[f"iteration {i}, inner iteration {j}" for j in (1, 2, 3, 4)] for i in (1, 2, 3)]
    assert told == [*inner[0], "iteration 1", *inner[1], "iteration 2", *inner[2], "iteration 3"]
    assert est.n_iter_ == len(est.loss_curve_) == len(est.train_error_curve_) == 3
    quietly(est.set_params(verbose=0), *masked)
    assert capsys.readouterr().out == ""


# ------------------------------------------------------------------------------------------- estimators


@pytest.mark.parametrize("loss", [name for name, cls in LOSSES.items() if cls.graphs != "lattice"])
@pytest.mark.parametrize("name", INFERENCE)
def test_losses_learn_with_what_serves_them(chains, loss, name):
    """Also MAP solvers, which have no marginals: with them, the likelihood is K05's saddle point one."""
    X, Y = chains
    est = ChainCRFClassifier(name, loss, optimizer=Subgradient(), max_iter=15, alpha=1e-3, init="zeros")
    if not serves(INFERENCE[name], LOSSES[loss]()):
        with pytest.raises(ValueError, match=r"asked for by loss, needs an inference with .*: take one of"):
            est.fit(X, Y)
        return
    quietly(est, X, Y)
    assert est.score(X, Y) > 0.75
    assert min(est.train_error_curve_) == pytest.approx(1 - est.score(X, Y))
    for method in ("predict_proba", "predict_log_proba", "predict_edge_proba"):
        assert hasattr(est, method) == ("sum" in INFERENCE[name].tasks)


def test_probabilities_need_marginals(chains):
    est = ChainCRFClassifier("icm", "pseudolikelihood").fit(*chains)
    with pytest.raises(AttributeError) as error:
        est.predict_proba(chains[0])
    assert "ICM() does not: take one of ['bp', 'bruteforce'" in str(error.value.__cause__ or error.value)
    assert not hasattr(ChainCRFClassifier("icm"), "predict_proba")
    assert not hasattr(est.set_params(inference="bp"), "predict_proba")  # before it is fitted again
    assert est._decoding() == "map"
    with pytest.raises(ValueError, match=r"decoding='mpm' needs an inference that can sum, which ICM cannot"):
        est.set_params(decoding="mpm").predict(chains[0])


@pytest.mark.parametrize("inference", [ICM(max_sweeps=1), BP(max_iter=1, tol=1e-9)])
def test_what_did_not_converge_says_what_to_raise(images, inference):
    est = GridCRFClassifier(inference, "pseudolikelihood").fit(*images)
    own = "max_sweeps." if isinstance(inference, ICM) else "max_iter or tol or damping, or set tol=0."
    with pytest.warns(ConvergenceWarning, match=f"did not converge on every example: raise its {own}"):
        est.predict(images[0])


def test_class_weights_are_costs(chains):
    """What is dear to get wrong is predicted more often."""
    X, Y = chains
    shares = [
        np.mean(quietly(svm(Subgradient(best="value"), class_weight={0: 1.0, 1: cost}), X, Y).predict(X))
        for cost in (0.1, 1.0, 10.0)
    ]
    assert shares[0] < shares[1] < shares[2]


def test_symmetric_grids(images):
    est = GridCRFClassifier(BP(max_iter=3), edge_features="contrast", max_iter=5, tol=1e-2)
    apart = quietly(est, *images).edge_coef_.copy()
    assert np.abs(apart - apart.transpose(0, 2, 1)).max() > 1e-3
    together = quietly(est.set_params(symmetric=True), *images).edge_coef_
    assert_array_equal(together, together.transpose(0, 2, 1))
    assert np.abs(together[:2] - together[2:]).max() > 1e-3  # directions stay apart


def test_potentials_tell_what_a_prediction_is_worth(images):
    """Any inference can be asked: scores, bounds of them, standard errors, marginals given labels."""
    X, Y = images
    est = GridCRFClassifier("graph_cut", "pseudolikelihood", symmetric=True).fit(X, Y)
    fields, labels = est.potentials(list(X)), est.predict(X)
    assert len(fields) == len(X)
    gibbs = Gibbs(n_samples=50)
    for (graph, theta), x in zip(fields, labels, strict=True):
        beliefs = est.inference_.forward(graph, theta)
        assert_allclose(beliefs.log_z, score(graph, theta, x.ravel()), rtol=1e-12)
        assert_array_equal(beliefs.bound, beliefs.log_z)
        assert TRWS().forward(graph, theta, tau=0.0).bound >= beliefs.log_z
        assert (gibbs.standard_errors(gibbs.forward(graph, theta)) < 0.2).all()
    given = np.ma.masked_array(Y[0], np.arange(72).reshape(8, 9) % 2)
    (graph, theta), *_ = est.set_params(inference="bp").fit(X, Y).potentials(X[:1], [given])
    assert_array_equal(BP().forward(graph, theta).mu.reshape(8, 9, 2), est.predict_proba(X[:1], [given])[0])


def test_examples_with_equal_labels_draw_apart(chains):
    """Contrastive divergence with many sweeps is the likelihood, in the mean over examples."""
    rng = np.random.RandomState(0)
    X = rng.normal(size=(2000, 1))
    y = (rng.rand(2000) < 1 / (1 + np.exp(1.5 - X[:, 0]))).astype(int)
    steps = Subgradient(learning_rate=2.0, average=True, best="last", patience=10**6)
    loss = LOSSES["contrastive_divergence"](n_sweeps=5)
    est = quietly(ChainCRFClassifier(loss=loss, optimizer=steps, alpha=0.0, max_iter=200), X, y)
    right = ChainCRFClassifier(alpha=0.0).fit(X, y)
    assert_allclose(est.coef_[1] - est.coef_[0], right.coef_[1] - right.coef_[0], atol=0.3)
    assert_allclose(np.ptp(est.intercept_), np.ptp(right.intercept_), atol=0.3)
    X, Y = chains[0], [np.zeros(6, dtype=int)] * 8
    whole = ChainCRFClassifier(loss="contrastive_divergence", classes=[0, 1], alpha=0.0, max_iter=2)
    twice = [quietly(copy(whole).set_params(n_jobs=n), X, Y).coef_ for n in (1, 2)]
    assert_array_equal(*twice)


# ------------------------------------------------------------------------------------------- hidden variables


@pytest.fixture(scope="module")
def latent():
    """Two labelled leaves around a hidden node, whose state makes them equal or not."""
    rng = np.random.RandomState(0)
    edges, hidden = np.array([[0, 2], [1, 2]]), np.array([False, False, True])
    X, Y = [], []
    for _ in range(40):
        y = rng.randint(2)
        features = np.zeros((3, 3))
        features[[0, 1], 0] = 2 * y - 1 + rng.normal(scale=1.0, size=2)
        features[:, 1], features[2, 2] = 1 - hidden, 1
        X.append((features, edges, hidden))
        Y.append(np.ma.masked_array([y, y, 0], hidden))
    return X, Y


@pytest.mark.parametrize("loss", ["likelihood", "latent_hinge", "marginal_hinge"])
def test_hidden_variables(latent, loss):
    X, Y = latent
    est = GraphCRFClassifier("exact", loss, optimizer="subgradient", max_iter=30, random_state=0)
    quietly(est, X, Y)
    assert est.score(X, Y) > 0.8
    assert est._decoding() == LOSSES[loss]().decoding


def test_hidden_variables_are_summed_out_in_prediction(latent):
    """By hand: the labels with the largest sum over the states of the hidden node."""
    X, Y = latent
    est = quietly(GraphCRFClassifier("exact", "likelihood", max_iter=1, decoding="marginal_map"), X, Y)
    est.coef_, est.intercept_ = np.array([[-0.5, 0.0, 0.0], [0.5, 0.0, -0.4]]), np.zeros(2)
    est.edge_coef_ = np.array([[[1.5, 0.0], [0.0, 1.6]]])
    table, n_differ = est.edge_coef_[0], 0
    for x, labels in zip(X, est.predict(X), strict=True):
        unary = x[0] @ est.coef_.T
        joint = unary[0][:, None, None] + unary[1][None, :, None] + unary[2] + table[:, None] + table[None]
        summed = np.log(np.exp(joint).sum(axis=2))
        assert tuple(labels[:2]) == np.unravel_index(summed.argmax(), (2, 2))
        n_differ += np.unravel_index(joint.argmax(), (2, 2, 2))[:2] != tuple(labels[:2])
    assert n_differ > 0
    visible = [x[:2] for x in X]  # nothing is hidden: all nodes are maximised
    assert_array_equal(est.predict(visible), est.set_params(decoding="map").predict(X))


def test_hidden_variables_in_a_list(latent):
    X, Y = latent
    est = quietly(GraphCRFClassifier("exact", "marginal_hinge", optimizer="subgradient", max_iter=3), X, Y)
    assert_array_equal(est.predict([(*x[:2], x[2].tolist()) for x in X]), est.predict(X))


def test_hidden_variables_do_not_ask_who_else_is_there(latent):
    X, Y = latent
    est = quietly(GraphCRFClassifier("bp", "marginal_hinge", optimizer="subgradient", max_iter=3), X, Y)
    some = [X[0][:2], *X[1:]]
    together = est.predict(some)
    for i in (0, 1):
        assert_array_equal(together[i], est.predict(some[i : i + 1])[0])


def test_hidden_variables_that_are_refused(latent):
    X, Y = latent
    est = GraphCRFClassifier("bp")
    with pytest.raises(ValueError, match=r"y\[1\]\[2\] is a label, but X says that the node is a hidden"):
        est.fit(X, [Y[0], np.zeros(3, dtype=int), *Y[2:]])
    with pytest.raises(ValueError, match=r"X\[0\]\[2\] has shape \(2,\), expected one boolean a node"):
        est.fit([(*X[0][:2], np.array([True, False]))], Y[:1])
    with pytest.raises(TypeError, match=r"X\[0\]\[3\] is not an array of booleans"):
        est.fit([(*X[0][:2], np.ones((2, 1)), np.ones(3))], Y[:1])
    with pytest.raises(ValueError, match="Hinge takes no hidden labels"):
        est.set_params(loss="hinge").fit(X, Y)
    with pytest.raises(
        ValueError, match=r"decoding='marginal_map' needs .*sum over others, which Tree cannot"
    ):
        GraphCRFClassifier("tree", decoding="marginal_map").fit(X, Y)
    assert set(DECODINGS) == {"mpm", "map", "marginal_map"}


# ------------------------------------------------------------------------------------------- lattices


@pytest.fixture(scope="module")
def bands():
    """Images of three bands under strong noise, most labels hidden."""
    rng, truth = np.random.RandomState(0), np.repeat([0, 2, 1], 4)[None] + np.zeros((6, 1), dtype=int)
    X = [(truth + rng.normal(scale=1.2, size=truth.shape))[..., None] for _ in range(3)]
    return X, [np.ma.masked_array(truth, rng.rand(*truth.shape) < 0.6) for _ in X], truth


@pytest.mark.parametrize("loss", ["latent_hinge", "marginal_hinge"])
@pytest.mark.parametrize("inference", ["bp", "trw"])
def test_lattices_with_hidden_labels_end_no_worse_than_they_start(bands, inference, loss):
    X, Y, truth = bands
    start = quietly(GridCRFClassifier(symmetric=True, alpha=0.01, max_iter=20), X, Y)
    est = GridCRFClassifier(inference, loss, optimizer=CCCP(inner_iter=30), symmetric=True, init=start)
    est = quietly(est.set_params(alpha=0.01, max_iter=2), X, Y)
    assert min(est.loss_curve_) >= 0
    begun = copy(est)
    begun.coef_, begun.intercept_, begun.edge_coef_ = start.coef_, start.intercept_, start.edge_coef_
    assert est.score(X, Y) >= begun.score(X, Y)
    if inference == "trw":
        assert est.score(X, [truth] * 3) > 0.85


def test_bundle_does_not_stop_because_scales_differ():
    """A steep direction makes the penalty large, with which a flat one promises little."""

    def value(w):
        steep, flat = 30 * w[0] - 1, (w[1] - 1) / 30
        return abs(steep) + abs(flat), np.array([30 * np.sign(steep), np.sign(flat) / 30])

    how = {"max_iter": 200, "tol": 1e-4, "callback": lambda w, value, **known: False, "rng": None}
    assert OPTIMIZERS["bundle"]().minimize(value, np.zeros(2), **how).fun < 1e-4
    at_minimum = OPTIMIZERS["bundle"]().minimize(lambda w: (0.0, np.zeros(2)), np.ones(2), **how)
    assert at_minimum.success and at_minimum.nit == 0


@pytest.mark.parametrize("scale", [1.0, 30.0, 100.0])
def test_bundle_stops_at_the_minimum_of_what_is_badly_scaled(scale, seed):
    """Hinge losses of features of different sizes, beside the same features of one size."""
    rng, scales = np.random.default_rng(seed), np.array([scale, 1.0, 1.0, 1.0, 1 / scale])
    X = rng.normal(size=(100, 5))
    yX = np.sign(X @ rng.normal(size=5) + 0.7 * rng.normal(size=100))[:, None] * X

    def objective(w, scales=scales):  # the ridge is on weights of features of one size
        margins, v = 1 - yX @ (scales * w), scales * w
        slope = 1e-3 * v - (margins > 0) @ yX / 100
        return np.maximum(margins, 0).mean() + 0.5e-3 * (v @ v), scales * slope

    how = {"max_iter": 150, "tol": 1e-4, "callback": lambda w, value, **known: False, "rng": None}
    found = OPTIMIZERS["bundle"]().minimize(objective, np.zeros(5), **how)
    expected = OPTIMIZERS["bundle"]().minimize(lambda v: objective(v, np.ones(5)), np.zeros(5), **how)
    assert found.success and expected.success
    assert found.fun == pytest.approx(expected.fun, abs=2e-4)


@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_bundle_fits_features_of_any_size(chains, alpha):
    """Without a warning, and to the minimum that a solver of quadratic programs finds."""
    X, Y = [x * [1e3, 1e-3] for x in chains[0][:4]], chains[1][:4]
    est = svm("bundle", alpha=alpha, max_iter=200, tol=1e-4, init="zeros").fit(X, Y)
    lowest, _ = lowest_of_the_svm(X, Y, alpha, np.ones(2))
    assert est.converged_ and -1e-6 <= min(est.loss_curve_) - lowest <= 2e-4


def test_shares_of_planes_are_the_best(seed):
    """Also where slopes differ in size, depend on one another, are all the same, or zero."""
    rng = np.random.default_rng(seed)
    for n, scales in product((1, 2, 12, 50), (np.ones(4), 10.0 ** np.arange(-3, 4), np.zeros(3))):
        slopes = rng.normal(size=(n, len(scales))) * scales
        slopes[n // 2 :: 3] = slopes[0]
        linear, start = rng.exponential(size=n) * rng.choice([0.0, 1e-3, 1.0], size=n), np.ones(n)
        for penalty in (1.0, 1e-4):
            products = slopes @ slopes.T / penalty
            x = simplex_minimum(products, linear, start)
            slope = products @ x + linear
            assert x.min() >= 0 and x.sum() == pytest.approx(1.0)
            # the linear function that touches there is nowhere below by more
            assert x @ slope - slope.min() <= 1.001e-3 * (x @ slope) + 1e-9 * products.max(initial=1.0)


def test_shares_where_only_the_linear_part_counts():
    """Slopes so small that a linear system would lose that shares sum to 1."""
    assert_array_equal(simplex_minimum(np.array([[1e-16]]), np.array([1.0]), np.ones(1)), [1.0])
    products = 1e-16 * np.array([[1.0, 0.5], [0.5, 1.0]])
    assert_array_equal(simplex_minimum(products, np.array([1.0, 3.0]), np.ones(2)), [1.0, 0.0])


def test_cccp_stops_when_nothing_gets_better():
    """Values that wander, as those of an inference that is not exact: not for max_iter iterations."""
    values = iter(np.tile([1.0, 0.9, 1.1, 0.95], 100))

    class Wandering:
        smooth, batches = True, []

        def __call__(self, w, *batches):
            return next(values), np.zeros(1)

        def split(self):
            return Still(), Still()

    class Still(Wandering):
        def __call__(self, w, *batches):
            return 0.0, np.zeros(1)

    how = {"max_iter": 50, "tol": 1e-4, "callback": lambda w, value, **known: False, "rng": None}
    for patience in (3, 5):
        found = CCCP(patience=patience).minimize(Wandering(), np.zeros(1), **how)
        assert found.success and found.nit == 1 + patience
        assert found.fun == 0.9  # the lowest
        assert f"in {patience} iterations" in found.message
        values = iter(np.tile([1.0, 0.9, 1.1, 0.95], 100))


def test_what_has_kinks_is_told_of_optimizers_for_it(chains):
    with pytest.warns(ConvergenceWarning, match=r"LBFGS did not .*take optimizer 'auto' for a loss of kinks"):
        svm("lbfgs", max_iter=2).fit(*chains)


def test_refusals_come_before_a_start_is_fitted(chains, monkeypatch):
    monkeypatch.setattr(Monitor, "minimise", lambda *given: pytest.fail("a start was fitted"))
    for optimizer, parameters, problem in (
        ("frank_wolfe", {"fit_intercept": True}, "needs a ridge"),
        ("cccp", {"loss": "pseudolikelihood"}, "is not a difference"),
        (CCCP(inner="frank_wolfe"), {}, "is not for any convex function"),
    ):
        with pytest.raises(ValueError, match=problem):
            svm(optimizer, **parameters).fit(*chains)
    X, Y = chains
    hidden = [*Y[:3], np.ma.masked_array(Y[3], np.arange(6) < 2), *Y[4:]]
    with pytest.raises(ValueError, match=r"Hinge takes no hidden labels, but 2 of 6 labels of example 3 are"):
        svm("bundle").fit(X, hidden)
    for cost, problem in (
        (np.ones((3, 3)), r"cost has shape \(3, 3\), expected \(2, 2\)"),
        ([[0, -1], [1, 0]], "cost must be at least 0"),
        (np.ones((2, 2)), "and 0 on its diagonal"),
        (np.ones(2), r"cost has shape \(2,\), expected \(2, 2\): a row for each right label"),
        ([[0, 1e308], [1, 0]], r"cost has an entry of 1e\+308, expected at most 1e\+12"),
        (1e200, r"cost has an entry of 1e\+200"),
        ([[0, "a"], [1, 0]], "cost is no table of numbers, expected"),
    ):
        for loss in (Hinge(cost), LatentHinge(cost), Unified(0.3, 0.3, cost)):
            with pytest.raises(ValueError, match=problem):
                svm("subgradient", loss=loss, init="independent").fit(X, Y)
    long = [np.tile(x, (3, 1)) for x in X], [np.ma.concatenate([y] * 3) for y in hidden]
    mllr = svm("subgradient", loss=Unified.mllr(), inference="tree", init="independent")
    with pytest.raises(ValueError, match=r"eps_y=1.0 and eps_h=0.0 .* 12 labels of 3 states in example 3"):
        mllr.set_params(classes=[0, 1, 2]).fit(*long)


def test_bundle_believes_planes_more_than_values_that_are_too_low():
    """An evaluation that misses the highest of some planes finds it elsewhere."""
    slopes, heights = np.array([[1.0, 0.5], [-1.0, 0.5], [0.0, -2.0]]), np.array([0.0, 0.2, 0.1])

    def value(w, missed=()):
        planes = slopes @ w + heights
        best = max(set(range(3)) - set(missed), key=planes.__getitem__)
        return planes[best], slopes[best]

    def careless(w):
        return value(w, missed=(2,) if w[1] > -0.5 else ())

    how = {"max_iter": 100, "tol": 1e-6, "callback": lambda w, value, **known: False, "rng": None}
    expected = OPTIMIZERS["bundle"]().minimize(value, np.ones(2), **how)
    found = OPTIMIZERS["bundle"](memory=3).minimize(careless, np.ones(2), **how)
    assert expected.success and expected.fun == pytest.approx(0.1, abs=1e-5)
    assert found.success and found.fun == pytest.approx(0.1, abs=1e-5)
    assert_allclose(found.x, expected.x, atol=1e-4)
