"""Find what a checkout lacks to be the commit of a release."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.release import changelog
from tools.release.versions import differing_places

BEFORE_THE_FIRST: Final = "no release yet"
"""Words that a page must not contain in a release."""
PAGES: Final = ("*.md", "docs/*.md", "docs/*/*.md")


def release_problems(root: Path, version: str) -> list[str]:
    """Return the reasons why a checkout is not the release of a version."""
    problems = differing_places(root, version)
    text = (root / changelog.NAME).read_text()
    if not changelog.has_section(text, version):
        problems.append(f"{changelog.NAME} has no section [{version}] with a date")
    try:
        if changelog.unreleased(text):
            problems.append(f'{changelog.NAME} has changes in "Unreleased"')
    except changelog.ChangelogInvalid as error:
        problems.append(str(error))
    return problems + outdated_pages(root)


def outdated_pages(root: Path) -> list[str]:
    """Return one line for each page that says that there is no release."""
    paths = sorted(path for pattern in PAGES for path in root.glob(pattern))
    return [
        f'{path.relative_to(root)} says "{BEFORE_THE_FIRST}"; correct the page'
        for path in paths
        if BEFORE_THE_FIRST in path.read_text()
    ]
