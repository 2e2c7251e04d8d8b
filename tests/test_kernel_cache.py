"""Compiled kernels on disk: used again by other processes, and never stale."""

import importlib
import itertools
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

import skcrf

# The stamp of a kernel has no public name.
from skcrf._kernel_cache import source_digests

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")

ROOT = Path(__file__).parents[1]

FILES = {
    "__init__.py": "",
    "constants.py": "SCALE = 10.0\n",
    "structure.py": "from typing import NamedTuple\n\nclass Pair(NamedTuple):\n    a: float\n    b: float\n",
    "callee.py": """
from skcrf._numerics import inlined_kernel, kernel

@kernel
def add(x):
    return x + 1.0

@inlined_kernel
def double(x):
    return 2.0 * x
""",
    "middle.py": """
from . import callee, constants
from .callee import add, double
from skcrf._numerics import kernel

SCALE = constants.SCALE

@kernel
def scaled(x):
    return SCALE * double(add(x))
""",
    "caller.py": """
from PACKAGE.middle import (
    scaled,
)
from skcrf._numerics import kernel

@kernel
def run(pair):
    return scaled(pair.a) + 0.5 * pair.b
""",
    "unrelated.py": "X = 1\n",
    "__main__.py": """
from PACKAGE.caller import run
from PACKAGE.structure import Pair

print(run(Pair(1.0, 2.0)), sum(run.stats.cache_hits.values()), sum(run.stats.cache_misses.values()))
""",
}
NUMBERS = itertools.count()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose kernels call one another across files; each test gets another name."""
    name = f"cached_kernels_{next(NUMBERS)}"
    folder = tmp_path / name
    folder.mkdir()
    for file, text in FILES.items():
        (folder / file).write_text(text.replace("PACKAGE", name))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # edits follow one another within a second
    return folder


def edit(file, before, after):
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def imported_anew(package, structure="structure"):
    """Import the package as a new process would; return the result of its kernel, cache hits and misses."""
    for name in [name for name in sys.modules if name.split(".")[0] == package.name]:
        del sys.modules[name]
    importlib.invalidate_caches()
    run = importlib.import_module(f"{package.name}.caller").run
    result = run(importlib.import_module(f"{package.name}.{structure}").Pair(a=1.0, b=2.0))
    return result, sum(run.stats.cache_hits.values()), sum(run.stats.cache_misses.values())


def in_new_process(package):
    shown = subprocess.run([sys.executable, "-m", package.name], capture_output=True, text=True, check=True)
    result, hits, misses = shown.stdout.split()
    return float(result), int(hits), int(misses)


def test_new_process_uses_the_cache_until_a_callee_is_edited(package):
    assert in_new_process(package) == (41.0, 0, 1)
    assert in_new_process(package) == (41.0, 1, 0)
    edit(package / "callee.py", "x + 1.0", "x + 2.0")
    assert in_new_process(package) == (61.0, 0, 1)
    assert in_new_process(package) == (61.0, 1, 0)


@pytest.mark.parametrize(
    "file, before, after, result",
    [
        ("callee.py", "x + 1.0", "x + 2.0", 61.0),
        ("callee.py", "2.0 * x", "3.0 * x", 61.0),
        ("constants.py", "10.0", "20.0", 81.0),
        ("middle.py", "SCALE * double", "double", 5.0),
        ("structure.py", "    a: float\n    b: float\n", "    b: float\n    a: float\n", 41.0),
    ],
    ids=["callee", "inlined callee", "constant", "direct callee", "order of fields"],
)
def test_edit_in_another_file_is_noticed(package, file, before, after, result):
    assert imported_anew(package) == (41.0, 0, 1)
    assert imported_anew(package) == (41.0, 1, 0)
    edit(package / file, before, after)
    assert imported_anew(package) == (result, 0, 1)
    assert imported_anew(package) == (result, 1, 0)


LIBRARY = """
import numpy as np

from skcrf._numerics import kernel

@kernel
def run(values, seed):
    np.random.seed(seed)
    if len(values) == 0:
        raise ValueError("no values")
    counts, found = {-1: 0}, [0.0]
    for value in np.sort(values):
        counts[int(value)] = 1
        found.append(np.exp(value) + np.random.random())
    total = np.zeros((2, 2)) + np.array(found).sum() + len(counts) + np.searchsorted(values, 1.5)
    return total, found, values.copy()

if __name__ == "__main__":
    total, found, _ = run(np.arange(4.0), 0)
    try:
        run(np.arange(0.0), 0)
    except ValueError as error:
        assert str(error) == "no values"
    hits, misses = (sum(counts.values()) for counts in (run.stats.cache_hits, run.stats.cache_misses))
    print(total.sum() + sum(found), hits, misses)
