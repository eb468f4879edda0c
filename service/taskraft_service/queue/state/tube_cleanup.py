"""Keep track of what truncated and dropped tubes have left in the store, until it is deleted."""

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
"""Number of the old tube, id to go on from, bytes of its name; the name follows."""


class TubeCleanup(dict[int, tuple[QueueTube, int]]):
    """The tubes whose tasks are being removed, by number, each with the id to go on from.

    A dictionary to read, which only its methods change. The oldest tube comes first. When all
    tasks of one have had their event, its keys are deleted as ranges with the next batch of writes.
    """

    __slots__ = ("_cleared",)

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self._cleared: list[int] = []

    def add(self, tube: QueueTube) -> None:
        """Take in a tube that is out of reach; an empty one needs no steps.

        The store may still have tasks of it that are gone.
        """
        if sum(tube.counters.states):
            self[tube.number] = (tube, 1)
        else:
            self._cleared.append(tube.number)

    def go_on(self, number: int, next_id: int) -> None:
        """Note that the tasks of a tube below an id are done."""
        self[number] = (self[number][0], next_id)

    def finish(self, number: int) -> None:
        """Note that all tasks of a tube are done."""
        del self[number]
        self._cleared.append(number)

    def collect(self, writes: list[Write]) -> None:
        """Append the deletion of all that lies under the keys of finished tubes to ``writes``."""
        for number in self._cleared:
            writes.extend(RangeDeletion(*tube_range(prefix, number)) for prefix in INSIDE_TUBES)
        self._cleared.clear()

    def meta(self) -> bytes:
        """Return what the meta record says of them."""
        parts = [_count.pack(len(self))]
        for tube, next_id in self.values():
            name = tube.name.encode()
            parts += (_removal.pack(tube.number, next_id, len(name)), name)
        return b"".join(parts)

    def restore_meta(self, meta: bytes, at: int, store: Store, limits: Limits) -> int:
        """Take over what the meta record says from ``at`` on; return where that ends."""
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
