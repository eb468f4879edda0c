"""Store the acts of management in the order of the log, for a bounded time.

The oldest record is deleted after ``audit_retention_ms``, or when more than ``audit_records_max``
records are stored. Memory holds only records that are not written yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Number, Size, Text, Texts
from taskraft_service.queue.store.keys import AUDIT, AUDIT_NUMBERS, audit_key, prefix_stop
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.values import value

NEVER_MS: Final = (1 << 63) - 1


@value
class AuditRecord:
    """One act of management with its effect.

    Args:
        at_ms: wall time of the act.
        index: log index of the act.
        tasks: number of changed tasks.
        refused: number of the reason of a refusal; 0: the act had its effect.
        act: the act.
    """

    at_ms: int
    index: int
    tasks: int
    refused: int
    act: ManagedAct


AUDIT_RECORD: Final = FieldTable(
    AuditRecord,
    Number("at_ms", "Q"),
    Number("index", "Q"),
    Number("tasks", "Q"),
    Number("refused", "B"),
    Size("B", "act.names"),
    Text("act.principal"),
    Text("act.peer"),
    Text("act.call"),
    Text("act.detail"),
    Texts("act.names"),
    parts={"act": ManagedAct},
)
_NUMBERS: Final[FieldTable[dict[str, int]]] = FieldTable(
    dict, Number("first", "Q"), Number("following", "Q")
)


class AuditTable:
    """The stored acts, in the order of the log.

    ``first`` is the number of the oldest act, ``following`` the number of the next act.
    """

    __slots__ = ("_fresh", "_store", "first", "following", "oldest_ms")

    def __init__(self, store: Store) -> None:
        """Use the records in ``store``; ``restore`` sets the numbers."""
        self._store = store
        self._fresh: dict[bytes, bytes | None] = {}
        self.first = 0
        self.following = 0
        self.oldest_ms = NEVER_MS
        """Time of the oldest record; 0 after ``restore``: the time is not known yet."""

    def add(self, record: AuditRecord, limits: Limits) -> None:
        """Store a record; delete the oldest one if there are too many."""
        if self.first == self.following:
            self.oldest_ms = record.at_ms
        self._fresh[audit_key(self.following)] = AUDIT_RECORD.write(record)
        self.following += 1
        if self.following - self.first > limits.audit_records_max:
            self._forget_first()

    def forget_old(self, before_ms: int, limits: Limits) -> None:
        """Delete the records that are older than a time; called once per entry if there are any."""
        for _ in range(limits.records_forgotten_max):
            if self.first == self.following:
                return
            self.oldest_ms = self.record(self.first).at_ms
            if self.oldest_ms >= before_ms:
                return
            self._forget_first()

    def record(self, number: int) -> AuditRecord:
        """Return the record with a number between ``first`` and ``following``, exclusive."""
        key = audit_key(number)
        stored = self._fresh[key] if key in self._fresh else self._store.get(key)
        assert stored is not None, f"there is no audit record {number}"
        record, _ = AUDIT_RECORD.read(stored)
        return record

    def _forget_first(self) -> None:
        self._fresh[audit_key(self.first)] = None
        self.first += 1
        if self.first == self.following:
            self.oldest_ms = NEVER_MS

    # ------------------------------------------------------------------------------- the store

    def collect(self, writes: list[Write]) -> None:
        """Append the changes since the last call to ``writes``."""
        if self._fresh:
            writes.extend(self._fresh.items())
            writes.append((AUDIT_NUMBERS, _NUMBERS.write(self)))
            self._fresh.clear()

    def restore(self, store: Store) -> None:
        """Read the numbers from a store."""
        numbers = store.get(AUDIT_NUMBERS)
        if numbers is not None:
            found, _ = _NUMBERS.read(numbers)
            self.first, self.following = found["first"], found["following"]
            self.oldest_ms = NEVER_MS if self.first == self.following else 0

    def digest_parts(self) -> Iterator[bytes]:
        """Yield the state that must be equal on all replicas."""
        yield _NUMBERS.write(self)
        known = dict(self._store.scan(AUDIT, prefix_stop(AUDIT)))
        known.pop(AUDIT_NUMBERS, None)
        for place, content in sorted((known | self._fresh).items()):
            if content is not None:
                yield place + content
