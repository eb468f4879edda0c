"""The retry policy of a task or a tube."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from taskraft_service.queue.entities.position import Position
from taskraft_service.queue.values import value


class Exhausted(IntEnum):
    """What happens to a task without attempts left; numbers are those of the contract."""

    BURY = 1
    DEAD_LETTER = 2
    REMOVE = 3


BACKOFF_MS_MAX: Final = 86_400_000
"""Default maximum of the delay, in ms: one day."""


@value
class RetryPolicy:
    """Number of attempts, and the delay before each.

    The delay before attempt n + 1 is ``backoff_ms * (factor_percent / 100) ** (n - 1)``, at most
    ``backoff_ms_max``, shortened by up to ``jitter_percent``.
    """

    attempts_max: int = 0
    """Maximum number of attempts; 0: unlimited."""
    backoff_ms: int = 0
    factor_percent: int = 200
    backoff_ms_max: int = BACKOFF_MS_MAX
    jitter_percent: int = 0
    exhausted: Exhausted = Exhausted.BURY
    position: Position = Position.IN_ORDER


NO_RETRY: Final = RetryPolicy()
"""Unlimited attempts without a delay."""
