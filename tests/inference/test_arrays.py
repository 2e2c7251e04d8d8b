"""Arguments of `forward` and `backward`: arrays of any dtype and memory layout, which are not changed."""

import fields
import methods
import numpy as np
import pytest
from engines import FIELDS, assert_same_bits, cotangents
from numba import config
from numba.core.dispatcher import Dispatcher
from numpy.testing import assert_array_equal
from reference import is_forest

import skcrf.inference
from skcrf.graph import Potentials, chain, lattice, pack
from skcrf.inference import INFERENCE

LINES = pack([lattice(1, 4), chain(3), lattice(3, 1, tied=False)])
#: The last one has several kinds of examples, which are inferred by different engines.
GRAPHS = {
    "chain": chain(3),
    "lattice": lattice(2, 3),
    "lines": LINES,
    "all": pack([LINES, lattice(2, 3), lattice(3, 2, tied=False)]),
}


def frozen(values):
    values = np.array(values)
    values.flags.writeable = False
    return values


def strided(values):
    return np.repeat(values, 2, axis=-1)[..., ::2]


def mapped(values):
    """Map values to a file, as joblib does with large arrays for other processes."""
    values = np.asarray(values).view(np.memmap)
    values.flags.writeable = False
    return values


def backwards(values):
    return np.ascontiguousarray(values[::-1])[::-1]


#: Memory layouts of the same numbers.
FORMS = {
    "frozen": frozen,
    "mapped": mapped,
    "strided": strided,
    "backwards": backwards,
    "fortran": np.asfortranarray,
}
DTYPES = [np.float32, np.float16, np.int64, np.int32, np.int8]

each = pytest.mark.parametrize(
    "cls, graph",
    [
        pytest.param(cls, graph, id=f"{name}-{title}")
        for name, cls in methods.SCORING.items()
        for title, graph in GRAPHS.items()
        if name != "tree" or is_forest(graph)
    ],
)


def run(inference, graph, theta, given):
    """Return the results of `forward` and `backward`."""
    beliefs = inference.forward(graph, theta, edges=True, tape=True)
    assert beliefs.mu.dtype == beliefs.edge_mu.dtype == beliefs.log_z.dtype == np.float64
    results = [getattr(beliefs, field) for field in FIELDS]
    for cotangent in given:
        results.extend(inference.backward(beliefs, *cotangent))
    return results


def whole_numbers(graph, rng):
    """Draw potentials and cotangents that every dtype can represent."""
    theta = fields.normal(graph, 2, rng)
    theta = Potentials(*(np.rint(2 * part) for part in theta))
    beliefs = INFERENCE["mean_field"]().forward(graph, theta, edges=True)
    return theta, [
        tuple(value if value is None else np.rint(3 * value) for value in given)
        for given in cotangents(beliefs, rng).values()
    ]


def convert(form, theta, given):
    return Potentials(*(form(part) for part in theta)), [
        tuple(value if value is None else form(value) for value in cotangent) for cotangent in given
    ]


def compilations():
    """Count the signatures for which each kernel was compiled or loaded from the cache."""
    return {
        (module.__name__, name): len(found.signatures)
        for module in vars(skcrf.inference).values()
        if getattr(module, "__name__", "").startswith("skcrf.inference.")
        for name, found in vars(module).items()
        if isinstance(found, Dispatcher)
    }


@each
def test_results_and_compilations_do_not_depend_on_dtype_or_memory_layout(cls, graph, seed):
    theta, given = whole_numbers(graph, np.random.default_rng(seed))
    expected = run(cls(), graph, theta, given)
    before = compilations()
    assert config.DISABLE_JIT or sum(before.values()) > 0
    for title, form in FORMS.items():
        assert_same_bits(run(cls(), graph, *convert(form, theta, given)), expected, err_msg=title)
    for dtype in DTYPES:
        moved = convert(lambda values, dtype=dtype: values.astype(dtype), theta, given)
        assert_same_bits(run(cls(), graph, *moved), expected, err_msg=dtype.__name__)
    assert compilations() == before


@each
def test_broadcast_arrays_are_accepted(cls, graph):
    theta = Potentials(
        np.broadcast_to([0.0, 1.0], (graph.n_nodes, 2)), np.broadcast_to(np.eye(2), (graph.n_tables, 2, 2))
    )
    given = [
        (np.broadcast_to(np.float64(1.0), (graph.n_nodes, 2)),),
        (
            np.broadcast_to([1.0, 0.0], (graph.n_nodes, 2)),
            np.broadcast_to(np.eye(2), (graph.n_edges, 2, 2)),
            np.broadcast_to(np.float64(2.0), graph.n_examples),
        ),
    ]
    assert_same_bits(run(cls(), graph, theta, given), run(cls(), graph, *convert(np.array, theta, given)))


@pytest.mark.parametrize("tol", [0.0, 1e-3])
@each
def test_arguments_are_not_changed(cls, graph, tol, seed):
    rng = np.random.default_rng(seed)
    inference = methods.build(cls, max_iter=5, tol=tol)
    theta = fields.normal(graph, 2, rng)
    theta.unary[0, 0] = -np.inf
    structure = [part.copy() for part in graph]
    before = [part.copy() for part in theta]
    for tape in (True, False) if tol else (True,):
        beliefs = inference.forward(graph, theta, edges=True, tape=tape)
        copied = [getattr(beliefs, field).copy() for field in FIELDS]
        for given in cotangents(beliefs, rng).values():
            copies = [None if value is None else value.copy() for value in given]
            first = inference.backward(beliefs, *given)
            for value, copy in zip(given, copies, strict=True):
                assert_array_equal(value, copy)
            # beliefs can be differentiated again
            assert_same_bits(inference.backward(beliefs, *given), first)
        assert_same_bits([getattr(beliefs, field) for field in FIELDS], copied)
    assert_same_bits(theta, before)
    assert_same_bits(graph, structure)
    if "max" in cls.tasks:
        inference.forward(graph, theta, tau=0.0)
        assert_same_bits(theta, before)
