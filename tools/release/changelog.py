"""Find the section of a release in CHANGELOG.md, and make the section from "Unreleased"."""

from __future__ import annotations

import re
from typing import Final

NAME: Final = "CHANGELOG.md"
UNRELEASED: Final = "## [Unreleased]\n"
HEADING: Final = re.compile(r"^## \[.*\n", re.MULTILINE)
DATE: Final = r"\d{4}-\d{2}-\d{2}"


class ChangelogInvalid(Exception):
    """The changelog cannot be released; the text says why and what to do."""


def unreleased(text: str) -> str:
    """Return the content of the section "Unreleased", without white space around the content.

    Raises:
        ChangelogInvalid: there is no such section.
    """
    _, heading, rest = text.partition(UNRELEASED)
    if not heading:
        raise ChangelogInvalid(f'{NAME} has no section "{UNRELEASED.strip()}"; add the section')
    return HEADING.split(rest)[0].strip()


def has_section(text: str, version: str) -> bool:
    """Return whether a changelog has the section of a version, with its date."""
    pattern = rf"^## \[{re.escape(version)}\] - {DATE}$"
    return re.search(pattern, text, re.MULTILINE) is not None


def released(text: str, version: str, date: str) -> str:
    """Return a changelog in which the content of "Unreleased" is the section of a version.

    Args:
        text: the changelog.
        version: the version of the release, which must have no section yet.
        date: the day of the release, as YYYY-MM-DD.

    Raises:
        ChangelogInvalid: the version has a section already, or "Unreleased" is missing or empty.
    """
    if f"## [{version}]" in text:
        raise ChangelogInvalid(f"{NAME} has a section [{version}] already; choose a new version")
    if not unreleased(text):
        raise ChangelogInvalid(f'the section "Unreleased" of {NAME} is empty; list the changes')
    return text.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {date}\n", 1)
