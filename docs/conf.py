"""The documentation as a site, by Sphinx: `make docs`.

The source is the checkout, so that a link between documents leads somewhere in an editor, in a listing of the files and
on the site alike.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import xq  # noqa: E402

project = "xq"
author = "xq contributors"
copyright = author  # Sphinx calls it so
version = release = xq.__version__

extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE",
    "benchmarks/*.md", "examples/**.md",
]  # fmt: skip
exclude_patterns = [".*", "build", "**/node_modules", "docs/site", "docs/static"]

html_theme = "furo"
html_title = f"xq {release}"
html_baseurl = os.environ.get("XQ_DOCS_URL", "")
html_show_sourcelink = False
html_show_sphinx = False
html_extra_path = ["site"]  # the first page of the folder leads to that of the documents
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "../xq/serve/templates/favicon.svg"  # that of the console
html_search_scorer = str(HERE / "search.js")  # how-tos before the reference
html_theme_options = {"top_of_page_buttons": []}

smartquotes = False  # words with quotes are often code
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # SQL with marks of the documents

copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
