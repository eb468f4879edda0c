"""Refusals: why a command, or one item of it, had no effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
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


def no_task(task_id: int) -> Refusal:
    """Return the refusal of a task id that does not exist."""
    return Refusal(
        Reason.TASK_NOT_FOUND, "the task does not exist, or it has ended", {"task_id": str(task_id)}
    )


def no_task_of_key(key: tuple[str, ...]) -> Refusal:
    """Return the refusal of a unique key that no task has."""
    return Refusal(Reason.TASK_NOT_FOUND, "no task has this key", {"key": "/".join(key)})


def key_taken(task_id: int) -> Refusal:
    """Return the refusal of a unique key that an unfinished task has."""
    return Refusal(
        Reason.KEY_TAKEN,
        f"task {task_id} has this unique key; wait for its end or set on_conflict",
        {"task_id": str(task_id)},
    )


def invalid(field: str, text: str, metadata: Mapping[str, str]) -> Refusal:
    """Return the refusal of a field; ``text`` says what is wrong with it."""
    return Refusal(
        Reason.INVALID_FIELD, f"{field}: {text}", {"field": field, **metadata}, ((field, text),)
    )


def together(refusals: Sequence[Refusal]) -> Refusal | None:
    """Return one refusal for all invalid fields, with the metadata of the first; None for none."""
    if len(refusals) < 2:
        return refusals[0] if refusals else None
    return replace(
        refusals[0],
        message="; ".join(refusal.message for refusal in refusals),
        violations=tuple(pair for refusal in refusals for pair in refusal.violations),
    )


def first_of(refusals: Sequence[Refusal]) -> Refusal:
    """Return the first refusal, with the violations of all refusals."""
    violations = tuple(pair for refusal in refusals for pair in refusal.violations)
    return replace(refusals[0], violations=violations)


def at_item(item: int, refusal: Refusal, path: str = "") -> Refusal:
    """Return the refusal of a whole request for one of its items at ``path``."""
    metadata = {**refusal.metadata, "item": str(item)}
    return within(replace(refusal, metadata=metadata), path)


def within(refusal: Refusal, path: str) -> Refusal:
    """Return the refusal of a request for a part of it at ``path``."""
    metadata = dict(refusal.metadata)
    if path and "field" in metadata:
        metadata["field"] = path + metadata["field"]
    violations = tuple((path + field, text) for field, text in refusal.violations)
    return replace(refusal, metadata=metadata, violations=violations)


@value
class CountResult:
    """Number of affected tasks, and the refused items.

    ``continue_after_id``: a filter did not scan the tasks above this id; 0: it scanned all.
    """

    count: int
    refused: Sequence[ItemRefusal] = ()
    continue_after_id: int = 0
