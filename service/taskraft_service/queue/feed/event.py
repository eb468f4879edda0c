"""Make the events of the feed: one for each transition of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from taskraft_service.queue.entities.task_view import TaskOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft_service.queue.entities.life_cycle import EventKind
    from taskraft_service.queue.entities.task import QueueTask
    from taskraft_service.queue.entities.task_view import State
    from taskraft_service.queue.state.queue_state import QueueState

TUBE_STRIDE: Final = 0x9E3779B1
"""Moves the tasks of different tubes to different partitions; those of one tube go round."""
NO_OUTCOME: Final = TaskOutcome.NONE


class Event(NamedTuple):
    """One transition of one task; fields as in taskraft.v1.ChangeEvent, without its ``seq``."""

    revision: int
    place: int
    at_ms: int
    tube: str
    task_id: int
    kind: int
    from_state: int
    to_state: int
    attempt: int
    priority: int
    created_ms: int
    since_ms: int
    subqueue: str
    session: str
    reason: str
    type: str
    payload_bytes: int
    outcome: int


def emit(
    ledger: QueueState,
    run: Sequence[QueueTask],
    kind: EventKind,
    from_state: State,
    to_state: State,
    reason: str = "",
    outcome: TaskOutcome = NO_OUTCOME,
) -> None:
    """Append to the feed that each task of one tube makes the same transition, in order.

    The tasks are as the event shows them: they have their attempt and their session, and
    ``since_ms`` is still that of the state they leave. The hot paths come here once per run, and
    what is made are plain tuples: a named tuple costs twice as much.
    """
    if not run:
        return
    tube = run[0].tube
    name, salt = tube.name, tube.number * TUBE_STRIDE
    revision, place, at_ms = ledger.index, ledger.place, ledger.now_ms
    appends = ledger.feed.appends
    partitions = len(appends)
    for task in run:
        task_id, session = task.id, task.session
        appends[(salt + task_id) % partitions](
            (
                revision,
                place,
                at_ms,
                name,
                task_id,
                kind,
                from_state,
                to_state,
                task.attempt,
                task.priority,
                task.created_ms,
                task.since_ms,
                task.subqueue,
                session.label if session is not None else "",
                reason,
                task.type,
                task.payload_bytes,
                outcome,
            )
        )
        place += 1
    ledger.place = place
