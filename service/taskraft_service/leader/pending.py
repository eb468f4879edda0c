"""Queue the commands that wait for the next log entry, in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.leader.command_submitter import (
    CommandOutcome,
    CommandTooLarge,
    LeaderOverloaded,
    NotProposed,
)
from taskraft_service.limits import COMMAND_BYTES_MAX, ENTRY_ITEMS_MAX
from taskraft_service.queue.operations.registry import Command, items_of


@dataclass(slots=True, frozen=True)
class ProposerLimits:
    """Limits of pending commands and of entries in flight."""

    entry_bytes: int
    entry_commands: int
    entries_in_flight: int
    pending_commands: int
    pending_bytes: int


@dataclass(slots=True, eq=False)
class PendingCommand:
    """A command that waits for an entry; ``deadline`` is event loop time."""

    encoded: EncodedCommand
    outcome: CommandOutcome
    deadline: float | None
    record_bytes: int = 0
    """Size of the command in its entry, in bytes; counts against the limit while the command
    waits."""
    leases: int = 0
    """Number of leases that the command ends; 0 for a command within the limits."""


class LeaseCounts(Protocol):
    """Lease counts of the queue, as the limits need them."""

    def leases_ended_by(self, command: Command) -> int:
        """Return the number of existing leases and sessions that a command ends."""

    def lease_count(self) -> int:
        """Return the number of existing leases and sessions."""


class PendingCommands:
    """Commands that wait for an entry, limited by number and bytes.

    Above the limits, commands that end leases are still accepted, because an overloaded queue must
    be able to shrink. The number of leases that these commands end is limited to the number of
    existing leases. The size of all commands is limited to twice the limit.

    Invariant: ``_bytes`` is the sum of the sizes in ``line``, and ``_leases_beyond`` is the sum of
    the leases.
    """

    def __init__(
        self, limits: ProposerLimits, lease_counts: LeaseCounts, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._limits = limits
        self._lease_counts = lease_counts
        self._leases_beyond = 0
        self._loop = loop
        self.line: Final[deque[PendingCommand]] = deque()
        """The waiting commands in order of arrival; only this class changes it."""
        self._bytes = 0
        self.dropped = 0
        """Number of commands since the process started that never reached an entry."""

    @property
    def fills_an_entry(self) -> bool:
        """Return whether the pending commands fill an entry."""
        return (
            len(self.line) >= self._limits.entry_commands or self._bytes >= self._limits.entry_bytes
        )

    def add(self, encoded: EncodedCommand, deadline: float | None) -> CommandOutcome:
        """Enqueue a command; return its outcome.

        Raises:
            LeaderOverloaded: the limit of pending commands or bytes is reached.
            CommandTooLarge: the command exceeds ``COMMAND_BYTES_MAX``, so no entry can hold it.
        """
        size = len(encoded.head) + len(encoded.raw)
        if size > COMMAND_BYTES_MAX:
            raise CommandTooLarge(size, COMMAND_BYTES_MAX)
        leases = 0
        if (
            len(self.line) >= self._limits.pending_commands
            or self._bytes + size > self._limits.pending_bytes
        ) and not encoded.is_owed:
            leases = self._leases_to_end(encoded.command, size)
            if not leases:
                raise LeaderOverloaded(
                    f"{len(self.line)} commands already wait for a log entry; retry later"
                )
        outcome = CommandOutcome(loop=self._loop)
        self.line.append(PendingCommand(encoded, outcome, deadline, size, leases))
        self._bytes += size
        self._leases_beyond += leases
        return outcome

    def _leases_to_end(self, command: Command, size: int) -> int:
        """Return the number of leases that a command beyond the limits ends.

        0 means that the command must be refused.
        """
        leases = self._lease_counts.leases_ended_by(command)
        is_within = (
            self._leases_beyond + leases <= self._lease_counts.lease_count()
            and self._bytes + size <= 2 * self._limits.pending_bytes
        )
        return leases if is_within else 0

    def gather(self) -> list[PendingCommand]:
        """Dequeue the commands of the next entry, in order; at least one if any are pending.

        Cancelled commands and commands past their deadline are dropped.
        """
        gathered: list[PendingCommand] = []
        size = items = 0
        now = self._loop.time()
        while self.line and len(gathered) < self._limits.entry_commands:
            first = self.line[0]
            if gathered:
                # Most entries have one command, whose items need not be counted.
                items = items or items_of(gathered[0].encoded.command)
                items += items_of(first.encoded.command)
                if size + first.record_bytes > self._limits.entry_bytes or items > ENTRY_ITEMS_MAX:
                    break
            self.line.popleft()
            self._bytes -= first.record_bytes
            self._leases_beyond -= first.leases
            if first.outcome.done():
                self.dropped += 1
            elif first.deadline is not None and first.deadline <= now:
                self._drop(first, "the deadline passed before the command reached a log entry")
            else:
                gathered.append(first)
                size += first.record_bytes
        return gathered

    def drop_all(self, why: str) -> None:
        """Fail all pending commands with NotProposed."""
        while self.line:
            self._drop(self.line.popleft(), why)
        self._bytes = self._leases_beyond = 0

    def _drop(self, pending: PendingCommand, why: str) -> None:
        self.dropped += 1
        pending.outcome.fail(NotProposed(why))
