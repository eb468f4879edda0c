"""Open the copy of a database that a snapshot consists of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from taskraft_service.storage.rocks import RocksStore

CACHE_BYTES: Final = 1 << 20
"""Memory for the blocks of an open copy, and for its unused write buffer."""


class FrozenStore:
    """The copy of a database, open for reading on any thread.

    Attributes:
        place: directory of the copy, owned by this object.
        store: the opened copy.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.store = RocksStore(place, CACHE_BYTES, CACHE_BYTES, read_only=True)

    def close(self) -> None:
        """Close the copy, and delete its files."""
        self.store.close()
        shutil.rmtree(self.place)
