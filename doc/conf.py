"""Sphinx configuration. Neither the build nor the built pages need a network."""

import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import api_pages  # noqa: E402

import skcrf  # noqa: E402

project = "skcrf"
author = "The skcrf developers"
copyright = "The skcrf developers"
version = release = skcrf.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode", "numpydoc", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["_build"]
default_role = "literal"  # single backticks in docstrings are code
suppress_warnings = ["config.cache"]  # the settings of the gallery cannot be pickled

numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("skcrf",),
    "reference_url": {"skcrf": None},
    "within_subsection_order": "ExampleTitleSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = f"skcrf {release}"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["skcrf.css"]
# Pages with wide tables or without subpages have no left sidebar.
html_sidebars = {page: [] for page in ["api/index", "gallery/*", *(page.stem for page in HERE.glob("*.rst"))]}
smartquotes = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 8,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def setup(app):
    """Write the API pages before Sphinx reads the sources."""
    api_pages.write(HERE / "api")
    # This must run before numpydoc (priority 500), which drops unknown sections.
    app.connect("autodoc-process-docstring", api_pages.prepare_docstring, priority=400)
    warnings.filterwarnings("ignore", message="Unknown section Conventions")
