"""Flush the state machine and delete old log segments, to bound the size of the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from taskraft_replication.core.types import LogIndex
from taskraft_replication.effects import Effects
from taskraft_replication.machine import StateMachine
from taskraft_replication.observer import RaftCounters
from taskraft_replication.storage.group_storage import GroupStorage

FLUSH_BYTES: Final = 16 << 20
FLUSH_ENTRIES: Final = 10_000
"""The state machine is flushed after this many bytes or entries of the log, whichever comes first.
A restart replays about this many bytes or entries at most, so the limits bound the restart time:
applying 100 000 entries of one put each takes 2.7 s of CPU time."""

FLUSH_PAUSE_SHARE: Final = 4
"""Between two flushes, at least ``FLUSH_ENTRIES`` divided by this number of entries are written,
even if the state machine has not yet applied the earlier entries."""

FLUSH_MEMBERSHIPS: Final = 100
"""Number of membership changes after which the state machine is flushed. The number is low, because
each change rewrites all changes since the last flush."""

KEPT_ENTRIES: Final = 10_000
"""Entries kept for followers that lag; a follower that is further behind gets a snapshot."""

KEPT_BYTES: Final = 128 << 20
"""Maximum total size of the kept entries in bytes, because a start reads the whole log."""


@dataclass(slots=True, frozen=True)
class TrimPolicy:
    """Limits for trimming the log: the triggers, and the entries that are kept."""

    flush_bytes: int = FLUSH_BYTES
    kept_entries: int = KEPT_ENTRIES
    kept_bytes: int = KEPT_BYTES
    flush_entries: int = FLUSH_ENTRIES


class Trimmer:
    """Flushes the state machine after enough log was written, then deletes old segments."""

    def __init__(
        self,
        machine: StateMachine,
        storage: GroupStorage,
        effects: Effects,
        policy: TrimPolicy,
        floor: Callable[[], LogIndex | None],
        counters: RaftCounters,
    ) -> None:
        """``floor`` returns the index above which entries are still needed, or None."""
        durable = machine.durable_index
        is_due = durable < storage.beyond(policy.flush_bytes)
        self.flush_at = 0 if is_due else policy.flush_bytes
        """Value of ``RaftCounters.log_bytes`` from which on ``flush`` is due."""
        self.flush_at_entries = policy.flush_entries - (storage.view.last_index() - durable)
        """Value of ``RaftCounters.entries`` from which on ``flush`` is due. Entries from before a
        restart count, so that the replay does not grow when a node is killed repeatedly."""
        self._machine = machine
        self._storage = storage
        self._effects = effects
        self._policy = policy
        self._floor = floor
        self._counters = counters
        self._is_busy = False

    def membership_changed(self) -> None:
        """Start a flush when too many memberships are stored."""
        if len(self._storage.memberships) >= FLUSH_MEMBERSHIPS:
            self.flush()

    def flush(self) -> None:
        """Flush the state machine and then trim the log, unless a flush is in progress."""
        if not self._is_busy:
            self.flush_at = self._counters.log_bytes + self._policy.flush_bytes
            self._is_busy = True
            self._effects.flush(self._machine.flush_durably, self._flushed)

    def _flushed(self, durable: LogIndex) -> None:
        policy, storage = self._policy, self._storage
        room = policy.flush_entries - (storage.view.last_index() - durable)
        pause = policy.flush_entries // FLUSH_PAUSE_SHARE
        self.flush_at_entries = self._counters.entries + max(room, pause)
        by_count = storage.view.last_index() - policy.kept_entries
        # The first entry that stays is applied, and so it is committed: see ``trim_start``.
        last = min(durable - 1, max(by_count, storage.beyond(policy.kept_bytes)))
        floor = self._floor()
        if floor is not None:
            last = min(last, floor)
        start = self._storage.trim_start(LogIndex(last))
        if start is None:
            self._is_busy = False
            return
        # Hide the entries before deleting them, so that no reader uses them during the deletion.
        self._storage.view.publish_start(start)
        self._effects.store(partial(self._storage.trim, start), self._trimmed)

    def _trimmed(self, _: None) -> None:
        self._is_busy = False
