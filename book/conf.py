"""Sphinx settings of the book. scripts/build_book.py puts pages and executed chapters into one folder and runs this."""

import re
from pathlib import Path

from smooth_topk.study.chapters import tau_explorer, training_demo

project = "Smooth Top-k"
author = "The Smooth Top-k contributors"
copyright = author
html_title = "Smooth Top-k"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinxcontrib.bibtex",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["results/**"]

# Notebooks come executed; their widgets are shown by the HTML next to them.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_mime_priority_overrides = [("html", "text/html", 0)]
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # what a cell shows as Markdown may hold a table
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
bibtex_bibfiles = ["references.bib"]

# Docstrings put names in single backticks.
default_role = "code"
smartquotes = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # what another package says of its own methods
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # one line per attribute
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Pages whose pictures, explorer or wide tables need the place of the contents next to them.
WHOLE_WIDTH = ("index", "explorer", "experiments", "api")
html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_search_scorer = str(Path(__file__).with_name("_static") / "scorer.js")
html_css_files = ["book.css"]
html_favicon = "_static/favicon.svg"
html_logo = "_static/logo.svg"
html_last_updated_fmt = None
html_show_copyright = False
html_context = {"default_mode": "auto"}  # light or dark as the reader's system
# Summaries of search results are fetched page by page, which a browser refuses for a book opened from a folder.
html_show_search_summary = False
html_theme_options = {
    "home_page_in_toc": True,
    "logo": {"text": "Smooth Top-k", "alt_text": ""},
    "navbar_persistent": [],
    "navigation_with_keys": False,
    "secondary_sidebar_items": {"**": ["page-toc.html"], **{name: [] for name in WHOLE_WIDTH}},
    "show_toc_level": 2,
    "article_header_end": ["evidence.html", "article-header-buttons.html"],
    "use_download_button": True,
    "use_fullscreen_button": False,
    "extra_footer": "",
}


SCRIPTS = {
    tau_explorer.TauExplorer.MARK: tau_explorer.JAVASCRIPT,
    training_demo.TrainingDemo.MARK: training_demo.JAVASCRIPT,
}


def inline_scripts(app, pagename, templatename, context, doctree):
    """Puts the scripts of explorers into their pages: a browser imports no module from file://."""
    for mark, script in SCRIPTS.items():
        if mark in context.get("body", ""):
            context["body"] += f'<script type="module">\n{script}</script>'


EXPLAINED = re.compile(r"Explained in notebooks/(?P<name>\w+)\.")
SECTION = re.compile(r"(Args|Returns|Raises|Yields|Example|Examples|Attributes|Note):\s*$")


def show_formulas_literally(app, what, name, obj, options, lines):
    """Turns an indented paragraph of a docstring, which is a formula in Unicode, into a literal block.

    Elsewhere a vertical bar is an absolute value or a union of types, never reStructuredText's substitution. The
    chapter that explains a function becomes a link where the book has that chapter.
    """
    result, margin, previous = [], "", ""
    for line in lines:
        indented = line.startswith("    ")
        if indented and not previous and not SECTION.match(margin) and not margin.endswith("::"):
            result += [".. code-block:: text", ""]
            margin = "::"
        explained = EXPLAINED.match(line)
        if explained and f"chapters/{explained['name']}" in app.env.found_docs:
            line = f"Explained in :doc:`/chapters/{explained['name']}`."
        verbatim = indented and (margin.startswith("Example") or margin.endswith("::"))
        shown = line if verbatim else without_substitutions(line)
        # Of "Returns: The loss: a scalar" napoleon would take the first two words for a type.
        result.append(":returns:" if line == "Returns:" else shown)
        previous = line.strip()
        if line.strip() and not indented:
            margin = line.rstrip()
    lines[:] = result


def without_substitutions(line):
    """Escapes the vertical bars of a line outside of backticks."""
    return "`".join(part if i % 2 else part.replace("|", r"\|") for i, part in enumerate(line.split("`")))


def setup(app):
    app.connect("html-page-context", inline_scripts)
    app.connect("autodoc-process-docstring", show_formulas_literally, priority=400)  # before napoleon's 500
