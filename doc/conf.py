"""Sphinx settings. Nothing here, and nothing in the built pages, needs a network."""

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
default_role = "literal"  # docstrings write `name` for what is code
suppress_warnings = [
    "config.cache"
]  # the gallery's settings are not picklable, which costs a rebuild, no more

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
# Pages with no others below them give the room of the sidebar to their text.
html_sidebars = {page: [] for page in ["gallery/*", *(page.stem for page in HERE.glob("*.rst"))]}
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
    """Write the API pages before Sphinx looks for sources, and keep the bases' conventions."""
    api_pages.write(HERE / "api")
    # numpydoc drops sections it does not know, so this must come before it (its priority is 500).
    app.connect("autodoc-process-docstring", api_pages.prepare_docstring, priority=400)
    warnings.filterwarnings("ignore", message="Unknown section Conventions")
