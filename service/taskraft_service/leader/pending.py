"""Hold the commands that wait for the next log entry, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.leader.proposal import AppliedCommand, LeaderOverloaded, NotProposed


@dataclass(slots=True, frozen=True)
class ProposerLimits:
    """Bounds of what waits and of what is in flight."""

    entry_bytes: int
    entry_commands: int
    entries_in_flight: int
    pending_commands: int
    pending_bytes: int


@dataclass(slots=True, eq=False)
class PendingCommand:
    """A command that waits for an entry; ``deadline`` is a time of the event loop."""

    encoded: EncodedCommand
    future: asyncio.Future[AppliedCommand]
    deadline: float | None
    record_bytes: int = 0
    """Size of the command in its entry; counts while the command waits."""


class PendingCommands:
    """Commands that wait, bounded by number and bytes.

    Invariant: ``_bytes`` is the sum of what ``_line`` holds.
    """

    def __init__(self, limits: ProposerLimits, loop: asyncio.AbstractEventLoop) -> None:
        self._limits = limits
        self._loop = loop
        self._line: deque[PendingCommand] = deque()
        self._bytes = 0
        self.dropped = 0
        """Commands that left without an entry, since the process started."""

    def __len__(self) -> int:
        return len(self._line)

    @property
    def fills_an_entry(self) -> bool:
        """Tell whether what waits fills an entry."""
        return (
            len(self._line) >= self._limits.entry_commands
            or self._bytes >= self._limits.entry_bytes
        )

    def add(
        self, encoded: EncodedCommand, deadline: float | None
    ) -> asyncio.Future[AppliedCommand]:
        """Let a command wait; return the future of its outcome.

        Raises:
            Overloaded: too much waits already.
        """
        size = encoded.record_bytes
        if (
            len(self._line) >= self._limits.pending_commands
            or self._bytes + size > self._limits.pending_bytes
        ):
            raise LeaderOverloaded(f"{len(self._line)} commands wait already")
        future: asyncio.Future[AppliedCommand] = self._loop.create_future()
        self._line.append(PendingCommand(encoded, future, deadline, size))
        self._bytes += size
        return future

    def gather(self) -> list[PendingCommand]:
        """Take out the commands of the next entry, in order; at least one if any waits.

        Those that nobody waits for any more are dropped on the way.
        """
        gathered: list[PendingCommand] = []
        size = 0
        now = self._loop.time()
        while self._line and len(gathered) < self._limits.entry_commands:
            first = self._line[0]
            if gathered and size + first.record_bytes > self._limits.entry_bytes:
                break
            self._line.popleft()
            self._bytes -= first.record_bytes
            if first.future.done():
                self.dropped += 1
            elif first.deadline is not None and first.deadline <= now:
                self._drop(first, "its deadline passed")
            else:
                gathered.append(first)
                size += first.record_bytes
        return gathered

    def drop_all(self, why: str) -> None:
        """Let nothing wait any more."""
        while self._line:
            self._drop(self._line.popleft(), why)
        self._bytes = 0

    def _drop(self, pending: PendingCommand, why: str) -> None:
        self.dropped += 1
        if not pending.future.done():
            pending.future.set_exception(NotProposed(why))
