"""Tell the transitions of a task in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft.v1.task_pb2 import Task
from taskraft_console.views.readable import plain_text, readable_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

TITLES: Final[Mapping[int, str]] = {
    ChangeEvent.PUT: "put",
    ChangeEvent.TAKE: "taken",
    ChangeEvent.ACK: "acknowledged",
    ChangeEvent.RELEASE: "released by its holder",
    ChangeEvent.BURY: "buried",
    ChangeEvent.KICK: "kicked",
    ChangeEvent.DELETE: "deleted",
    ChangeEvent.DELAY_DUE: "delay ended",
    ChangeEvent.TTR_EXPIRED: "time to run ended",
    ChangeEvent.TTL_EXPIRED: "time to live ended",
    ChangeEvent.SESSION_RELEASE: "released: its session ended",
    ChangeEvent.STARTUP_RELEASE: "released: its session did not return",
    ChangeEvent.SNATCH: "taken away from its holder",
    ChangeEvent.RESTART: "restarted",
    ChangeEvent.SWITCH: "state changed",
    ChangeEvent.MOVE: "moved here",
    ChangeEvent.RELEASE_ALL: "released with all tasks of the tube",
    ChangeEvent.GROUP_START: "group started",
    ChangeEvent.DEPENDENCIES_DONE: "last dependency ended",
    ChangeEvent.DEPENDENCY_FAILED: "dependency failed",
}
_BAD: Final = frozenset(
    {
        ChangeEvent.BURY,
        ChangeEvent.TTR_EXPIRED,
        ChangeEvent.TTL_EXPIRED,
        ChangeEvent.SESSION_RELEASE,
        ChangeEvent.STARTUP_RELEASE,
        ChangeEvent.DEPENDENCY_FAILED,
    }
)


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """One transition of a task."""

    at_ms: int
    title: str
    mark: str
    """Mark of the step in the timeline: "bad", "good", "taken" or empty."""
    state: str
    """State after the transition; empty: the task ended."""
    detail: str


def timeline_of(events: Sequence[ChangeEvent]) -> Iterator[TimelineStep]:
    """Yield the transitions in the order of time; the events are newest first."""
    for event in reversed(events):
        parts: list[str] = []
        if event.kind == ChangeEvent.TAKE:
            parts.append(f"attempt {event.attempt}")
            parts.append(f"by {plain_text(event.session, 60)}")
            parts.append(f"waited {readable_duration(event.at_ms - event.since_ms)}")
        elif event.from_state == Task.State.TAKEN:
            parts.append(f"ran {readable_duration(event.at_ms - event.since_ms)}")
            if event.session:
                parts.append(f"held by {plain_text(event.session, 60)}")
        if event.reason or event.message:
            cause = ": ".join(filter(None, (event.reason, event.message)))
            parts.append(plain_text(cause, 300))
        if event.target:
            parts.append(plain_text(event.target, 160))
        is_bad = event.kind in _BAD or (event.kind == ChangeEvent.RELEASE and bool(event.reason))
        mark = "bad" if is_bad else "good" if event.kind == ChangeEvent.ACK else ""
        if event.kind == ChangeEvent.TAKE:
            mark = "taken"
        state = Task.State.Name(event.to_state) if event.to_state else ""
        yield TimelineStep(
            event.at_ms, TITLES.get(event.kind, "changed"), mark, state, ", ".join(parts)
        )
