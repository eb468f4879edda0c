"""Results and errors of a proposed command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.queue.operations.registry import Result


@dataclass(slots=True)
class AppliedCommand:
    """Result of an applied command, with timestamp and wall offset of its entry.

    ``index`` is that of the entry too. For a repeated request, ``index`` is that of the entry which
    executed the first request. All instants of the result are in cluster time, like ``now_ms``.
    """

    index: int
    now_ms: int
    wall_offset_ms: int
    result: Result


class CommandOutcome(asyncio.Future[AppliedCommand]):
    """The outcome of a command that was given to the proposer.

    ``then`` runs once, as soon as the outcome is known. Callbacks of a future run in a later turn
    of the event loop, behind the work on the next entry.
    """

    then: Callable[[CommandOutcome], None] | None = None

    def cancel(self, msg: str | None = None) -> bool:
        """Give the command up; return False if its outcome was known."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self.tell()
        return is_cancelled

    def fail(self, error: Exception) -> None:
        """Set the reason why the command has no result; without effect on a known outcome."""
        if not self.done():
            self.set_exception(error)
            self.tell()

    def tell(self) -> None:
        """Run ``then``."""
        then, self.then = self.then, None  # the function refers to this outcome
        if then is not None:
            then(self)


class LeaderOverloaded(Exception):
    """A limit of waiting work on the leader is reached; nothing was proposed."""


class CommandTooLarge(Exception):
    """The command is larger than a log entry can hold; a retry has the same outcome."""

    def __init__(self, size_bytes: int, bytes_max: int) -> None:
        super().__init__(
            f"the command has {size_bytes} bytes in the log, more than {bytes_max}; "
            f"split the request"
        )
        self.size_bytes = size_bytes
        self.bytes_max = bytes_max


class VersionTooLow(Exception):
    """The cluster version in force does not allow the command; nothing was proposed."""

    def __init__(self, needed: int, version: int) -> None:
        super().__init__(
            f"the operation needs cluster version {needed}, and the cluster is at cluster version "
            f"{version}; upgrade all members, then run `taskraft cluster upgrade`"
        )
        self.needed = needed
        self.version = version


class NotProposed(Exception):
    """The command was dropped before it reached the log; it had no effect and may be retried."""


class OutcomeUnknown(Exception):
    """The command reached the log, but leadership was lost before it was applied."""


SubmitFailure: TypeAlias = NotProposed | OutcomeUnknown | LeaderOverloaded | CommandTooLarge
"""Errors with which a proposed command can fail."""


class CommandSubmitter(Protocol):
    """Executes commands on replicated and temporary tubes."""

    def submit(
        self, encoded: EncodedCommand, deadline: float | None = None
    ) -> asyncio.Future[AppliedCommand]:
        """Execute a command.

        Args:
            encoded: the command.
            deadline: event loop time after which the caller no longer waits; a command that has not
                started by then is dropped.

        Returns:
            Future of the result; fails with NotProposed or OutcomeUnknown.

        Raises:
            LeaderOverloaded: the limit of pending commands is reached.
            CommandTooLarge: no log entry can hold the command.
            VersionTooLow: the cluster version in force does not allow the command.
            NotProposed: this node does not lead.
        """

    def wake(self) -> None:
        """Check in the next iteration of the event loop whether waiting consumers can be served."""
