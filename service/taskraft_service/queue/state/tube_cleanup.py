"""Track the tasks of truncated and dropped tubes until their keys are deleted."""

from __future__ import annotations

from struct import Struct
from typing import Final

from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions, TubeView
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.orders.tube_orders import new_tube
from taskraft_service.queue.store.keys import INSIDE_TUBES, tube_range
from taskraft_service.queue.store.store import RangeDeletion, Store, Write

_count: Final = Struct(">I")
_removal: Final = Struct(">IQH")
"""Number of the tube, next task id to remove, length of its name; the name follows."""


class TubeCleanup(dict[int, tuple[QueueTube, int]]):
    """Truncated and dropped tubes by number, each with the next task id to remove.

    A dictionary that only its own methods change; the oldest tube comes first. When every task of a
    tube has had its event, the next batch of writes deletes the keys of the tube as ranges.
    """

    __slots__ = ("_cleared",)

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self._cleared: list[int] = []

    def add(self, tube: QueueTube) -> None:
        """Add a truncated or dropped tube.

        An empty tube needs no steps, but the store may have keys of it.
        """
        if sum(tube.counters.states):
            self[tube.number] = (tube, 1)
        else:
            self._cleared.append(tube.number)

    def go_on(self, number: int, next_id: int) -> None:
        """Note that the tasks of a tube below an id are removed."""
        self[number] = (self[number][0], next_id)

    def finish(self, number: int) -> None:
        """Note that all tasks of a tube are removed."""
        del self[number]
        self._cleared.append(number)

    def collect(self, writes: list[Write]) -> None:
        """Append the deletion of all keys of finished tubes to ``writes``."""
        for number in self._cleared:
            writes.extend(RangeDeletion(*tube_range(prefix, number)) for prefix in INSIDE_TUBES)
        self._cleared.clear()

    def meta(self) -> bytes:
        """Return the tubes in cleanup, for the meta record."""
        parts = [_count.pack(len(self))]
        for tube, next_id in self.values():
            name = tube.name.encode()
            parts += (_removal.pack(tube.number, next_id, len(name)), name)
        return b"".join(parts)

    def restore_meta(self, meta: bytes, at: int, store: Store, limits: Limits) -> int:
        """Read the tubes in cleanup from the meta record at ``at``; return where they end."""
        (count,) = _count.unpack_from(meta, at)
        at += _count.size
        for _ in range(count):
            number, next_id, name_bytes = _removal.unpack_from(meta, at)
            at += _removal.size
            name = meta[at : at + name_bytes].decode()
            at += name_bytes
            view = TubeView(name, TubeKind.FIFO, TubeOptions(), 0)
            self[number] = (new_tube(number, view, store, limits), next_id)
        return at
