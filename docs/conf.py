"""Configure Sphinx, which builds the site: `make docs`.

The source folder is the root of the repository, so that links between pages are the same in the
repository and on the site.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tools import (  # noqa: E402 - needs the path above
    command_reference,
    contract_reference,
    generated_pages,
    metrics_reference,
)

project = "taskraft"
author = "the authors of taskraft"
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "bench/README.md",
    "examples/**/README.md",
]
exclude_patterns = ["**/node_modules", "**/target", ".venv*", "var"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
napoleon_use_ivar = True
suppress_warnings = ["ref.python"]
"""A type such as `type` is also the name of an attribute; Sphinx then links neither."""
smartquotes = False  # the pages name options such as --target
default_role = "code"
"""Docstrings quote code with single backticks too."""

html_theme = "furo"
html_title = "taskraft"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False

GENERATED: dict[str, Callable[[], str]] = {
    "<!-- generated: commands -->": command_reference.text,
    "<!-- generated: contract -->": contract_reference.text,
    "<!-- generated: metrics -->": metrics_reference.text,
}
"""Comments in pages, each with the function that writes the text in its place."""

FOREIGN_ASSET = re.compile(
    r"""<(?:script|img|link|iframe)\b[^>]*(?:src|href)=["'](?:https?:)?//[^"']+"""
)

ROOTED_LINK = re.compile(r"""<(?:a|script|img|link|iframe)\b[^>]*(?:src|href)=["']/[^"']*""")
"""A link that names a path from the root of the host works under one path prefix only."""

START_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>taskraft</title>
<meta http-equiv="refresh" content="0; url=docs/index.html">
<a href="docs/index.html">taskraft</a>
"""


def check_generated(_app: Sphinx) -> None:
    """Fail if a generated page or picture in the repository is not of this version."""
    if complaints := generated_pages.complaints():
        raise ExtensionError("\n".join(complaints))


def insert_generated(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Replace the comments of a page by the generated text."""
    for comment, write in GENERATED.items():
        if comment in source[0]:
            source[0] = source[0].replace(comment, write())


class AttributeDocstrings:
    """Keep docstrings of attributes as they are; napoleon reads a text before ":" as a type."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def save(
        self, _app: Sphinx, _what: str, _name: str, _of: object, _options: object, lines: list[str]
    ) -> None:
        """Remember a docstring before napoleon changes it."""
        self.lines = list(lines)

    def restore(
        self, _app: Sphinx, what: str, _name: str, _of: object, _options: object, lines: list[str]
    ) -> None:
        """Restore the docstring of an attribute after napoleon has changed it."""
        if what in {"attribute", "property"}:
            lines[:] = self.lines


def check_offline(app: Sphinx, error: Exception | None) -> None:
    """Fail if a page of the site loads from another host, or has a link to the root of its host."""
    if error is None:
        for page in sorted(Path(app.outdir).rglob("*.html")):
            text = page.read_text()
            if found := FOREIGN_ASSET.search(text):
                raise ExtensionError(f"{page} needs another host: {found[0]}")
            if found := ROOTED_LINK.search(text):
                raise ExtensionError(f"{page} works under one path prefix only: {found[0]}")


def write_start_page(app: Sphinx, error: Exception | None) -> None:
    """Write the page that leads from the folder of the site to its first page."""
    if error is None:
        (Path(app.outdir) / "index.html").write_text(START_PAGE)


def setup(app: Sphinx) -> None:
    """Register the functions above."""
    app.connect("builder-inited", check_generated)
    app.connect("source-read", insert_generated)
    docstrings = AttributeDocstrings()
    app.connect("autodoc-process-docstring", docstrings.save, priority=400)
    app.connect("autodoc-process-docstring", docstrings.restore, priority=600)
    app.connect("build-finished", check_offline)
    app.connect("build-finished", write_start_page)
