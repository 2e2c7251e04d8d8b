"""Inferences wrapped by every gradient strategy, in every mode."""

from itertools import product

import fields
import methods
import numpy as np
import pytest
from derivatives import check_backward, draw_cotangent, maker
from numba import config
from numpy.testing import assert_array_equal

from skcrf.gradients import GRADIENTS, Backprop, Implicit
from skcrf.graph import pack, select
from skcrf.inference import INFERENCE, TRW

ITERATIVE = {name: cls for name, cls in methods.LEARNING.items() if "max_iter" in cls().get_params()}
FIXED_POINT = {"max_iter": 3000, "tol": 1e-13}


def some(*titles):
    return {title: fields.ALL[title] for title in titles}


def strategies(*titles):
    """List every strategy in every mode with every inference and graph that it supports."""
    truncated, fixed_point, listed = {"max_iter": 2}, FIXED_POINT, []
    for name, cls in GRADIENTS.items():
        modes = [("auto", truncated), ("auto", fixed_point)]
        if "mode" in cls().get_params():
            modes += [("truncated", truncated), ("truncated", fixed_point), ("fixed_point", fixed_point)]
        for (mode, parameters), case in product(modes, methods.with_graphs(methods.LEARNING, some(*titles))):
            layout = case.values[1].layout
            if methods.supports(cls, methods.build(case.values[0], **parameters), layout):
                stops = "truncated" if parameters is truncated else "converged"
                title = f"{name}-{mode}-{stops}-{case.id}"
                strategy = methods.build(cls, mode=mode, tol=1e-10)
                listed.append(pytest.param(*case.values, strategy, parameters, id=title))
    return listed


@pytest.mark.parametrize(
    "cls, graph, strategy, parameters",
    strategies("cycle_tied", "overlap")
    if config.DISABLE_JIT
    else strategies("lonely", "cycle_tied", "small", "everything"),
)
def test_gradient_of_every_strategy(cls, graph, strategy, parameters, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 2, rng, strength=0.4)
    cotangent = draw_cotangent(graph, 2, rng)
    # no tape is requested: the strategy knows whether it needs one
    check_backward(
        maker(cls, **parameters), graph, theta, cotangent, tape=False, wrap=strategy.wrap, atol=1e-8
    )


@pytest.mark.parametrize("name", ITERATIVE)
def test_adjoint_of_truncated_inference_raises_an_error(name):
    with pytest.raises(ValueError, match=rf"fixed_point.*{ITERATIVE[name].__name__}.*tol"):
        GRADIENTS["backprop"](mode="fixed_point").wrap(ITERATIVE[name](tol=0.0))


@pytest.mark.parametrize("name", GRADIENTS)
def test_strategies_with_unsupported_layouts_raise_an_error(name):
    graph = fields.FACTORS["triple"]
    wrapped = GRADIENTS[name]().wrap(INFERENCE["trw"](max_iter=200, tol=1e-6))
    if "factor" in GRADIENTS[name].layouts:
        assert wrapped.forward(graph, fields.constant(graph, None, None)).converged.all()
    else:
        with pytest.raises(
            ValueError,
            match=f"layout 'pairwise' for {GRADIENTS[name].__name__}, got 'factor'.*Use one of .*'backprop'",
        ):
            wrapped.forward(graph, fields.constant(graph, None, None))


@pytest.mark.parametrize("cls, graph, strategy, parameters", strategies("lonely", "lattice_2x2"))
def test_strategies_have_the_beliefs_and_claims_of_the_inference(cls, graph, strategy, parameters, seed):
    theta = fields.normal(graph, 2, np.random.default_rng(seed))
    inference = methods.build(cls, **parameters)
    wrapped = strategy.wrap(inference)
    assert (wrapped.tasks, wrapped.exact_on, wrapped.bound) == (cls.tasks, cls.exact_on, cls.bound)
    assert (wrapped.reads_edges, wrapped.has_curvature) == (inference.reads_edges, inference.has_curvature)
    assert wrapped.layouts == strategy.layouts & inference.layouts
    assert strategy.tasks == frozenset()  # before it wraps an inference
    for tau in (1.0, 0.0) if "max" in cls.tasks else (1.0,):
        plain = inference.forward(graph, theta, tau=tau, edges=True)
        other = wrapped.forward(graph, theta, tau=tau, edges=True)
        for field in ("mu", "edge_mu", "log_z", "n_iter", "converged"):
            assert_array_equal(getattr(other, field), getattr(plain, field), err_msg=field)


def test_strategies_forward_the_curvature_of_the_inference(seed):
    graph = fields.SINGLES["cycle"]
    theta = fields.normal(graph, 2, np.random.default_rng(seed))
    inference = TRW(max_iter=500, tol=1e-10)
    beliefs = inference.forward(graph, theta, edges=True)
    wrapped = Implicit().wrap(inference)
    assert wrapped.has_curvature
    found, expected = (one.curvature(graph, theta, beliefs) for one in (wrapped, inference))
    assert_array_equal(found.blocks, expected.blocks)


def test_part_of_a_strategy_wraps_the_part_of_the_inference():
    graph = pack([fields.SINGLES["pair"], fields.SINGLES["cycle"]])
    rho = np.linspace(0.5, 0.9, graph.n_edges)
    _, selection = select(graph, np.array([False, True]))
    part = Backprop(mode="truncated").wrap(TRW(rho=rho)).part_of(graph, selection)
    assert isinstance(part, Backprop) and part.mode == "truncated"
    assert_array_equal(part.inference_.rho, rho[1:])
    whole = Backprop().wrap(TRW())
    assert whole.part_of(graph, selection) is whole
