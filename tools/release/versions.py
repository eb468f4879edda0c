"""Know each place of the repository that has the version of the distributions.

Tools such as pip, cargo and Kustomize read their own files, so the version stands in several files.
Only ``make prepare-release`` writes the version, into all places at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Place:
    """A file with the version."""

    name: str
    before: str
    """Regular expression of the text in front of the version. Each match is a place."""

    def versions(self, root: Path) -> list[str]:
        """Return the version at each match."""
        return [match[2] for match in self._pattern().finditer((root / self.name).read_text())]

    def write(self, root: Path, version: str) -> None:
        """Write a version at each match."""
        path = root / self.name
        path.write_text(self._pattern().sub(rf"\g<1>{version}", path.read_text()))

    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"({self.before})({VERSION.pattern})")


_PROJECT: Final = '\nversion = "'
SOURCE: Final = Place("clients/python/src/taskraft/__init__.py", '\n__version__: Final = "')
"""The version in force: that of the client, which has no other place at run time."""
PLACES: Final = (
    SOURCE,
    Place("pyproject.toml", _PROJECT),
    Place("clients/python/pyproject.toml", _PROJECT),
    Place("console/pyproject.toml", _PROJECT),
    Place("pipeline/pyproject.toml", _PROJECT),
    Place("edge/pyproject.toml", _PROJECT),
    Place("edge/Cargo.toml", _PROJECT),
    Place("edge/Cargo.lock", '\nname = "taskraft-edge"\nversion = "'),
    Place("k8s/overlays/prod/kustomization.yaml", "newTag: "),
    Place("docs/kubernetes.md", r"/taskraft:|/taskraft-manifests:|\?ref=v"),
    Place("README.md", r"\*\*Version "),
)


def current_version(root: Path) -> str:
    """Return the version of a checkout."""
    (version,) = SOURCE.versions(root)
    return version


def differing_places(root: Path, version: str) -> list[str]:
    """Return one line for each file that lacks the version, or has another version."""
    problems = []
    for place in PLACES:
        found = place.versions(root)
        if set(found) != {version}:
            shown = ", ".join(found) or "no version"
            problems.append(f"{place.name} has {shown}; expected {version}")
    return problems


def write_version(root: Path, version: str) -> None:
    """Write a version into all places."""
    for place in PLACES:
        place.write(root, version)