"""


def test_cached_kernels_need_nothing_that_only_a_compilation_sets_up(package):
    """Memory, exceptions, random numbers, lists and dictionaries work where no kernel was compiled before."""
    (package / "__main__.py").write_text(LIBRARY)
    result, hits, misses = in_new_process(package)
    assert (hits, misses) == (0, 1)
    assert in_new_process(package) == (result, 1, 0)


def test_module_of_an_argument_may_be_renamed(package):
    assert imported_anew(package) == (41.0, 0, 1)
    (package / "structure.py").rename(package / "records.py")
    assert imported_anew(package, structure="records") == (41.0, 0, 1)
    assert imported_anew(package, structure="records") == (41.0, 1, 0)


def test_edit_of_an_unrelated_file_keeps_the_cache(package):
    assert imported_anew(package) == (41.0, 0, 1)
    edit(package / "unrelated.py", "1", "2")
    assert imported_anew(package) == (41.0, 1, 0)


def test_cache_folder_of_the_user(package, tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    assert imported_anew(package) == (41.0, 0, 1)
    assert imported_anew(package) == (41.0, 1, 0)
    assert list((tmp_path / "cache").rglob("caller.run-*.nbi"))
    edit(package / "callee.py", "x + 1.0", "x + 2.0")
    assert imported_anew(package) == (61.0, 0, 1)


def test_stamps_cover_all_callees_and_constants_of_skcrf():
    names = [module.name for module in pkgutil.walk_packages(skcrf.__path__, "skcrf.")]
    modules = {name: importlib.import_module(name) for name in names}
    kernels = [
        member
        for name, module in modules.items()
        for member in vars(module).values()
        if isinstance(member, numba.core.dispatcher.Dispatcher) and member.py_func.__module__ == name
    ]
    assert len(kernels) > 100
    for kernel in kernels:
        function = kernel.py_func
        covered = source_digests(function.__module__, modules[function.__module__].__file__)
        for name in function.__code__.co_names:
            used = function.__globals__.get(name)
            used = getattr(used, "py_func", used)
            origin = getattr(used, "__module__", None) or ""
            assert not origin.startswith("skcrf") or origin in covered, f"{function.__qualname__} uses {name}"


CALLEES = """
from skcrf._numerics import kernel

@kernel
def add(x):
    return x + 1.0

@kernel
def double(x):
    return 2.0 * add(x)

@kernel
def triple(x):
    return 3.0 * add(x)
"""


def counts(dispatcher):
    return sum(dispatcher.stats.cache_hits.values()), sum(dispatcher.stats.cache_misses.values())


def test_callee_is_compiled_once_and_again_for_calls_from_python(package):
    (package / "callees.py").write_text(CALLEES)
    first = importlib.import_module(f"{package.name}.callees")
    assert first.double(1.0) == 4.0 and first.triple(1.0) == 6.0
    assert counts(first.add.callee) == (0, 1) and counts(first.add) == (0, 0)
    assert first.add(1.0) == 2.0
    assert counts(first.add.callee) == (0, 1) and counts(first.add) == (0, 1)


def test_callee_is_read_from_the_cache_for_another_caller(package):
    (package / "callees.py").write_text(CALLEES)
    assert importlib.import_module(f"{package.name}.callees").double(1.0) == 4.0
    del sys.modules[f"{package.name}.callees"]
    second = importlib.import_module(f"{package.name}.callees")
    assert second.triple(1.0) == 6.0
    assert counts(second.triple) == (0, 1) and counts(second.add.callee) == (1, 0)
    edit(package / "callees.py", "x + 1.0", "x + 2.0")
    del sys.modules[f"{package.name}.callees"]
    third = importlib.import_module(f"{package.name}.callees")
    assert third.triple(1.0) == 9.0
    assert counts(third.add.callee) == (0, 1)


def test_edit_between_import_and_first_call_is_noticed(package):
    (package / "callees.py").write_text(CALLEES)
    old = importlib.import_module(f"{package.name}.callees")
    importlib.import_module(f"{package.name}.callee")  # the digest of the last module is remembered
    edit(package / "callees.py", "x + 1.0", "x + 2.0")
    assert old.double(1.0) == 4.0
    del sys.modules[f"{package.name}.callees"]
    new = importlib.import_module(f"{package.name}.callees")
    assert new.double(1.0) == 6.0
    assert counts(new.add.callee) == (0, 1)
