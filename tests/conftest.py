"""Seeds, the core suite, and compilation of kernels ahead of the tests.

``SKCRF_TEST_SEED`` sets the seed of every random test: a number, several separated by commas, or "all".
``NUMBA_DISABLE_JIT=1 pytest -m core`` runs the core suite without compiling anything.
"""

import os

import pytest

# Read when SciPy is imported; without it scikit-learn skips a part of its estimator checks.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

#: Modules that are quick enough with the kernels as plain Python.
CORE = {
    "test_graph",
    "test_inference",
    "test_iterations",
    "test_gradients",
    "test_losses",
    "test_inference_free",
    "test_likelihood",
    "test_loss_families",
    "test_stationary",
    "test_wrapping",
    "test_base_model",
    "test_directed_model",
    "test_pairwise_model",
    "test_scaling",
    "test_ties",
    "test_exact",
    "test_extreme",
    "test_factor_graphs",
    "test_lattice",
    "test_many_fields",
    "test_numerics",
    "test_arrays",
    "test_trw_s",
    "test_factors",
    "test_map",
    "test_gibbs",
}

#: Modules that use the kernels of all kinds of graphs, which are then compiled ahead of the tests.
NEED_ALL_KERNELS = {"test_inference", "test_iterations", "test_lattice", "test_strategies"}


def _seeds():
    wanted = os.environ.get("SKCRF_TEST_SEED", "0")
    return list(range(10)) if wanted == "all" else [int(seed) for seed in wanted.split(",")]


@pytest.fixture(params=_seeds(), ids="seed{}".format)
def seed(request):
    """Seed of a random test."""
    return request.param


def pytest_configure(config):
    """Register the marker."""
    config.addinivalue_line("markers", "core: run a second time under NUMBA_DISABLE_JIT=1")


def pytest_ignore_collect(collection_path, config):
    """Skip modules outside the core suite without importing them."""
    is_test = collection_path.name.startswith("test_")
    if config.getoption("markexpr") == "core" and is_test and collection_path.stem not in CORE:
        return True
    return None


def pytest_collection_modifyitems(items):
    """Mark the core suite."""
    for item in items:
        if item.path.stem in CORE:
            item.add_marker(pytest.mark.core)


def pytest_collection_finish(session):
    """Compile a part of the kernels in each worker of pytest-xdist; the others read them from the cache."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and any(item.path.stem in NEED_ALL_KERNELS for item in session.items):
        from kernels import compile_share

        compile_share(int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
