"""Define the states and the outcomes of a task."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    """State of a task; numbers are those of taskraft.v1.Task.State.

    GONE: the task does not exist.
    """

    GONE = 0
    READY = 1
    DELAYED = 2
    TAKEN = 3
    BURIED = 4
    DONE = 5
    ZOMBIE = 6
    HELD = 7


class TaskOutcome(IntEnum):
    """Outcome of a task that has ended; numbers are those of taskraft.v1.Task.Outcome.

    NONE: the task has not ended.
    """

    NONE = 0
    PROCESSED = 1
    FAILED = 2
    BURIED_OUT = 3
    EXPIRED = 4
    DELETED = 5
    TIMEOUT = 6
    """Answer to a wait that timed out; not an outcome of a task."""
    DEPENDENCY_FAILED = 7


GONE: Final = State.GONE
READY: Final = State.READY
DELAYED: Final = State.DELAYED
TAKEN: Final = State.TAKEN
BURIED: Final = State.BURIED
DONE: Final = State.DONE
ZOMBIE: Final = State.ZOMBIE
HELD: Final = State.HELD

OPEN: Final = (READY, DELAYED, TAKEN, HELD)
"""States of tasks that have neither ended nor been buried."""

FINISHED: Final = (DONE, ZOMBIE)
"""States of tasks that have ended and are retained."""

STATES: Final = tuple(State)
"""States by number."""
