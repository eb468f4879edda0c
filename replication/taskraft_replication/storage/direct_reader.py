"""Read a file from the disk instead of the page cache.

The page cache can hold correct bytes of a file whose copy on disk is damaged. A direct read also
does not change the page cache, so a scan of all files evicts no pages.
"""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Final

ALIGNMENT: Final = 4096
"""Alignment of offset, size and memory of a direct read; a multiple of all usual sector sizes."""


class DirectReader:
    """An open file, for one thread.

    If the file system has no direct reads, the page cache is used.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
            self._is_direct = True
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._is_direct = False

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return os.fstat(self._file).st_size

    def read(self, offset: int, size: int) -> bytes:
        """Return at most ``size`` bytes from ``offset``; fewer only at the end of the file.

        Raises:
            OSError: the disk cannot read the bytes.
        """
        if not self._is_direct:
            return os.pread(self._file, size, offset)
        skipped = offset % ALIGNMENT
        length = -(-(skipped + size) // ALIGNMENT) * ALIGNMENT
        with mmap.mmap(-1, max(length, ALIGNMENT)) as memory:
            try:
                found = os.preadv(self._file, [memory], offset - skipped)
            except OSError as error:
                if error.errno != errno.EINVAL:  # EINVAL: the alignment is too small
                    raise
                self._is_direct = False
                return os.pread(self._file, size, offset)
            return memory[skipped : min(found, skipped + size)]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
