"""Why a command, or one item of it, had no effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum

from taskraft_service.queue.values import value


class Reason(IntEnum):
    """Reason of a refusal; numbers and names are those of taskraft.v1.Error.Reason."""

    TUBE_NOT_FOUND = 1
    TASK_NOT_FOUND = 2
    SESSION_NOT_FOUND = 3
    GROUP_NOT_FOUND = 4
    SCHEDULE_NOT_FOUND = 5
    DEPENDENCY_NOT_FOUND = 7
    TUBE_EXISTS = 10
    KEY_TAKEN = 11
    REQUEST_ID_REUSED = 12
    GROUP_EXISTS = 13
    SCHEDULE_EXISTS = 14
    LEASE_STALE = 20
    WRONG_STATE = 21
    TUBE_BUSY = 22
    KIND_UNSUITABLE = 23
    DRIVER_MISSING = 24
    TUBE_FULL = 30
    RATE_LIMITED = 31
    LIMIT_REACHED = 32
    PAYLOAD_TOO_LARGE = 40
    INVALID_FIELD = 41
    TUBE_PAUSED = 50
    CURSOR_TRIMMED = 60
    FEED_MISMATCH = 61
    NOT_IMPLEMENTED = 70


@value
class Refusal:
    """Result of a command, or of one item, that had no effect.

    ``violations`` are pairs of a field and what is wrong with the field.
    """

    reason: Reason
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: tuple[tuple[str, str], ...] = ()


@value
class ItemRefusal:
    """Refusal of one item of a list; items are counted from 0."""

    item: int
    refusal: Refusal
