"""Every loss with every inference and every gradient strategy that supports it."""

import fields
import methods
import numpy as np
import pytest
import reference
from derivatives import assert_gradient, numerical_gradient
from loss_definitions import cases, hidden_share
from numpy.testing import assert_allclose, assert_array_equal
from strategies import FIXED_POINT, STRATEGIES, assert_agree, draw, loss_of, wrapped

from skcrf.gradients import GRADIENTS, Backprop, Perturbation
from skcrf.graph import pack
from skcrf.inference import BP, INFERENCE, TRW

#: Two-sided differences are accurate to eps^(2/3) times the largest derivative of the loss, the reciprocal of
#: a probability above 1e-3: about 1e-8.
ACCURACY = {"perturbation": {"rtol": 1e-6, "atol": 1e-7}}
EXACT = {"rtol": 1e-6, "atol": 1e-8}


def test_every_registered_strategy_is_tested():
    assert {type(strategy) for strategy in STRATEGIES.values()} == set(GRADIENTS.values())


def some(*titles):
    return {title: fields.GRAPHS[title] for title in titles}


# Supported inferences


@pytest.mark.parametrize("inference", INFERENCE)
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("tol", [0.0, 1e-6])
def test_unsupported_inferences_raise_an_error(name, inference, tol):
    inference = methods.build(INFERENCE[inference], tol=tol)
    if methods.supports(STRATEGIES[name], inference):
        assert STRATEGIES[name].wrap(inference).inference_ is inference
    else:
        who = rf"{type(STRATEGIES[name]).__name__}, got {type(inference).__name__}"
        with pytest.raises(ValueError, match=rf"must (converge|have a curvature) for {who}.*'backprop'"):
            STRATEGIES[name].wrap(inference)


def test_strategies_support_all_converged_inferences():
    """Implicit differentiation supports those with a curvature."""
    for cls in INFERENCE.values():
        inference = methods.build(cls, tol=1e-6)
        names = set(wrapped(inference))
        assert names >= {"backprop", "perturbation", "perturbation_4"}
        assert ("implicit" in names) == inference.has_curvature
    assert sum(cls().has_curvature for cls in INFERENCE.values()) >= 4


def test_curvature_of_inferences_without_one_raises_an_error():
    inference = INFERENCE["bruteforce"]()
    with pytest.raises(NotImplementedError, match="BruteForce"):
        inference.curvature(None, None, None)


# Every loss, every inference, every strategy


@pytest.mark.parametrize("loss, cls, graph", cases("cycle_tied", "lattice_2x2"))
def test_gradient_of_every_loss(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 2, rng, strength=0.4)
    y = fields.labels(graph, 2, rng, hidden=hidden_share(loss, 0.3))
    inference = methods.build(cls, **FIXED_POINT)
    plain = Backprop().wrap(inference)

    def value(g, t):
        return loss_of(loss)(plain, g, t, np.resize(y, g.n_nodes))[0]

    expected = numerical_gradient(value, graph, theta)
    for name, strategy in wrapped(inference).items():
        with methods.case(name):
            _, gradient, converged = loss_of(loss)(strategy, graph, theta, y)
            assert converged.all()
            assert_gradient(gradient, expected, **ACCURACY.get(name, EXACT))


@pytest.mark.parametrize("potentials", ["normal", "forbidden"])
@pytest.mark.parametrize("loss, cls, graph", cases("mixed", "lattices_untied", "parallel"))
def test_strategies_agree(loss, cls, graph, potentials, seed):
    rng = np.random.default_rng(seed)
    if potentials == "forbidden":
        # Mean field, the second inference of `em`, may not avoid forbidden pairs.
        make = fields.forbidden if cls.exact_on and loss != "em" else fields.forbidden_unary
    else:
        make = fields.normal
    theta = make(graph, 3, rng, strength=0.4)
    y = fields.possible_labels(graph, theta, rng, hidden=hidden_share(loss, 0.4))
    inference = methods.build(cls, **FIXED_POINT)
    found = {name: loss_of(loss)(strategy, graph, theta, y) for name, strategy in wrapped(inference).items()}
    value, expected, converged = found.pop("backprop")
    assert converged.all()
    for name, (other_value, gradient, other_converged) in found.items():
        assert_array_equal(other_value, value, err_msg=name)
        assert_array_equal(other_converged, converged)
        assert_agree(gradient, expected, err_msg=name)


