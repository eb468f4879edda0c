"""Say how often and how late a task is tried again."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from taskraft_service.queue.entities.position import Position
from taskraft_service.queue.values import value


class Exhausted(IntEnum):
    """What becomes of a task that is given up; numbers are those of the contract."""

    BURY = 1
    DEAD_LETTER = 2
    REMOVE = 3


BACKOFF_MS_MAX: Final = 86_400_000
"""Upper limit of the delay where the policy names none: one day."""


@value
class RetryPolicy:
    """How often and how late a task is tried again after a counted hand-back.

    The delay before attempt n + 1 is ``backoff_ms * (factor_percent / 100) ** (n - 1)``, at most
    ``backoff_ms_max``, shortened by up to ``jitter_percent``.
    """

    attempts_max: int = 0
    """How often the task may be taken; 0: without limit."""
    backoff_ms: int = 0
    factor_percent: int = 200
    backoff_ms_max: int = BACKOFF_MS_MAX
    jitter_percent: int = 0
    exhausted: Exhausted = Exhausted.BURY
    position: Position = Position.IN_ORDER


NO_RETRY: Final = RetryPolicy()
"""Tries for ever and at once."""
