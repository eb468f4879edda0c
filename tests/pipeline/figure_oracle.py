"""Compute the figures of the pipeline in plain Python, from events with the fields of the API."""

from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft.v1.task_pb2 import Task

GONE, TAKEN = Task.STATE_UNSPECIFIED, Task.TAKEN


def is_crossing(event):
    is_edge = GONE in (event.from_state, event.to_state)
    return bool(event.target) and is_edge and event.outcome != Task.DEPENDENCY_FAILED


def is_run_end(event):
    return event.from_state == TAKEN != event.to_state


def is_failure(event):
    was_open = event.from_state in (Task.READY, Task.DELAYED, TAKEN)
    return was_open and event.fingerprint != 0


def is_ended(event):
    has_ended = event.outcome not in (0, Task.BURIED_OUT)
    return has_ended and event.kind != ChangeEvent.TRUNCATE


FIGURE_ORACLE = {
    "put": lambda event: event.from_state == GONE and not is_crossing(event),
    "moved_in": lambda event: event.from_state == GONE and is_crossing(event),
    "taken": lambda event: event.to_state == TAKEN != event.from_state,
    "acknowledged": lambda event: event.from_state == TAKEN and event.outcome == Task.PROCESSED,
    "failed": lambda event: event.attempt_failed,
    "failures": is_failure,
    "buried": lambda event: event.to_state == Task.BURIED != event.from_state,
    "expired": lambda event: event.outcome == Task.EXPIRED,
    "ended": is_ended,
    "moved_out": lambda event: event.to_state == GONE and is_crossing(event),
}
"""Whether an event counts for a figure."""


def figures_of(events):
    """Return the number of events of each figure."""
    return {name: sum(map(is_counted, events)) for name, is_counted in FIGURE_ORACLE.items()}
