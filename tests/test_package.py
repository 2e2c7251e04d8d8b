"""The package as a whole: import time, registries, kernels, docstrings, files and documentation."""

import ast
import configparser
import doctest
import importlib
import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import numba
import numpy as np
import pytest
from conftest import CORE, NEED_ALL_KERNELS
from numba.core.registry import CPUDispatcher
from numpydoc.validate import validate

import skcrf
from skcrf import gradients, inference, losses, optimizers

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "skcrf").rglob("*.py"))
REQUIRED = {"scikit-learn": "sklearn", **{name: name for name in ("numpy", "scipy", "numba", "joblib")}}
REGISTRIES = {
    inference.BaseInference: inference.INFERENCE,
    losses.BaseLoss: losses.LOSSES,
    gradients.BaseGradient: gradients.GRADIENTS,
    optimizers.BaseOptimizer: optimizers.OPTIMIZERS,
    optimizers.BaseSchedule: optimizers.SCHEDULES,
}


@cache
def _modules():
    names = [module.name for module in pkgutil.walk_packages(skcrf.__path__, "skcrf.")]
    return [skcrf, *map(importlib.import_module, names)]


def _setup_cfg():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def _requirements(text):
    return {re.split("[<>=~!; ]", line)[0] for line in text.split("\n") if line}


def _python(code):
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)


# Imports


_COMPILED = """
import gc, skcrf
from numba.core.dispatcher import Dispatcher
kernels = [found for found in gc.get_objects() if isinstance(found, Dispatcher)]
kernels = [kernel for kernel in kernels if kernel.py_func.__module__.startswith("skcrf")]
print(len(kernels), [kernel.__name__ for kernel in kernels if kernel.signatures])
"""


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_import_compiles_nothing():
    count, compiled = _python(_COMPILED).stdout.split(maxsplit=1)
    assert int(count) > 0
    assert compiled.strip() == "[]"


def test_import_takes_little_longer_than_that_of_scikit_learn_and_numba():
    # Byte code is written, as for installed packages.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def seconds(code):
        before = os.times().children_user
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
        return os.times().children_user - before

    # CPU time and the best of alternating rounds reduce the influence of other processes.
    rounds = []
    for _ in range(3):
        rounds.append((seconds("import skcrf"), seconds("import sklearn.linear_model, numba")))
        ours, theirs = np.min(rounds, axis=0)
        if ours / theirs < 1.2:
            break
    print(f"import skcrf {ours:.2f} s, scikit-learn and numba {theirs:.2f} s: {ours / theirs:.2f}x")
    assert ours / theirs < 1.2


