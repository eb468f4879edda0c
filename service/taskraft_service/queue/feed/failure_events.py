"""Find the failed attempts among the events of a chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import calcsize
from typing import Final, NamedTuple

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.task_state import BURIED, TaskOutcome
from taskraft_service.queue.feed.chunk import ChangeColumns, unpack

FAILURE_KINDS: Final = frozenset(
    (
        EventKind.RELEASE,
        EventKind.BURY,
        EventKind.TTR_EXPIRED,
        EventKind.SESSION_RELEASE,
        EventKind.STARTUP_RELEASE,
        EventKind.RELEASE_ALL,
        EventKind.SNATCH,
    )
)
"""Kinds of events that are failures if they have a fingerprint, as in the pipeline's reports.

The arrival of a task in a dead-letter tube has the cause too, but is not a second failure.
"""
_GIVEN_UP: Final = (TaskOutcome.FAILED, TaskOutcome.BURIED_OUT)


class FailureEvent(NamedTuple):
    """One failure; fields as in taskraft.v1.ChangeEvent.

    ``is_given_up``: the task was buried, removed, or moved to the dead-letter tube.
    """

    at_ms: int
    tube: str
    task_id: int
    reason: str
    message: str
    fingerprint: int
    is_given_up: bool


def failures_in(columns: ChangeColumns, first: int, last: int) -> Iterator[FailureEvent]:
    """Yield the failures in the rows ``first`` to ``last - 1`` of columns, in order."""

    def numbers(code: str, column: bytes) -> Sequence[int]:
        width = calcsize(code)
        return unpack(code, column[first * width : last * width])

    texts = columns.texts
    kinds = numbers("b", columns.kind)
    states = numbers("b", columns.to_state)
    outcomes = numbers("b", columns.outcome)
    instants = numbers("q", columns.at_ms)
    tubes = numbers("i", columns.tube)
    ids = numbers("q", columns.task_id)
    reasons = numbers("i", columns.reason)
    messages = numbers("i", columns.message)
    for row, fingerprint in enumerate(numbers("q", columns.fingerprint)):
        if fingerprint and kinds[row] in FAILURE_KINDS:
            yield FailureEvent(
                instants[row],
                columns.tubes[tubes[row]],
                ids[row],
                texts[reasons[row]],
                texts[messages[row]],
                fingerprint,
                states[row] == BURIED or outcomes[row] in _GIVEN_UP,
            )
