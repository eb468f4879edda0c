"""Find the failed attempts among the events of a chunk."""

from __future__ import annotations

from collections.abc import Iterator
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


def failures_in(columns: ChangeColumns) -> Iterator[FailureEvent]:
    """Yield the failures in a chunk, in order.

    A chunk without failures, the usual case, costs one look at one column.
    """
    if not columns.fingerprint.strip(b"\0"):
        return
    texts = columns.texts
    kinds = unpack("b", columns.kind)
    states = unpack("b", columns.to_state)
    outcomes = unpack("b", columns.outcome)
    instants = unpack("q", columns.at_ms)
    tubes = unpack("i", columns.tube)
    ids = unpack("q", columns.task_id)
    reasons = unpack("i", columns.reason)
    messages = unpack("i", columns.message)
    for row, fingerprint in enumerate(unpack("q", columns.fingerprint)):
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
