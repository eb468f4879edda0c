"""The input of the demo: the source files of the running Python's standard library."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOREIGN_FOLDERS: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})
"""Folders below the standard library that are not part of it."""


@dataclass(slots=True, frozen=True)
class SourceFile:
    """A file; the demo puts one task per file."""

    path: Path
    size_bytes: int


@dataclass(slots=True, frozen=True)
class Findings:
    """Result of examining a file."""

    sha256: str
    lines: int


def standard_library() -> Path:
    """Return the folder of the standard library."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(root: Path) -> Sequence[SourceFile]:
    """Return the Python files below ``root`` by path, without folders of other projects."""
    paths = (
        path
        for path in sorted(root.rglob("*.py"))
        if not FOREIGN_FOLDERS.intersection(path.relative_to(root).parts) and path.is_file()
    )
    return [SourceFile(path, path.stat().st_size) for path in paths]


def examine(path: Path) -> Findings:
    """Process one task: read the file, hash it, count its lines."""
    content = path.read_bytes()
    return Findings(hashlib.sha256(content).hexdigest(), content.count(b"\n"))
