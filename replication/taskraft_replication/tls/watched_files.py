"""Detect files that were rewritten, or replaced as Kubernetes replaces mounted secrets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class WatchedFiles:
    """A set of files, with their state at the last check."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self._seen = self._look()

    def changed(self) -> bool:
        """Return whether a file has changed since the last call."""
        now = self._look()
        changed = now != self._seen
        self._seen = now
        return changed

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_marks, self.paths))


def _marks(path: Path) -> tuple[int, int, int] | None:
    """Return inode, modification time and size of a file, or None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