@pytest.mark.parametrize("cls, graph", methods.with_graphs(methods.LEARNING, fields.EVERY))
def test_strategies_agree_on_every_graph(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta, given = fields.normal(graph, 2, rng, strength=0.4), draw(graph, 2, rng)
    answers = {}
    for name, inference in wrapped(methods.build(cls, **FIXED_POINT)).items():
        beliefs = inference.forward(graph, theta, edges=True)
        assert beliefs.converged.all()
        answers[name] = inference, beliefs
    for kind in (("d_mu",), ("d_edge_mu",), ("d_mu", "d_log_z")):
        chosen = {name: given[name] for name in kind}
        found = {
            name: inference.backward(beliefs, **chosen) for name, (inference, beliefs) in answers.items()
        }
        expected = found.pop("backprop")
        for name, gradient in found.items():
            assert_agree(gradient, expected, err_msg=f"{name}, {kind}")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "cls, graph",
    methods.with_graphs(methods.LEARNING, some("isolated", "chains", "equal_lattices", "mixed")),
)
def test_batch_equals_its_examples_bit_for_bit(cls, graph, strategy, seed):
    """Also if examples did not converge."""
    rng = np.random.default_rng(seed)
    theta, given = fields.normal(graph, 2, rng), draw(graph, 2, rng)
    for parameters in ({"max_iter": 50, "tol": 1e-4}, {"max_iter": 3, "tol": 1e-4}):
        inference = methods.build(cls, **parameters)
        if not methods.supports(STRATEGIES[strategy], inference):
            continue
        inference = STRATEGIES[strategy].wrap(inference)
        whole = inference.backward(inference.forward(graph, theta, edges=True), **given)
        for e, (one, potentials) in enumerate(fields.split(graph, theta)):
            own = {
                "d_mu": given["d_mu"][graph.node_example == e],
                "d_edge_mu": given["d_edge_mu"][graph.edge_example == e],
                "d_log_z": given["d_log_z"][e : e + 1],
            }
            alone = inference.backward(inference.forward(one, potentials, edges=True), **own)
            assert_array_equal(alone.unary, whole.unary[graph.node_example == e])
            assert_array_equal(alone.tables, whole.tables[graph.table_example == e])


@pytest.mark.parametrize("cls, graph", methods.with_graphs(methods.LEARNING, fields.FEW))
def test_backward_changes_no_argument(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta, given = fields.normal(graph, 2, rng, strength=0.4), draw(graph, 2, rng)
    before = {name: array.copy() for name, array in given.items()}
    for inference in wrapped(methods.build(cls, max_iter=100, tol=1e-6)).values():
        beliefs = inference.forward(graph, theta, edges=True)
        mu = beliefs.mu.copy()
        first, second = (inference.backward(beliefs, **given) for _ in range(2))
        for one, other in zip(first, second, strict=True):
            assert_array_equal(one, other)
        assert_array_equal(beliefs.mu, mu)
        for name, array in given.items():
            assert_array_equal(array, before[name])
        for part in inference.backward(beliefs):
            assert not part.any()


@pytest.mark.parametrize("name", STRATEGIES)
def test_maxima_are_differentiated_by_the_inference(name, seed):
    rng = np.random.default_rng(seed)
    theta, given = fields.normal(graph := fields.GRAPHS["mixed"], 3, rng), draw(graph, 3, rng)
    plain, inference = BP(tol=1e-6, max_iter=50), STRATEGIES[name].wrap(BP(tol=1e-6, max_iter=50))
    found = inference.backward(inference.forward(graph, theta, tau=0.0), **given)
    expected = plain.backward(plain.forward(graph, theta, tau=0.0), **given)
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("name", STRATEGIES)
def test_derivatives_of_edge_marginals_need_edges(name, seed):
    rng = np.random.default_rng(seed)
    theta, given = fields.normal(graph := fields.SINGLES["cycle"], 2, rng), draw(graph, 2, rng)
    inference = STRATEGIES[name].wrap(TRW(tol=1e-6, max_iter=500))
    beliefs = inference.forward(graph, theta)
    assert beliefs.edge_mu is None
    assert np.isfinite(inference.backward(beliefs, d_mu=given["d_mu"]).tables).all()
    if isinstance(inference, Perturbation):
        with pytest.raises(RuntimeError, match="edges=True"):
            inference.backward(beliefs, d_edge_mu=given["d_edge_mu"])


@pytest.mark.parametrize("cls", [cls for cls in methods.LEARNING.values() if "tol" in cls().get_params()])
def test_cliques_are_independent_without_convergence(cls, seed):
    rng = np.random.default_rng(seed)
    graph = pack([fields.SINGLES["pair"], fields.SINGLES["lattice_2x3"]])
    theta, given = fields.attractive(graph, 2, rng, strength=3.0), draw(graph, 2, rng)
    found = {}
    for name, inference in wrapped(cls(max_iter=3, tol=1e-13)).items():
        if name != "backprop":
            beliefs = inference.forward(graph, theta, edges=True)
            assert not beliefs.converged[1]
            found[name] = inference.backward(beliefs, given["d_mu"], given["d_edge_mu"])
    own = graph.node_example == 1
    mean = (beliefs.mu * given["d_mu"]).sum(axis=1, keepdims=True)
    expected = (beliefs.mu * (given["d_mu"] - mean))[own]
    for gradient in found.values():
        assert_allclose(gradient.unary[own], expected, rtol=1e-12, atol=1e-14)
        assert np.abs(gradient.tables).max() < np.abs(given["d_edge_mu"]).sum()


def test_strategies_agree_for_exact_inference_on_forests(seed):
    rng = np.random.default_rng(seed)
    graph = fields.GRAPHS["packed_twice"]
    theta, given = fields.normal(graph, 3, rng), draw(graph, 3, rng)
    found = {}
    for name, inference in wrapped(INFERENCE["tree"]()).items():
        beliefs = inference.forward(graph, theta, edges=True)
        assert_allclose(beliefs.mu, reference.marginals(graph, theta)[0], rtol=0, atol=1e-12)
        found[name] = inference.backward(beliefs, **given)
    for name, gradient in found.items():
        assert_agree(gradient, found["backprop"], err_msg=name)
