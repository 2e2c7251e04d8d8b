# ruff: noqa: E501
"""Structure of the package: imports between packages, sizes of files and functions, docstrings, base classes."""

import ast
import inspect
from functools import cache, cached_property
from pathlib import Path

import pytest

from skcrf.gradients import GRADIENTS, BaseGradient
from skcrf.inference import INFERENCE, BaseInference
from skcrf.losses import LOSSES, BaseLoss
from skcrf.models import BaseModel
from skcrf.optimizers import OPTIMIZERS, SCHEDULES, BaseOptimizer, BaseSchedule

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "skcrf").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

#: Modules that every package may import.
COMMON = {"_kernel_cache", "_numerics", "_registry"}
_COMPONENTS = {"graph", "data", "models", "inference", "gradients", "losses", "optimizers", "parallel"}
_EVERYTHING = {
    *_COMPONENTS,
    "training",
    "estimators",
    "preprocessing",
    "metrics",
    "plotting",
    "uai",
    "datasets",
}
#: Packages that a package may import besides itself and `COMMON`.
MAY_IMPORT = {
    "graph": set(),
    "data": {"graph", "parallel"},
    "models": {"graph", "data"},
    "inference": {"graph"},
    "gradients": {"graph", "inference"},
    "losses": {"graph", "inference"},
    "optimizers": set(),
    "parallel": set(),
    "training": _COMPONENTS,
    "estimators": _COMPONENTS | {"training"},
    "preprocessing": {"data"},
    "metrics": {"data"},
    "plotting": {"metrics", "estimators"},
    "uai": {"graph", "inference"},
    "datasets": _EVERYTHING,
    "io": _EVERYTHING,
    "compat": _EVERYTHING,
    "torch": _EVERYTHING,
    "__init__": {"estimators"},
    **dict.fromkeys(COMMON, frozenset()),
}

MOST_FILES = 20
MOST_LINES, MANY_LINES = 450, 400
MOST_LINES_OF_A_FUNCTION = 70
MOST_ATTRIBUTES = 6

#: Names of components, which have base classes that tell their abilities.
COMPONENT_NAMES = {
    *("batch", "component", "engine", "gradient", "inference", "loss", "method", "model", "objective"),
    *("optimizer", "schedule", "strategy"),
}
#: Packages at the border to the data of users, which may have any type.
DUCK_TYPING = {"data", "preprocessing"}

REGISTRIES = {
    BaseInference: INFERENCE,
    BaseLoss: LOSSES,
    BaseGradient: GRADIENTS,
    BaseOptimizer: OPTIMIZERS,
    BaseSchedule: SCHEDULES,
    BaseModel: {},
}


@cache
def parse(path):
    return ast.parse(path.read_text())


def package_of(path):
    """Return the package that a file of skcrf belongs to, or its own name if it is in none."""
    first = path.relative_to(ROOT / "skcrf").parts[0]
    return first.removesuffix(".py")


