"""Hold the bulk sweeps by their numbers; ended sweeps are kept for a bounded time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from taskraft_service.queue.entities.bulk_sweep import BULK_SWEEP_RECORD, BulkState, BulkSweep
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Number
from taskraft_service.queue.store.keys import BULK_NUMBER, BULK_SWEEP, bulk_sweep_key, prefix_stop
from taskraft_service.queue.store.store import Store, Write

_NUMBER: Final[FieldTable[dict[str, int]]] = FieldTable(dict, Number("number", "Q"))


class BulkSweepRegistry:
    """All bulk sweeps by number, and the sweeps that differ from the store.

    ``number`` is the number of the last sweep. ``open`` has the sweeps that have not ended, in the
    order of their start.
    """

    __slots__ = ("_by_number", "_dirty", "number", "open")

    def __init__(self) -> None:
        """Start empty."""
        self._by_number: dict[int, BulkSweep] = {}
        self._dirty: dict[int, None] = {}
        self.number = 0
        self.open: dict[int, BulkSweep] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[BulkSweep]:
        """Yield the sweeps in the order of their numbers."""
        return iter(self._by_number.values())

    def get(self, number: int) -> BulkSweep | None:
        """Return a sweep, or None."""
        return self._by_number.get(number)

    def find(self, number: int) -> BulkSweep | Refusal:
        """Return a sweep, or a refusal."""
        return self._by_number.get(number) or no_sweep(number)

    def add(self, sweep: BulkSweep, limits: Limits) -> None:
        """Add a sweep with the next number; forget the oldest ended sweep if there are too many."""
        self.number = sweep.number
        self._by_number[sweep.number] = self.open[sweep.number] = sweep
        self._dirty[sweep.number] = None
        if len(self._by_number) - len(self.open) > limits.bulk_sweeps_kept_max:
            self._forget(next(sweep for sweep in self if sweep.is_ended))

    def touch(self, sweep: BulkSweep) -> None:
        """Note that a sweep has changed."""
        self._dirty[sweep.number] = None
        if sweep.is_ended:
            self.open.pop(sweep.number, None)

    def open_of(self, principal: str) -> int:
        """Return the number of sweeps of a principal that run or wait."""
        return sum(sweep.request.principal == principal for sweep in self.open.values())

    def running(self) -> list[BulkSweep]:
        """Return the sweeps that change tasks now."""
        return [sweep for sweep in self.open.values() if sweep.state is BulkState.RUNNING]

    def forget_old(self, before_ms: int) -> None:
        """Forget the sweeps that ended before a wall time; called when a sweep starts."""
        for sweep in [each for each in self if each.is_ended and each.ended_ms < before_ms]:
            self._forget(sweep)

    def _forget(self, sweep: BulkSweep) -> None:
        del self._by_number[sweep.number]
        self._dirty[sweep.number] = None

    # ------------------------------------------------------------------------------- the store

    def collect(self, writes: list[Write]) -> None:
        """Append the changes since the last call to ``writes``."""
        if not self._dirty:
            return
        for number in self._dirty:
            sweep = self._by_number.get(number)
            writes.append(
                (bulk_sweep_key(number), None if sweep is None else BULK_SWEEP_RECORD.write(sweep))
            )
        writes.append((BULK_NUMBER, _NUMBER.write(self)))
        self._dirty.clear()

    def restore(self, store: Store) -> None:
        """Read all sweeps."""
        for key, record in store.scan(BULK_SWEEP, prefix_stop(BULK_SWEEP)):
            if key == BULK_NUMBER:
                self.number = _NUMBER.read(record)[0]["number"]
                continue
            sweep, _ = BULK_SWEEP_RECORD.read(record)
            self._by_number[sweep.number] = sweep
            if not sweep.is_ended:
                self.open[sweep.number] = sweep

    def digest_parts(self) -> Iterator[bytes]:
        """Yield the state that must be equal on all replicas."""
        yield _NUMBER.write(self)
        yield from map(BULK_SWEEP_RECORD.write, self)


def no_sweep(number: int) -> Refusal:
    """Return the refusal for a sweep that does not exist."""
    text = f"there is no bulk sweep {number}; ended sweeps are kept for 30 days"
    return Refusal(Reason.BULK_SWEEP_NOT_FOUND, text, {"number": str(number)})
