"""Generate the API pages from the registries and the public names."""

import importlib
import inspect
import re
import shutil
from pathlib import Path

import skcrf
from skcrf.gradients import GRADIENTS
from skcrf.inference import INFERENCE, TRW, Beliefs
from skcrf.losses import LOSSES
from skcrf.metrics import SCORERS
from skcrf.optimizers import OPTIMIZERS, SCHEDULES
from skcrf.training import default_optimizer

EXAMPLES = sorted(Path(__file__).parents[1].glob("examples/*.py"))

#: Title, module and description of each part of the API that has no registry.
MODULES = [
    (
        "Preprocessing",
        "skcrf.preprocessing",
        "Transformers for images, sequences and graphs.",
    ),
    ("Metrics", "skcrf.metrics", "Scores pooled over the labelled sites of all examples."),
    ("Displays", "skcrf.plotting", "Figures as scikit-learn's displays; they require matplotlib."),
    ("Datasets", "skcrf.datasets", "Photographs and generated images with labels, and lazily loaded images."),
    ("UAI files", "skcrf.uai", "Models, evidence and solutions of the UAI competitions; see :doc:`../uai`."),
    ("Graphs and potentials", "skcrf.graph", "Data structures that inference methods and losses use."),
]


def write(folder):
    """Write one page per public class and function, and an index with tables.

    Parameters
    ----------
    folder : Path
        Output folder; emptied first.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    parts = [_title("API", "="), _estimators(folder), _inference(folder), _losses(folder)]
    for title, parameter, registry in [
        ("Gradients", "gradient", GRADIENTS),
        ("Optimizers", "optimizer", OPTIMIZERS),
        ("Schedules", "schedule", SCHEDULES),
    ]:
        rows = [(f"``{name!r}``", _link(folder, cls), _summary(cls)) for name, cls in registry.items()]
        parts += [_title(title), f"Pass a name or an instance as ``{parameter}=``.\n"]
        parts += [_table(("Name", "Class", "Description"), rows)]
    for title, module_name, text in MODULES:
        module = importlib.import_module(module_name)
        members = [
            m for m in map(vars(module).get, _public(module)) if inspect.isclass(m) or inspect.isroutine(m)
        ]
        rows = [(_link(folder, member, module_name), _summary(member)) for member in members]
        parts += [_title(title), f"``{module_name}``. {text}\n", _table(("Name", "Description"), rows)]
        if module_name == "skcrf.metrics":
            names = ", ".join(f"``{name!r}``" for name in SCORERS)
            parts += [f"``SCORERS`` is a dictionary of scorers for ``scoring=``: {names}.\n"]
    parts += [_bases(folder)]
    text = "\n".join(parts)
    pages = dict.fromkeys(re.findall(r":doc:`(\w+ <.*?>)`", text))  # in the order of the tables
    text += "\n".join([".. toctree::", "   :hidden:", "", *(f"   {page}" for page in pages), ""])
    (folder / "index.rst").write_text(text)


def prepare_docstring(app, what, name, obj, options, lines):
    """Prepare a docstring for numpydoc.

    The section Conventions of a base class becomes Notes, which numpydoc knows. ``name_`` is escaped in the
    types of parameters, where it would be a link.
    """
    for i, line in enumerate(lines):
        if line.strip() == "Conventions" and set(lines[i + 1].strip()) == {"-"}:
            lines[i : i + 2] = ["Notes", "-----", "**Conventions**", ""]
        elif found := re.fullmatch(r"(\w[\w, ]* : )(.*)", line):
            lines[i] = found[1] + re.sub(r"(?<![`\w])(\w+)_(?![`\w])", r"\1\\_", found[2])


def _estimators(folder):
    members = [getattr(skcrf, name) for name in skcrf.__all__ if not name.startswith("_")]
    rows = [(_link(folder, cls, "skcrf"), _summary(cls)) for cls in members if inspect.isclass(cls)]
    return "\n".join([_title("Estimators"), _table(("Name", "Description"), rows)])


def _inference(folder):
    rows = [
        (
            f"``{name!r}`` {_link(folder, cls)}",
            _summary(cls),
            ", ".join(sorted(cls.tasks)),
            {None: "–", "forest": "on forests", "any": "always"}[cls.exact_on],
            cls.bound or "–",
            "edges, factors" if "factor" in cls.layouts else "edges",
        )
        for name, cls in INFERENCE.items()
    ]
    text = "Pass a name or an instance as ``inference=``. The tests check the properties in the columns.\n"
    header = ("Name and class", "Description", "Tasks", "Exact", "Bound of log_z", "Graphs with")
    return "\n".join([_title("Inference"), text, _table(header, rows)])


def _losses(folder):
    rows = [
        (
            f"``{name!r}`` {_link(folder, cls)}",
            _summary(cls),
            ", ".join(sorted(cls.needs)) or "–",
            {"any": "any", "pairwise": "with edges", "lattice": "lattices"}[cls.graphs],
            "yes" if cls().is_smooth else "–",
            "yes" if cls().site_weighted else "–",
            f"``{default_optimizer(cls(), TRW(), is_linear=True)!r}``",
        )
        for name, cls in LOSSES.items()
    ]
    text = (
        "Pass a name or an instance as ``loss=``. The columns list the outputs of the inference that are "
        "differentiated, the supported graphs, whether the loss is smooth, whether it supports "
        "``class_weight``, and the optimizer that ``optimizer='auto'`` selects with ``inference='trw'``.\n"
    )
    header = (
        "Name and class",
        "Description",
        "Differentiates",
        "Graphs",
        "Smooth",
        "Class weights",
        "Optimizer",
    )
    return "\n".join([_title("Losses"), text, _table(header, rows)])


def _bases(folder):
    bases = [
        member
        for registry in (INFERENCE, LOSSES, GRADIENTS, OPTIMIZERS)
        for member in next(iter(registry.values())).__mro__
        if member.__name__.startswith("Base") and member.__module__.startswith("skcrf")
    ]
    rows = [(_link(folder, cls), _summary(cls)) for cls in dict.fromkeys([*bases, Beliefs])]
    text = "For new components; see :doc:`../add_inference` and :doc:`../add_loss`.\n"
    return "\n".join([_title("Base classes"), text, _table(("Name", "Description"), rows)])


def _public(module):
    named = getattr(module, "__all__", None)
    return named or [
        name
        for name, member in vars(module).items()
        if not name.startswith("_") and getattr(member, "__module__", None) == module.__name__
    ]


def _home(member):
    """Return the public module that users import a member from."""
    parts = member.__module__.split(".")
    while len(parts) > 1 and (parts[-1].startswith("_") or _in_parent(member, parts)):
        parts.pop()
    return ".".join(parts)


def _in_parent(member, parts):
    parent = importlib.import_module(".".join(parts[:-1]))
    return len(parts) > 2 and getattr(parent, member.__name__, None) is member


def _link(folder, member, home=None):
    """Write the page of a class or function and return a link to it."""
    home = home or _home(member)
    name = f"{home}.{member.__name__}"
    page = folder / f"{name}.rst"
    kind = "class" if inspect.isclass(member) else "function"
    lines = [
        _title(member.__name__, "="),
        f".. currentmodule:: {home}\n",
        f".. auto{kind}:: {member.__name__}",
    ]
    if kind == "class":
        lines += _class_options(member)
    if any(re.search(rf"\b{member.__name__}\b", example.read_text()) for example in EXAMPLES):
        lines += ["", f".. minigallery:: {name}", "   :add-heading: Examples"]
    page.write_text("\n".join([*lines, ""]))
    return f":doc:`{member.__name__} <{name}>`"


def _class_options(member):
    """Return autodoc options that list the members defined in skcrf, not those of scikit-learn."""
    ours = {
        name: None
        for cls in reversed(member.__mro__)
        if cls.__module__.startswith("skcrf")
        for name, value in vars(cls).items()
        if not name.startswith("_")
        and not re.fullmatch("set_.*_request", name)
        and inspect.getdoc(value)
        and (inspect.isroutine(value) or isinstance(value, property))
    }
    return [f"   :members: {', '.join(ours)}", "   :member-order: bysource"] if ours else ["   :no-members:"]


def _summary(member):
    return inspect.getdoc(member).split("\n\n")[0].replace("\n", " ")


def _title(text, line="-"):
    return f"{text}\n{line * len(text)}\n"


def _table(header, rows):
    lines = [".. list-table::", "   :header-rows: 1", "   :align: left", ""]
    for row in [header, *rows]:
        cells = [f"     - {cell}".rstrip() for cell in row]
        lines += ["   * - " + cells[0].removeprefix("     - "), *cells[1:]]
    return "\n".join([*lines, ""])
