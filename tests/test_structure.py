"""Structure of the package: imports between packages, sizes, docstrings, base classes, tests, and the walk.

A rule is a function that yields the violations in a source file. All files are checked by each rule, and each
rule is checked with examples of violations and of code that is allowed.
"""

import ast
import inspect
import re
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import pytest

from skcrf.gradients import GRADIENTS, BaseGradient
from skcrf.inference import INFERENCE, BaseInference
from skcrf.losses import LOSSES, BaseLoss
from skcrf.models import BaseModel
from skcrf.optimizers import OPTIMIZERS, SCHEDULES, BaseOptimizer, BaseSchedule

ROOT = Path(__file__).parents[1]

#: Modules that every package may import.
COMMON = {"_numerics", "_registry"}
#: Modules about the compilation of kernels, whose names are not private to a package.
KERNELS = {"_kernel_cache", "_kernel_dispatcher"}
_COMPONENTS = {"graph", "data", "models", "inference", "gradients", "losses", "optimizers", "parallel"}
_EVERYTHING = _COMPONENTS | {
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
    "_numerics": {"_kernel_cache", "_kernel_dispatcher"},
    "_kernel_dispatcher": {"_kernel_cache"},
    "_kernel_cache": set(),
    "_registry": set(),
}
#: Packages that are imported for deprecated names, by the file that has these names.
DEPRECATED = {"skcrf/graph/__init__.py": {"models"}, "skcrf/losses/__init__.py": {"training"}}

MOST_FILES = 20
MOST_LINES = 450
MOST_LINES_OF_A_FUNCTION = 70
MOST_ATTRIBUTES = 6
MOST_PRIVATE_TEST_FILES = 5
MOST_FILES_OF_A_WALK, MOST_FRAMES_OF_A_WALK = 32, 14

#: Names of components, whose abilities are known from their base classes.
COMPONENT_NAMES = {
    *("batch", "component", "engine", "gradient", "inference", "loss", "method", "model", "objective"),
    *("optimizer", "schedule", "strategy"),
}
#: Packages that read the data of users, which may have any type.
DUCK_TYPING = {"data", "preprocessing"}

REGISTRIES = {
    BaseInference: INFERENCE,
    BaseLoss: LOSSES,
    BaseGradient: GRADIENTS,
    BaseOptimizer: OPTIMIZERS,
    BaseSchedule: SCHEDULES,
    BaseModel: {},
}


