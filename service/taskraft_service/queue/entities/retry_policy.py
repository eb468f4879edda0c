"""Define the retry policy of a task or a tube, its checks, and the positions in the ready order."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from taskraft_service.queue.entities.refusal import Refusal, invalid, together
from taskraft_service.queue.values import value


class Position(IntEnum):
    """Position of a task; numbers are those of taskraft.v1.TaskSpec.Position."""

    IN_ORDER = 0
    FRONT = 1
    BACK = 2


class Exhausted(IntEnum):
    """Action on a task without attempts left; numbers are those of the contract."""

    BURY = 1
    DEAD_LETTER = 2
    REMOVE = 3


BACKOFF_MS_MAX: Final = 86_400_000
"""Default maximum of the delay, in ms: one day."""


@value
class RetryPolicy:
    """Maximum number of attempts, and the delay before each attempt.

    The delay after failed attempt n is ``backoff_ms * (factor_percent / 100) ** (n - 1)``, at most
    ``backoff_ms_max``, shortened by up to ``jitter_percent``. An attempt fails when the consumer
    releases the task with a failure, when the lease expires, or when the session ends. A lease
    that ends because of a change of leader is no failed attempt.
    """

    attempts_max: int = 0
    """Maximum number of failed attempts; 0: unlimited."""
    backoff_ms: int = 0
    factor_percent: int = 200
    backoff_ms_max: int = BACKOFF_MS_MAX
    jitter_percent: int = 0
    exhausted: Exhausted = Exhausted.BURY
    position: Position = Position.IN_ORDER


NO_RETRY: Final = RetryPolicy()
"""Unlimited attempts without a delay."""

SAFE_RETRY: Final = RetryPolicy(
    attempts_max=20, backoff_ms=1_000, backoff_ms_max=600_000, jitter_percent=20
)
"""Default of tubes without a profile: 20 failed attempts in at least 80 minutes, then BURIED."""

ATTEMPTS_MAX: Final = 1_000_000
FACTOR_PERCENT_MAX: Final = 100_000


def refusal_of_retry(
    policy: RetryPolicy, dead_letter_tube: str | None, path: str
) -> Refusal | None:
    """Return which fields of the retry policy at ``path`` are invalid, or None.

    ``dead_letter_tube`` is None if it is not known, as for the policy of a single task.
    """
    found = _violations(policy, dead_letter_tube)
    return together([invalid(f"{path}.{field}", text, {}) for field, text in found])


def _violations(policy: RetryPolicy, dead_letter_tube: str | None) -> Iterator[tuple[str, str]]:
    ranges = {
        "attempts_max": ATTEMPTS_MAX,
        "backoff_ms": None,
        "backoff_ms_max": None,
        "factor_percent": FACTOR_PERCENT_MAX,
        "jitter_percent": 100,
    }
    for field, most in ranges.items():
        number = getattr(policy, field)
        if number < 0 or (most is not None and number > most):
            yield field, f"{number} is not from 0 to {most}" if most else f"{number} is less than 0"
    if 0 <= policy.factor_percent < 100:
        yield "factor_percent", f"{policy.factor_percent} is less than 100: the delay would shrink"
    if policy.backoff_ms_max < policy.backoff_ms:
        yield (
            "backoff_ms_max",
            f"{policy.backoff_ms_max} is less than backoff_ms, {policy.backoff_ms}",
        )
    if policy.exhausted is Exhausted.DEAD_LETTER and dead_letter_tube == "":
        yield "exhausted", "DEAD_LETTER needs a dead_letter_tube"
