"""Notice that files have changed: written anew, or replaced as Kubernetes replaces mounted ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class WatchedFiles:
    """Some files, and how they looked when somebody last asked."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self._seen = self._look()

    def changed(self) -> bool:
        """Tell whether a file looks different from what it was at the last call."""
        now = self._look()
        changed = now != self._seen
        self._seen = now
        return changed

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_marks, self.paths))


def _marks(path: Path) -> tuple[int, int, int] | None:
    """Return what tells one version of a file from the next; None: there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