class Source:
    """A Python file; `name` is its path in the repository."""

    def __init__(self, name, text):
        self.name, self.text = name, text

    @cached_property
    def nodes(self):
        """All nodes of the syntax tree."""
        return list(ast.walk(ast.parse(self.text)))

    @property
    def lines(self):
        """The lines of the file."""
        return self.text.splitlines()

    @property
    def package(self):
        """The package of skcrf that the file belongs to, or its own name if it is in none."""
        return self.name.split("/")[1].removesuffix(".py")

    @cached_property
    def imports(self):
        """All imports from skcrf, as line and list of the names below skcrf."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Call) and last_name(node.func) in ("import_module", "import"):
                names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            else:
                continue
            parts = [name.split(".") for name in names]
            found += [(node.lineno, rest) for top, *rest in parts if top == "skcrf"]
        return found

    def at(self, line):
        return f"{self.name}:{line}"


def read(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


SOURCES, TESTS, BENCHMARKS = read("skcrf"), read("tests"), read("benchmarks")


def last_name(expression):
    """Return the last name of an expression such as ``self.inference_``, without underscores."""
    name = expression.id if isinstance(expression, ast.Name) else getattr(expression, "attr", "")
    return name.strip("_")


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def check(rule, sources):
    violations = [violation for source in sources for violation in rule(source)]
    assert not violations, "\n".join(violations)


# Imports


def wrong_imports(source):
    """Yield the imports of packages that the design forbids."""
    allowed = MAY_IMPORT[source.package] | COMMON | {source.package} | DEPRECATED.get(source.name, set())
    for line, names in source.imports:
        imported = names[0] if names else "__init__"
        if imported not in MAY_IMPORT:
            imported = "estimators"  # which skcrf exports
        if imported not in allowed:
            yield f"{source.at(line)} imports {imported}"


def private_imports(source):
    """Yield the imports of private names of other packages."""
    for line, names in source.imports:
        inside = names[1:] if names[:1] and names[0] in COMMON | KERNELS else names
        if names[:1] != [source.package] and any(map(is_private, inside)):
            yield f"{source.at(line)} imports {'.'.join(names)}"


def test_every_package_has_import_rules():
    assert {source.package for source in SOURCES} <= set(MAY_IMPORT)


def test_packages_import_only_what_the_design_allows():
    check(wrong_imports, SOURCES)


def test_no_package_imports_private_names_of_another():
    check(private_imports, SOURCES)


def test_import_rules_have_no_cycles():
    rules = {package: allowed - {"datasets"} for package, allowed in MAY_IMPORT.items()}
    while rules:
        free = {package for package, allowed in rules.items() if not allowed & set(rules)}
        if not free:
            break
        rules = {package: allowed for package, allowed in rules.items() if package not in free}
    assert not rules, sorted(rules)


# Sizes


def long_files(source):
    """Yield the file if it is long."""
    if len(source.lines) > MOST_LINES:
        yield f"{source.name}: {len(source.lines)} lines"


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


def long_functions(source):
    """Yield the functions that do not fit on a screen."""
    for node in source.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = lines_of_code(node, source.lines)
            if length > MOST_LINES_OF_A_FUNCTION:
                yield f"{source.at(node.lineno)} {node.name}: {length} lines"


def crowded_folders(names):
    """List the folders of these files that hold too many of them."""
    folders = [name.rpartition("/")[0] for name in names]
    return [folder for folder in set(folders) if folders.count(folder) > MOST_FILES]


def test_folders_have_few_files():
    assert not crowded_folders([source.name for source in SOURCES])


def test_files_are_short():
    check(long_files, SOURCES + TESTS + BENCHMARKS)


def test_functions_are_short():
    check(long_functions, SOURCES + TESTS + BENCHMARKS)


# Docstrings


def vague_docstrings(source):
    """Yield the docstrings that start with a question word instead of their subject."""
    for node in source.nodes:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if re.match(r"(what|how)\b", ast.get_docstring(node) or "", re.IGNORECASE):
                yield f"{source.at(getattr(node, 'lineno', 1))} {getattr(node, 'name', 'module')}"


@pytest.mark.parametrize("sources", [SOURCES, TESTS, BENCHMARKS], ids=["skcrf", "tests", "benchmarks"])
def test_no_docstring_starts_with_what_or_how(sources):
    check(vague_docstrings, sources)


# Components


def guesses(source):
    """Yield the calls that ask a component for abilities or parameters that it may lack."""
    for node in source.nodes:
        is_get = isinstance(node, ast.Call) and last_name(node.func) == "get"
        if is_get and isinstance(node.func.value, ast.Call):
            if last_name(node.func.value.func) == "get_params":
                yield f"{source.at(node.lineno)} {ast.unparse(node)}"
        is_guess = isinstance(node, ast.Call) and last_name(node.func) in ("getattr", "hasattr")
        if is_guess and source.package not in DUCK_TYPING:
            if any(last_name(part) in COMPONENT_NAMES for part in ast.walk(node.args[0])):
                yield f"{source.at(node.lineno)} {ast.unparse(node)}"


def class_attributes(base, classes):
    """Return the public attributes of a base class except methods, properties and parameters."""
    parameters = {name for cls in classes for name in cls().get_params(deep=False)}
    not_attributes = (property, cached_property, classmethod, staticmethod)
    return {
        name
        for name, value in vars(base).items()
        if not name.startswith("_")
        and name not in parameters
        and not inspect.isfunction(value)
        and not isinstance(value, not_attributes)
    }


def test_no_component_is_asked_for_what_it_may_lack():
    check(guesses, SOURCES)


@pytest.mark.parametrize("base", REGISTRIES, ids=lambda base: base.__name__)
def test_base_classes_have_few_attributes(base):
    attributes = class_attributes(base, REGISTRIES[base].values())
    assert len(attributes) <= MOST_ATTRIBUTES, sorted(attributes)


def test_class_attributes_are_counted():
    class Base:
        ability, other = True, None
        tol = 0.0
        _private = None

        def method(self):
            return self.derived

        @property
        def derived(self):
            return self.ability

    class Method(Base):
        def get_params(self, deep):
            return {"tol": 1e-6}

    assert class_attributes(Base, [Method]) == {"ability", "other"}


# Tests


def private_names(node):
    """Yield the private names that are read, called or replaced by an expression."""
    if isinstance(node, ast.Attribute):
        owner = last_name(node.value)
        if is_private(node.attr) and not node.attr.endswith("_") and owner not in ("self", "cls"):
            if node.attr not in ("_replace", "_asdict", "_fields"):  # public names of a NamedTuple
                yield node.attr
    elif isinstance(node, ast.Constant) and re.fullmatch(r"skcrf(\.\w+)+", str(node.value)):
        if any(map(is_private, node.value.split("."))):
            yield node.value
    elif isinstance(node, ast.Call) and last_name(node.func) in ("getattr", "setattr", "delattr"):
        strings = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        yield from (string for string in strings if isinstance(string, str) and is_private(string))


def private_uses(source):
    """Yield the uses of private names of skcrf in a test file; names of the common modules are allowed."""
    for line, names in source.imports:
        inside = names[1:] if names[:1] and names[0] in COMMON | KERNELS else names
        if any(map(is_private, inside)):
            yield f"{source.at(line)} imports {'.'.join(names)}"
    for node in source.nodes:
        for name in private_names(node):
            yield f"{source.at(node.lineno)} uses {name}"


def test_at_most_five_test_files_use_private_names():
    uses = {source.name: list(private_uses(source)) for source in TESTS}
    private = [use for found in uses.values() for use in found]
    assert sum(map(bool, uses.values())) <= MOST_PRIVATE_TEST_FILES, "\n".join(private)


def test_folders_of_tests_are_those_of_the_package():
    packages = {source.package for source in SOURCES if source.name.count("/") > 1}
    names = [source.name.split("/")[1:] for source in TESTS]
    assert {folder for folder, *files in names if files} <= packages
    outside = [name for name, *files in names if not files and name[5:-3] in packages]
    assert not outside, f"move {outside} into the folders of their packages"


# The walk


def test_a_fit_walks_through_few_files_and_frames():
    command = [sys.executable, str(ROOT / "benchmarks" / "walk.py")]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (files,) = re.findall(r"^(\d+) files", printed, re.MULTILINE)
    frames = re.findall(r"^(\d+) frames .* (?:first|deepest) kernel", printed, re.MULTILINE)
    assert frames and max(map(int, frames)) <= MOST_FRAMES_OF_A_WALK, printed
    assert int(files) <= MOST_FILES_OF_A_WALK, printed


# The rules themselves

LONG_FUNCTION = "def f(x):\n" + "    x += 1\n" * MOST_LINES_OF_A_FUNCTION
GRAPH, TEST = "skcrf/graph/new.py", "tests/test_new.py"
#: Rule, name of a file, its text, and whether the rule is violated.
EXAMPLES = [
    (wrong_imports, GRAPH, "from skcrf.inference import BP", True),
    (wrong_imports, GRAPH, "def f():\n    import skcrf.inference.bp", True),
    (wrong_imports, GRAPH, "from skcrf import inference", True),
    (wrong_imports, GRAPH, "from skcrf import GridCRFClassifier", True),
    (wrong_imports, GRAPH, "import skcrf", True),
    (wrong_imports, GRAPH, "import_module('skcrf.models')", True),
    (wrong_imports, "skcrf/graph/__init__.py", "import_module('skcrf.models')", False),
    (wrong_imports, GRAPH, "from skcrf._numerics import kernel\nfrom skcrf.graph import Graph", False),
    (wrong_imports, GRAPH, "from skcrf._kernel_cache import KernelCache", True),
    (wrong_imports, "skcrf/plotting.py", "from skcrf.data import is_table", True),
    (wrong_imports, "skcrf/training/new.py", "from skcrf.estimators import GridCRFClassifier", True),
    (private_imports, "skcrf/losses/new.py", "from skcrf.inference._engine import Plan", True),
    (private_imports, "skcrf/losses/new.py", "from skcrf.inference import _engine", True),
    (private_imports, "skcrf/losses/new.py", "from skcrf._numerics import _hidden", True),
    (private_imports, "skcrf/inference/new.py", "from skcrf.inference._engine import Plan", False),
    (private_imports, "skcrf/losses/new.py", "from skcrf._numerics import kernel", False),
    (long_files, GRAPH, "\n" * (MOST_LINES + 1), True),
    (long_files, GRAPH, "\n" * MOST_LINES, False),
    (long_functions, GRAPH, LONG_FUNCTION, True),
    (long_functions, GRAPH, "class A:\n" + re.sub("^", "    ", LONG_FUNCTION, flags=re.M), True),
    (long_functions, GRAPH, LONG_FUNCTION.replace("    x += 1\n", "    # comment\n", 1), False),
    (vague_docstrings, GRAPH, '"""What a graph is."""', True),
    (vague_docstrings, GRAPH, 'class A:\n    def f(self):\n        """\n        How it works."""', True),
    (vague_docstrings, GRAPH, '"""Compute whatever is asked."""', False),
    (guesses, "skcrf/losses/new.py", "getattr(inference, 'tol', None)", True),
    (guesses, "skcrf/losses/new.py", "hasattr(self.inference_, 'tol')", True),
    (guesses, "skcrf/losses/new.py", "getattr(type(self.loss), 'needs')", True),
    (guesses, "skcrf/losses/new.py", "getattr(loss.second, 'needs')", True),
    (guesses, "skcrf/losses/new.py", "getattr(numpy, 'exp')", False),
    (guesses, "skcrf/estimators/new.py", "self.get_params(deep=False).get('symmetric', False)", True),
    (guesses, "skcrf/estimators/new.py", "self.get_params(deep=False)['symmetric']", False),
    (private_uses, TEST, "from skcrf.inference._engine import Plan", True),
    (private_uses, TEST, "from skcrf.graph import _packing", True),
    (private_uses, TEST, "import_module('skcrf.inference._engine')", True),
    (private_uses, TEST, "est._prepare(X)", True),
    (private_uses, TEST, "plan = method._plan", True),
    (private_uses, TEST, "monkeypatch.setattr(batch, '_BATCH_SITES', 20)", True),
    (private_uses, TEST, "monkeypatch.setattr('skcrf.data.batch._BATCH_SITES', 20)", True),
    (private_uses, TEST, "from skcrf._numerics import kernel\nself._x = theta._replace(unary=u)", False),
    (private_uses, TEST, "est._repr_html_()\nest.__class__", False),
]


@pytest.mark.parametrize("rule, name, text, violated", EXAMPLES)
def test_rules_find_violations(rule, name, text, violated):
    assert bool(list(rule(Source(name, text)))) == violated


def test_crowded_folders_are_found():
    names = [f"skcrf/graph/f{number}.py" for number in range(MOST_FILES + 1)]
    assert crowded_folders(names) == ["skcrf/graph"]
    assert not crowded_folders([*names[1:], "skcrf/graph/part/f.py", "skcrf/f.py"])
