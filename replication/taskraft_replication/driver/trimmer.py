"""Keep the log from growing without end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from taskraft_replication.core.types import LogIndex
from taskraft_replication.effects import Effects
from taskraft_replication.machine import StateMachine
from taskraft_replication.storage.group_storage import GroupStorage

FLUSH_BYTES: Final = 16 << 20
"""Log written after which the state machine is asked to become durable. A restart replays about as
much at most: the time that it may take decides."""

FLUSH_MEMBERSHIPS: Final = 100
"""The same by membership changes: all since the state was durable are stored again with each."""

KEPT_ENTRIES: Final = 10_000
"""Entries kept for followers that are a little behind; those further behind get a snapshot."""

KEPT_BYTES: Final = 128 << 20
"""The same in bytes, whichever is less: a start reads all of the log, and large entries add up."""


@dataclass(slots=True, frozen=True)
class TrimPolicy:
    """When the log is trimmed and what stays."""

    flush_bytes: int = FLUSH_BYTES
    kept_entries: int = KEPT_ENTRIES
    kept_bytes: int = KEPT_BYTES


class Trimmer:
    """Flushes the state machine when enough log was written, then deletes old segments."""

    def __init__(
        self,
        machine: StateMachine,
        storage: GroupStorage,
        effects: Effects,
        policy: TrimPolicy,
        floor: Callable[[], LogIndex | None],
    ) -> None:
        """``floor`` returns an index whose successors somebody still needs, if anybody does."""
        self._machine = machine
        self._storage = storage
        self._effects = effects
        self._policy = policy
        self._floor = floor
        self._bytes = 0
        self._is_busy = False

    def written(self, log_bytes: int) -> None:
        """Count what was written; begin a flush when it is enough."""
        self._bytes += log_bytes
        if self._bytes >= self._policy.flush_bytes:
            self._flush()

    def membership_changed(self) -> None:
        """Begin a flush when very many memberships must be known to a start."""
        if self._storage.memberships_stored >= FLUSH_MEMBERSHIPS:
            self._flush()

    def _flush(self) -> None:
        if not self._is_busy:
            self._bytes = 0
            self._is_busy = True
            self._effects.flush(self._machine.flush_durably, self._flushed)

    def _flushed(self, durable: LogIndex) -> None:
        policy, storage = self._policy, self._storage
        by_count = storage.view.last_index() - policy.kept_entries
        keep_from = min(durable, max(by_count, storage.beyond(policy.kept_bytes)))
        floor = self._floor()
        if floor is not None:
            keep_from = min(keep_from, floor)
        start = self._storage.trim_start(LogIndex(keep_from))
        if start is None:
            self._is_busy = False
            return
        # Hidden first, deleted afterwards: nobody reads what is going away.
        self._storage.view.publish_start(start)
        self._effects.store(partial(self._storage.trim, start), self._trimmed)

    def _trimmed(self, _: None) -> None:
        self._is_busy = False
