"""Apply committed entries in slices, so that the event loop can run between two slices."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from taskraft_replication.core.confchange import of_entry
from taskraft_replication.core.raft import RaftCore
from taskraft_replication.core.types import ConfState, Entry, EntryKind, LogIndex, Message
from taskraft_replication.effects import Effects
from taskraft_replication.machine import StateMachine
from taskraft_replication.membership.roster import with_roster
from taskraft_replication.storage.group_storage import GroupStorage

SLICE_ENTRIES_MAX: Final = 64
SLICE_BYTES_MAX: Final = 256 << 10
"""Maximum payload applied in one iteration of the event loop; takes some milliseconds."""


class ApplyListener(Protocol):
    """Receives the results of applied entries."""

    def applied(self, entries: Sequence[Entry], results: Sequence[object]) -> None:
        """Receive one result per entry."""

    def membership_changed(self, conf_state: ConfState) -> None:
        """Use a membership from now on; its entry is applied once the membership is stored."""


class Applier:
    """The queue of committed entries before the state machine.

    A membership change takes effect when it is applied, and must be durable before the state that
    contains it. The queue therefore waits while a membership change is being stored.
    """

    def __init__(
        self,
        core: RaftCore,
        machine: StateMachine,
        storage: GroupStorage,
        effects: Effects,
        listener: ApplyListener,
    ) -> None:
        self._core = core
        self._machine = machine
        self._storage = storage
        self._effects = effects
        self._listener = listener
        self._queue: deque[Message] = deque()
        self._position = 0
        self._is_blocked = False
        self._is_held = False
        """Whether the last results ended early; the machine may wait for other members."""

    @property
    def is_idle(self) -> bool:
        """Return whether all committed entries are applied."""
        return not self._queue

    @property
    def has_one_message(self) -> bool:
        """Return whether exactly one message waits, and none of its entries is applied."""
        return len(self._queue) == 1 and not self._position

    @property
    def has_work(self) -> bool:
        """Return whether another slice of entries can be applied now, or written."""
        if self._machine.is_writing:
            return True
        if not self._queue or self._is_blocked or (self._is_held and self._still_held()):
            return False
        return not self._machine.waits_for_disk(self._queue[0].entries[self._position])

    @property
    def waits_for_disk(self) -> bool:
        """Return whether committed entries wait because the state machine's disk is too slow."""
        if not self._queue or self._is_blocked or (self._is_held and self._still_held()):
            return False
        return self._machine.waits_for_disk(self._queue[0].entries[self._position])

    def _still_held(self) -> bool:
        self._is_held = self._machine.waits_for_members()
        return self._is_held

    def put(self, message: Message) -> None:
        """Queue a message to the apply worker."""
        self._queue.append(message)

    def advance(self) -> None:
        """Apply one slice, or do one step of the write of applied entries.

        Requires ``has_work``.
        """
        if self._machine.is_writing:
            self._machine.write_some()
            return
        assert self._queue
        assert not self._is_blocked
        message = self._queue[0]
        entries = _slice(message.entries, self._position)
        if entries:
            self._apply(entries)
        else:
            self._begin_change(message.entries[self._position])

    def _apply(self, entries: Sequence[Entry]) -> None:
        assert entries[0].index == self._machine.applied_index + 1, (
            "each entry is applied once, in order"
        )
        results = self._machine.apply(entries)
        if len(results) < len(entries):
            self._is_held = True
            entries = entries[: len(results)]
            if not entries:
                return
        assert self._machine.applied_index == entries[-1].index
        self._listener.applied(entries, results)
        message = self._queue[0]
        self._position += len(entries)
        if self._position == len(message.entries):
            self._queue.popleft()
            self._position = 0
            for reply in message.replies:
                self._core.step(reply)

    def _begin_change(self, entry: Entry) -> None:
        change = of_entry(entry)
        assert change is not None
        before = self._storage.memberships.at(LogIndex(entry.index - 1))
        after = self._core.apply_conf_change(change)
        conf_state = with_roster(after, change, before.roster)
        history = self._storage.memberships.add(
            entry.index, conf_state, self._machine.durable_index
        )
        self._is_blocked = True
        self._effects.store(
            partial(self._storage.save_memberships, history), partial(self._end_change, entry)
        )
        self._listener.membership_changed(conf_state)

    def _end_change(self, entry: Entry, _: None) -> None:
        self._is_blocked = False
        self._apply((entry,))
        self._effects.request_pump()


def _slice(entries: Sequence[Entry], position: int) -> Sequence[Entry]:
    """Return the entries of the next slice from ``position``; empty before a membership change."""
    end = position
    size = 0
    last = min(len(entries), position + SLICE_ENTRIES_MAX)
    while end < last and entries[end].kind is EntryKind.NORMAL and size < SLICE_BYTES_MAX:
        size += len(entries[end].data)
        end += 1
    return entries[position:end]