def imported_modules(path):
    """Yield the dotted names below skcrf that a file imports anywhere, with the line."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, *parts = name.split(".")
            if top == "skcrf" and parts:
                yield parts, node.lineno


def where(path, line):
    return f"{path.relative_to(ROOT)}:{line}"


# Imports


def test_every_package_has_import_rules():
    assert {package_of(path) for path in SOURCES} <= set(MAY_IMPORT)


def test_packages_import_only_what_the_design_allows():
    wrong = set()
    for path in SOURCES:
        package = package_of(path)
        for parts, line in imported_modules(path):
            imported = parts[0] if parts[0] in MAY_IMPORT else "estimators"  # names that skcrf exports
            if imported not in MAY_IMPORT[package] | COMMON | {package}:
                wrong.add(f"{where(path, line)} imports {imported}")
    assert not wrong, "\n".join(sorted(wrong))


def test_no_package_imports_private_modules_of_another():
    wrong = [
        f"{where(path, line)} imports {'.'.join(parts)}"
        for path in SOURCES
        for parts, line in imported_modules(path)
        if parts[0] not in {package_of(path), *COMMON} and any(part.startswith("_") for part in parts)
    ]
    assert not wrong, "\n".join(wrong)


def test_import_rules_have_no_cycles():
    rules = {package: allowed - {"datasets"} for package, allowed in MAY_IMPORT.items()}
    while rules:
        free = {package for package, allowed in rules.items() if not allowed & set(rules)}
        if not free:
            break
        rules = {package: allowed for package, allowed in rules.items() if package not in free}
    assert not rules, sorted(rules)


# Sizes


@pytest.mark.parametrize("folder", sorted({path.parent for path in SOURCES}), ids=lambda path: path.name)
def test_folders_have_few_files(folder):
    assert len(list(folder.glob("*.py"))) <= MOST_FILES


def test_files_are_short():
    lengths = {path: len(path.read_text().splitlines()) for path in SOURCES}
    many = [f"{path.relative_to(ROOT)}: {n}" for path, n in lengths.items() if n > MANY_LINES]
    assert max(lengths.values()) <= MOST_LINES, "\n".join([f"files above {MANY_LINES} lines:", *many])


def lines_of_code(function, lines):
    """Count the lines of a function that are not blank, comments or part of its docstring."""
    documented = ast.get_docstring(function) is not None
    docstring = range(function.body[0].lineno, function.body[0].end_lineno + 1) if documented else ()
    return sum(
        number not in docstring
        and not lines[number - 1].strip().startswith("#")
        and bool(lines[number - 1].strip())
        for number in range(function.lineno, function.end_lineno + 1)
    )


def test_functions_are_short():
    long = []
    for path in SOURCES:
        lines = path.read_text().splitlines()
        for node in ast.walk(parse(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = lines_of_code(node, lines)
                if length > MOST_LINES_OF_A_FUNCTION:
                    long.append(f"{where(path, node.lineno)} {node.name}: {length} lines")
    assert not long, "\n".join(long)


# Prose


@pytest.mark.parametrize("paths", [SOURCES, TESTS], ids=["skcrf", "tests"])
def test_no_docstring_starts_with_what_or_how(paths):
    found = []
    for path in paths:
        for node in ast.walk(parse(path)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                first = (ast.get_docstring(node) or "").split(maxsplit=1)[:1]
                if first in (["What"], ["How"]):
                    found.append(
                        f"{where(path, getattr(node, 'lineno', 1))} {getattr(node, 'name', path.stem)}"
                    )
    assert not found, "\n".join(found)


# Components


def last_name(expression):
    """Return the last name of an expression such as ``self.inference_``, without underscores."""
    name = expression.id if isinstance(expression, ast.Name) else getattr(expression, "attr", "")
    return name.strip("_")


def test_no_component_is_asked_by_getattr():
    guesses = [
        f"{where(path, node.lineno)} {ast.unparse(node)}"
        for path in SOURCES
        if package_of(path) not in DUCK_TYPING
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and last_name(node.args[0]) in COMPONENT_NAMES
    ]
    assert not guesses, "\n".join(guesses)


def class_attributes(base):
    """Return the public class attributes that are neither methods, properties nor parameters."""
    parameters = {name for cls in REGISTRIES[base].values() for name in cls().get_params(deep=False)}
    not_attributes = (property, cached_property, classmethod, staticmethod)
    return {
        name
        for name, value in vars(base).items()
        if not name.startswith("_")
        and name not in parameters
        and not inspect.isfunction(value)
        and not isinstance(value, not_attributes)
    }


@pytest.mark.parametrize("base", REGISTRIES, ids=lambda base: base.__name__)
def test_base_classes_have_few_attributes(base):
    assert len(class_attributes(base)) <= MOST_ATTRIBUTES, sorted(class_attributes(base))


# Tests


def private_uses(path):
    """Yield the private modules, names and methods of packages that a test file uses."""
    for parts, line in imported_modules(path):
        if parts[0] not in COMMON and any(
            part.startswith("_") and not part.startswith("__") for part in parts
        ):
            yield f"{where(path, line)} imports {'.'.join(parts)}"
    for node in ast.walk(parse(path)):
        called = node.func if isinstance(node, ast.Call) else None
        if (
            isinstance(called, ast.Attribute)
            and called.attr.startswith("_")
            and last_name(called.value) != "self"
        ):
            if not called.attr.endswith("_") and called.attr not in ("_replace", "_asdict"):
                yield f"{where(path, node.lineno)} calls {called.attr}"


def test_at_most_five_test_files_use_private_names():
    uses = {path: list(private_uses(path)) for path in TESTS}
    private = {path: found for path, found in uses.items() if found}
    assert len(private) <= 5, "\n".join(use for found in private.values() for use in found)
