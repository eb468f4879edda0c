"""Map each unique key to the task that holds it.

The holder is the last task that was put with the key, until that task is deleted. A finished task
that is retained still holds its key, so that a producer can restart the task. Stored keys contain
the tube number, so truncating a tube frees its keys at once; the records are deleted later with the
tasks. Memory holds only the changes that are not in the store yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from taskraft_service.queue.store.keys import UNIQUE, prefix_stop, unique_key
from taskraft_service.queue.store.store import Store, Write

_holder = Struct(">Q")
NOBODY: Final = 0
"""Task id of a unique key without a holder."""


class UniqueKeys:
    """Hold the unique keys in use in all tubes."""

    __slots__ = ("_fresh", "_store")

    def __init__(self, store: Store) -> None:
        """Open the unique keys in ``store``."""
        self._store = store
        self._fresh: dict[bytes, int] = {}

    def find(self, tube: int, key: tuple[str, ...]) -> int:
        """Return the id of the task that holds a key, or ``NOBODY``."""
        place = unique_key(tube, key)
        task_id = self._fresh.get(place)
        if task_id is not None:
            return task_id
        record = self._store.get(place)
        if record is None:
            return NOBODY
        (stored,) = _holder.unpack(record)
        return int(stored)

    def claim(self, tube: int, key: tuple[str, ...], task_id: int) -> None:
        """Make a task the holder of a key, instead of any previous holder."""
        self._fresh[unique_key(tube, key)] = task_id

    def free(self, tube: int, key: tuple[str, ...], task_id: int) -> None:
        """Free the key of a deleted task, unless another task holds the key now."""
        if self.find(tube, key) == task_id:
            self._fresh[unique_key(tube, key)] = NOBODY

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield all keys in use with the ids of their tasks, in order; for digests."""
        stored = self._store.scan(UNIQUE, prefix_stop(UNIQUE))
        known = {place: int(_holder.unpack(record)[0]) for place, record in stored}
        for place, task_id in sorted((known | self._fresh).items()):
            if task_id != NOBODY:
                yield place, task_id

    def collect(self, writes: list[Write]) -> None:
        """Append the changes that are not in the store yet to ``writes``."""
        for place, task_id in self._fresh.items():
            writes.append((place, _holder.pack(task_id) if task_id != NOBODY else None))
        self._fresh.clear()