def _prints(tree):
    """Return the lines that print."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_import_required_dependencies_and_print_only_if_verbose(path):
    tree = ast.parse(path.read_text())
    # scikit-learn requires threadpoolctl, and numba llvmlite
    allowed = {*sys.stdlib_module_names, *REQUIRED.values(), "skcrf", "threadpoolctl", "llvmlite"}
    imported = set()
    for node in tree.body:  # optional dependencies are imported inside functions
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            imported.add(node.module.split(".")[0])
    assert imported <= allowed
    verbose = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "verbose" in ast.dump(node.test)
    ]
    assert _prints(tree) == {line for node in verbose for line in _prints(node)}


# Registries


def _public_classes():
    return {
        member
        for module in _modules()
        for name, member in vars(module).items()
        if inspect.isclass(member) and member.__module__.startswith("skcrf") and not name.startswith("_")
    }


@pytest.mark.parametrize("base", REGISTRIES, ids=lambda base: base.__name__)
def test_registries_are_complete(base):
    registry = REGISTRIES[base]
    concrete = {cls for cls in _public_classes() if not inspect.isabstract(cls) and cls not in REGISTRIES}
    # A gradient is an inference too, so that the nearest base counts.
    found = {cls for cls in concrete if next((b for b in cls.__mro__ if b in REGISTRIES), None) is base}
    assert found == set(registry.values())
    assert all(re.fullmatch("[a-z][a-z0-9_]*", name) for name in registry)


@pytest.mark.parametrize("base", REGISTRIES)
def test_seeds_are_called_random_state(base):
    names = {parameter for component in REGISTRIES[base].values() for parameter in component().get_params()}
    assert not {name for name in names if "seed" in name or "rng" in name}


def test_names_in_all_exist():
    for module in _modules():
        for name in getattr(module, "__all__", []):
            assert hasattr(module, name), f"{module.__name__}.{name}"


# Kernels


def _kernels():
    found = [
        member
        for module in _modules()
        for member in vars(module).values()
        if isinstance(member, CPUDispatcher) and member.py_func.__module__ == module.__name__
    ]
    return sorted(found, key=lambda kernel: (kernel.__module__, kernel.__name__))


def test_kernels_are_found():
    assert bool(_kernels()) != bool(numba.config.DISABLE_JIT)


@pytest.mark.parametrize("kernel", _kernels(), ids=lambda kernel: f"{kernel.__module__}.{kernel.__name__}")
def test_kernels_are_cached_and_release_the_gil(kernel):
    options = kernel.targetoptions
    assert options.get("nogil") is True
    assert kernel.stats.cache_path is not None, "cache=True is missing"
    assert not options.get("parallel")
    flags = options.get("fastmath", False)
    assert flags is False or (flags is not True and not {"fast", "nnan", "ninf"} & set(flags))


# Docstrings

#: Rules of numpydoc that do not apply: examples, references and an extended summary everywhere, names of all
#: results, and a capital letter if a sentence starts with theta.
_EXCUSED = {"EX01", "SA01", "ES01", "RT02", "RT04", "SS02"}
#: Packages that are not in the API pages.
_INTERNAL = ("skcrf.data", "skcrf.models", "skcrf.training", "skcrf.parallel")


def _public(module):
    own = [n for n, m in vars(module).items() if getattr(m, "__module__", None) == module.__name__]
    return getattr(module, "__all__", [name for name in own if not name.startswith("_")])


@cache
def _documented():
    """Return all public classes, their public methods, and public functions, by full name."""
    members = [cls for registry in REGISTRIES.values() for cls in registry.values()]
    for module in _modules():
        private = any(part.startswith("_") for part in module.__name__.split("."))
        if not private and ".".join(module.__name__.split(".")[:2]) not in _INTERNAL:
            members += [getattr(module, name) for name in _public(module)]
    found = {}
    for member in members:
        if inspect.isclass(member) or inspect.isfunction(member):
            found[f"{member.__module__}.{member.__qualname__}"] = member
            for cls in getattr(member, "__mro__", ()):
                for name, method in vars(cls).items():
                    if inspect.isfunction(method) and not name.startswith("_"):
                        found[f"{cls.__module__}.{cls.__qualname__}.{name}"] = method
    return {name: found[name] for name in sorted(found) if name.startswith("skcrf.")}


# The base classes have a section that numpydoc does not know.
@pytest.mark.filterwarnings("ignore:Unknown section Conventions")
@pytest.mark.parametrize("name", _documented())
def test_docstrings_follow_numpydoc(name):
    member = _documented()[name]
    if member.__doc__ is None:  # an override: its base class has the docstring
        module, cls, method = name.rsplit(".", 2)
        assert inspect.getdoc(getattr(getattr(importlib.import_module(module), cls), method))
        return
    excused = set(_EXCUSED)
    if inspect.isclass(member) and issubclass(member, tuple):
        excused.add("PR01")  # the fields of a NamedTuple are documented as attributes
    if "Conventions\n" in member.__doc__:
        excused |= {"GL06", "GL07"}
    errors = [f"{code}: {text}" for code, text in validate(name)["errors"] if code not in excused]
    assert not errors, "\n".join([name, *errors])


# Files


def test_setup_cfg_has_the_required_dependencies():
    assert _requirements(_setup_cfg()["options"]["install_requires"]) == set(REQUIRED)


def test_changes_has_a_section_of_the_version():
    assert _setup_cfg()["metadata"]["version"] == "attr: skcrf.__version__"
    assert f"\n{skcrf.__version__}\n---" in (ROOT / "CHANGES.md").read_text()


def test_changes_list_the_inferences_and_losses_that_take_factors():
    text = " ".join((ROOT / "CHANGES.md").read_text().split())
    methods = re.search(r"- Factors of any number of nodes, [^:]*: ([^.]*)\.", text)[1]
    assert set(re.findall(r"``(\w+)``", methods)) == {
        name for name, cls in inference.INFERENCE.items() if "factor" in cls.layouts
    }
    exceptions = re.search(r"- All losses except ([^-]*) accept factors", text)[1]
    assert set(re.findall(r"``(\w+)``", exceptions)) == {
        name for name, cls in losses.LOSSES.items() if cls.graphs != "any"
    }


def _readme_blocks(pattern):
    return re.findall(pattern, (ROOT / "README.md").read_text(), flags=re.DOTALL)


def test_readme_commands_name_existing_files_and_extras():
    blocks = dict(_readme_blocks(r"<!-- command: (\w+) -->\n```bash\n(.*?)```"))
    assert set(blocks) == {"main", "test"}
    extras = set(_setup_cfg()["options.extras_require"])
    for block in blocks.values():
        (line,) = block.strip().split("\n")
        words = shlex.split(line)
        assert words[:3] == ["python3", "-m", "venv"]
        assert words[3].startswith(".venv")  # ignored by git
        assert {extra for word in words for extra in re.findall(r"\.\[(\w+)\]", word)} <= extras
        assert all((ROOT / word).is_file() for word in words if word.endswith(".py"))


def test_readme_quick_start_prints_scores(capsys):
    (code,) = _readme_blocks(r"```python\n(.*?)```")
    names = {}
    exec(code, names)
    printed = capsys.readouterr().out.strip()
    assert printed and all(0.5 < float(number) <= 1 for number in re.findall(r"\d\.\d+", printed))


@pytest.mark.parametrize("page", sorted((ROOT / "doc").glob("*.rst")), ids=lambda page: page.name)
def test_examples_of_documentation_pages_run(page):
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testfile(str(page), module_relative=False, optionflags=options).failed == 0


_LEFTOVER = re.compile(
    r"(?<![\w.])/(?:work|root|home|tmp|opt|Users)/|\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"
)
_GENERATED = {"_build", "api", "gallery", "build", "results"}


def test_files_have_no_absolute_paths_or_open_tasks():
    suffixes = {".py", ".md", ".rst", ".cfg", ".toml", ".txt", ""}
    found, read = [], 0
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") and part not in (".ci", ".gitignore") for part in parts)
        if not path.is_file() or path.suffix not in suffixes or hidden or _GENERATED & set(parts):
            continue
        read += 1
        lines = path.read_text().splitlines()
        found += [f"{path.name}:{i} {line}" for i, line in enumerate(lines, 1) if _LEFTOVER.search(line)]
    assert read > len(SOURCES)
    assert not found, "\n".join(found)


def test_core_suite_and_ci_name_existing_test_files():
    stems = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert CORE | NEED_ALL_KERNELS <= stems, sorted((CORE | NEED_ALL_KERNELS) - stems)
    script = (ROOT / ".ci" / "run").read_text()
    for folder, alternatives, name in re.findall(r"(\w+/)?test_(?:{([\w,]+)}|(\w+))\.py", script):
        for stem in alternatives.split(",") if alternatives else [name]:
            assert (ROOT / "tests" / folder / f"test_{stem}.py").is_file(), f"{folder}test_{stem}.py"


def test_names_of_test_files_are_unique():
    """Test files have no packages, so that pytest imports them by their names."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py")]
    assert len(names) == len(set(names))
