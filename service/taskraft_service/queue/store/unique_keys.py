"""Know which task has a unique key.

A key belongs to the last task that was put with it, until that task is gone: also while it is
finished and kept, so that a producer may restart it. Keys carry the tube's number, so those of a
truncated tube are out of reach at once; they are cleared away with its tasks. Only what the store
does not know yet is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from taskraft_service.queue.store.keys import UNIQUE, prefix_stop, unique_key
from taskraft_service.queue.store.store import Store, Write

_holder = Struct(">Q")
NOBODY: Final = 0
"""The task that is none."""


class UniqueKeys:
    """The keys in use, of all tubes."""

    __slots__ = ("_fresh", "_store")

    def __init__(self, store: Store) -> None:
        """Begin with what the store has."""
        self._store = store
        self._fresh: dict[bytes, int] = {}

    def find(self, tube: int, key: tuple[str, ...]) -> int:
        """Return the id of the task that has a key, or ``NOBODY``."""
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
        """Give a key to a task; who had it before has it no more."""
        self._fresh[unique_key(tube, key)] = task_id

    def free(self, tube: int, key: tuple[str, ...], task_id: int) -> None:
        """Take a key from a task that is gone, unless another has got it since."""
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
        """Append what the store does not have yet to ``writes``."""
        for place, task_id in self._fresh.items():
            writes.append((place, _holder.pack(task_id) if task_id != NOBODY else None))
        self._fresh.clear()
