"""Say what can become of a command that is proposed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from service.queue.commands import Result


@dataclass(slots=True)
class Outcome:
    """A command was applied: its result, and place and time of its entry."""

    index: int
    now_ms: int
    result: Result


class Overloaded(Exception):
    """More commands wait than may; nothing was proposed."""


class NotProposed(Exception):
    """The command was dropped before it reached the log: no effect, another node may take it."""


class OutcomeUnknown(Exception):
    """The command reached the log, and leadership was lost before it was applied."""


Failure: TypeAlias = NotProposed | OutcomeUnknown | Overloaded
"""What can prevent an outcome from being known."""
