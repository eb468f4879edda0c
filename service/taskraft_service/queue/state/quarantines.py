"""Call the drivers of tubes, and put a tube into quarantine when its driver fails.

A failure changes nothing else: the task keeps the rank of its priority, and a task that cannot be
checked is accepted. Replicas with the same driver therefore stay equal.

A record stays when its tube is dropped or truncated: a member that replays the entry later asks the
other members whether their drivers failed too (decision 13).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from zlib import crc32

from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_driver import (
    ArrivingTask,
    DriverFailed,
    DriverHook,
    place_checked,
    refuse_checked,
)
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Number, Size, Text
from taskraft_service.queue.store.keys import QUARANTINE, prefix_stop, quarantine_key
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.values import value

QUARANTINES_MAX: Final = 100
"""Maximum number of kept records; the oldest records are deleted first."""


@value
class Quarantine:
    """The first failure of a tube's driver while an entry was applied.

    ``tube`` and ``name`` are the number and the name of the tube, ``hook`` is the method that
    failed. The text of the exception is left out: it may differ between members.
    """

    index: int
    tube: int
    hook: DriverHook
    name: str


QUARANTINE_RECORD: Final = FieldTable(
    Quarantine,
    Number("index", "Q"),
    Number("tube", "I"),
    Number("hook", "B", DriverHook),
    Size("H", "name"),
    Text("name"),
)


class Quarantines:
    """The last failures of drivers, by tube number, in order of their entries."""

    def __init__(self) -> None:
        """Start without quarantines."""
        self._by_tube: dict[int, Quarantine] = {}
        self._dirty: dict[int, Quarantine | None] = {}
        self.causes: dict[int, str] = {}
        """Texts of the exceptions of failures since the last fetch, by tube number; not stored."""

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers of the tubes, in order of the failures."""
        return iter(self._by_tube)

    @property
    def last_failure_index(self) -> int:
        """Return the entry of the last failure; 0: none is known."""
        return max((one.index for one in self._by_tube.values()), default=0)

    def add(self, tube: QueueTube, index: int, hook: DriverHook, cause: str) -> None:
        """Put a tube into quarantine: its driver failed while the entry ``index`` was applied."""
        tube.custom, tube.quarantined_at = None, index
        record = Quarantine(index, tube.number, hook, tube.name)
        self._by_tube[tube.number] = self._dirty[tube.number] = record
        self.causes[tube.number] = cause
        while len(self._by_tube) > QUARANTINES_MAX:
            oldest = next(iter(self._by_tube))
            del self._by_tube[oldest]
            self._dirty[oldest] = None

    def assign_rank(self, task: QueueTask, index: int, now_ms: int) -> None:
        """Ask the driver of a CUSTOM tube for the rank of a task that becomes READY.

        ``index`` is the entry that is being applied.
        """
        tube = task.tube
        if tube.custom is None:
            return  # an earlier task of the same step has put the tube into quarantine
        try:
            placement = place_checked(tube.custom, task.arrival(now_ms), tube.memory)
        except DriverFailed as error:
            self.add(tube, index, DriverHook.PLACE, str(error))
            return
        lane, _, task_id = task.order
        task.order = (lane, placement.rank, task_id)
        tube.memory = placement.memory

    def refusal_of(self, tube: QueueTube, arrival: ArrivingTask, index: int) -> Refusal | None:
        """Return why the driver of a tube does not accept a task, or None.

        ``index`` is the entry that is being applied.
        """
        if tube.custom is None:
            return None
        try:
            why = refuse_checked(tube.custom, arrival)
        except DriverFailed as error:
            self.add(tube, index, DriverHook.REFUSE, str(error))
            return None
        if not why:
            return None
        return Refusal(Reason.KIND_UNSUITABLE, why, {"tube": tube.name, "driver": tube.driver})

    def outcome_at(self, index: int) -> int | None:
        """Return a checksum of the failures while the entry ``index`` was applied; 0: no failure.

        None: the records of this entry may have been deleted. The entry must be applied.
        """
        records = [one for _, one in sorted(self._by_tube.items()) if one.index == index]
        if records:
            return crc32(b"".join(map(QUARANTINE_RECORD.write, records))) or 1
        is_full = len(self._by_tube) >= QUARANTINES_MAX
        if is_full and index <= min(one.index for one in self._by_tube.values()):
            return None
        return 0

    def fetch_causes(self) -> Mapping[str, str]:
        """Return the exceptions of drivers since the last call, by tube name."""
        causes = {self._by_tube[number].name: text for number, text in self.causes.items()}
        self.causes.clear()
        return causes

    def restore(self, store: Store, tubes: Mapping[int, QueueTube]) -> None:
        """Read all records, and put the tubes that still exist into quarantine."""
        for _, record in store.scan(QUARANTINE, prefix_stop(QUARANTINE)):
            one, _ = QUARANTINE_RECORD.read(record)
            self._by_tube[one.tube] = one
            tube = tubes.get(one.tube)
            if tube is not None:
                tube.custom, tube.quarantined_at = None, one.index
        by_index = sorted(self._by_tube.values(), key=lambda one: (one.index, one.tube))
        self._by_tube = {one.tube: one for one in by_index}

    def collect(self, writes: list[Write]) -> None:
        """Append the changes since the last call to ``writes``."""
        for number, one in self._dirty.items():
            record = None if one is None else QUARANTINE_RECORD.write(one)
            writes.append((quarantine_key(number), record))
        self._dirty.clear()

    def digest_parts(self) -> Iterator[bytes]:
        """Yield the records in order of the tube numbers."""
        return (QUARANTINE_RECORD.write(one) for _, one in sorted(self._by_tube.items()))
