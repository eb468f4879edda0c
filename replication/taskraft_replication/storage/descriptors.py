"""Keep file descriptors in reserve, so that files can be opened when no descriptor is left.

The ports of a node refuse connections before the descriptors run out. The reserve is a second
protection, because a node stops if its log cannot open the next segment.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Lock
from typing import Final

RESERVED: Final = 8
"""Number of descriptors in reserve: for a new log segment, its directory, metadata and a
snapshot."""

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})


class DescriptorReserve:
    """Descriptors that are held open and released when a file needs one; usable on any thread."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._spare: list[int] = []
        self._lock = Lock()

    def __len__(self) -> int:
        """Return the number of descriptors in reserve."""
        return len(self._spare)

    def open(self, path: Path, flags: int, mode: int = 0o640) -> int:
        """Open a file as ``os.open`` does; release reserved descriptors if no other is left.

        Raises:
            OSError: the file cannot be opened, or no descriptor is left, not even in reserve.
        """
        while True:
            try:
                descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
            except OSError as error:
                if error.errno not in _EXHAUSTED or not self._give_up_one():
                    raise
            else:
                self._fill()
                return descriptor

    def _give_up_one(self) -> bool:
        with self._lock:
            if not self._spare:
                return False
            os.close(self._spare.pop())
            return True

    def _fill(self) -> None:
        """Refill the reserve while descriptors are available."""
        if len(self._spare) == self._count:
            return
        with self._lock:
            while len(self._spare) < self._count:
                try:
                    self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                except OSError as error:
                    if error.errno not in _EXHAUSTED:
                        raise
                    return


RESERVE: Final = DescriptorReserve(RESERVED)
"""The reserve of this process; filled when it opens the first file."""
