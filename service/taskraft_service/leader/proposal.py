"""Say what can become of a command that is proposed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.queue.operations.registry import Result


@dataclass(slots=True)
class AppliedCommand:
    """A command was applied: its result, and place and time of its entry."""

    index: int
    now_ms: int
    result: Result


class LeaderOverloaded(Exception):
    """More commands wait than may; nothing was proposed."""


class NotProposed(Exception):
    """The command was dropped before it reached the log: no effect, another node may take it."""


class OutcomeUnknown(Exception):
    """The command reached the log, and leadership was lost before it was applied."""


SubmitFailure: TypeAlias = NotProposed | OutcomeUnknown | LeaderOverloaded
"""What can prevent an outcome from being known."""


class CommandSubmitter(Protocol):
    """Does commands, wherever their tasks are."""

    def submit(
        self, encoded: EncodedCommand, deadline: float | None = None
    ) -> asyncio.Future[AppliedCommand]:
        """Do a command.

        Args:
            encoded: the command.
            deadline: time of the event loop from which on nobody waits for the outcome; a command
                that is not done by then never is.

        Returns:
            The outcome; fails with NotProposed or OutcomeUnknown.

        Raises:
            Overloaded: too much waits already.
            NotProposed: this node does not lead.
        """

    def wake(self) -> None:
        """Look soon whether those who wait can have something."""
