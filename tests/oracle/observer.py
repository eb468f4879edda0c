"""Observe the service from outside: its change feed, tasks, counters and sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskraft.v1 import (
    feed_service_pb2,
    session_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from tests.oracle.connection import Stubs
from tests.oracle.names import Names
from tests.oracle.operations import SUBQUEUE_KINDS, TIMED_KINDS, type_of
from tests.oracle.refusals import TUBE_NOT_FOUND, Refused
from tests.oracle.trace import Json

Kind = feed_service_pb2.ChangeEvent
Options = tube_service_pb2.TubeOptions
State = task_pb2.Task
LOCAL: Final = task_pb2.Consistency(level=task_pb2.Consistency.LOCAL)
FRESH: Final = task_pb2.Consistency()
PAGE_SIZE: Final = 1_000

RELEASES: Final = (Kind.RELEASE, Kind.SESSION_RELEASE, Kind.STARTUP_RELEASE, Kind.RELEASE_ALL)
_EVENT_NAMES: Final[Mapping[int, str]] = {
    Kind.PUT: "put",
    Kind.TAKE: "take",
    Kind.BURY: "bury",
    Kind.KICK: "kick",
    Kind.TOUCH: "touch",
    Kind.DELAY_DUE: "delay",
    Kind.TTR_EXPIRED: "ttr",
    Kind.ACK: "delete",
    Kind.DELETE: "delete",
    **dict.fromkeys(RELEASES, "release"),
}


@dataclass(slots=True, frozen=True)
class Seen:
    """A change of a task, with its log position."""

    revision: int
    kind: int
    tube: str
    task_id: int
    session: str
    from_state: int
    to_state: int

    def oracle_events(self) -> Iterator[tuple[str, str]]:
        """Yield the oracle's events for this change: name and state.

        The oracle reports the end of a TTL as a deletion; for a TAKEN task the end of the lease
        comes first.
        """
        if self.kind == Kind.TTL_EXPIRED:
            if self.from_state == State.TAKEN:
                yield "ttr", "READY"
            yield from (("delete", "DONE"), ("ttl", "DONE"))
        elif self.kind in _EVENT_NAMES:
            gone = self.to_state == State.STATE_UNSPECIFIED
            yield _EVENT_NAMES[self.kind], "DONE" if gone else State.State.Name(self.to_state)


class Observer:
    """Reads the state of the service. ``consistency`` is LOCAL while no node leads."""

    def __init__(self, stubs: Stubs, names: Names) -> None:
        self._stubs = stubs
        self._names = names
        self._next_seq = 0
        self._counted: dict[str, dict[str, int]] = {}
        """Counts of calls that the oracle has lost by a restart, by tube."""
        self.consistency = FRESH

    # ------------------------------------------------------------------------------ events

    def skip_events(self) -> None:
        """Skip all events so far."""
        self._next_seq = self._described().high_seq

    def events(self) -> list[Seen]:
        """Return the events since the last call, in order."""
        seen: list[Seen] = []
        high = self._described().high_seq
        while self._next_seq < high:
            request = feed_service_pb2.ReadChangesRequest(
                partition=0, from_seq=self._next_seq, to_seq=high
            )
            for piece in self._stubs.feed.ReadChanges(request, timeout=self._stubs.seconds):
                seen += [
                    Seen(
                        event.revision, event.kind, event.tube, event.task_id, event.session,
                        event.from_state, event.to_state,
                    )
                    for event in piece.events
                ]  # fmt: skip
                self._next_seq = piece.next_seq
        return seen

    def _described(self) -> feed_service_pb2.FeedPartition:
        request = feed_service_pb2.DescribeFeedRequest(consistency=self.consistency)
        (partition,) = self._stubs.call(self._stubs.feed.DescribeFeed, request).partitions
        return partition

    # ------------------------------------------------------------------------------ tubes

    def tubes(self) -> list[str]:
        """Return the names of all tubes."""
        return sorted(self._kinds())

    def _kinds(self, *, temporary: bool = True) -> dict[str, str]:
        """Return the kinds of the tubes by name; ``temporary=False`` leaves out temporary tubes."""
        request = tube_service_pb2.ListTubesRequest(consistency=self.consistency)
        answer = self._stubs.call(self._stubs.tubes.ListTubes, request)
        return {
            tube.name: type_of(tube)
            for tube in answer.tubes
            if temporary or tube.options.durability != Options.TEMPORARY
        }

    def waiting(self, tube: str) -> int:
        """Return the number of consumers that wait on a tube."""
        request = tube_service_pb2.GetStatisticsRequest(tubes=[tube])
        answer = self._stubs.call(self._stubs.tubes.GetStatistics, request)
        return sum(one.waiting for one in answer.tubes)

    def statistics(self, tube: str | None) -> Json:
        """Return the counts of one tube, or of all tubes by name.

        Raises:
            Refused: the tube does not exist.
        """
        counts = self._statistics([tube] if tube is not None else [])
        if tube is None:
            return counts
        if tube not in counts:
            raise Refused(TUBE_NOT_FOUND)
        return counts[tube]

    def _statistics(self, tubes: Sequence[str]) -> dict[str, dict[str, dict[str, int]]]:
        request = tube_service_pb2.GetStatisticsRequest(
            tubes=tubes, transitions=True, consistency=self.consistency
        )
        answer = self._stubs.call(self._stubs.tubes.GetStatistics, request)
        return {one.tube: self._counts(one) for one in answer.tubes}

    def forget_counts(self) -> None:
        """Reset the counts, because a restart of the oracle loses its counters."""
        self._counted.clear()
        # The service, too, loses the counters of temporary tubes together with their contents.
        kept = self._kinds(temporary=False)
        counts = {name: body for name, body in self._statistics(()).items() if name in kept}
        totals = {name: body["calls"] for name, body in counts.items()}
        done = {name: body["tasks"]["done"] for name, body in counts.items()}
        self._counted = {name: {**calls, "done": done[name]} for name, calls in totals.items()}

    def _counts(self, counted: tube_service_pb2.TubeStatistics) -> dict[str, dict[str, int]]:
        before = self._counted.get(counted.tube, {})
        tasks, calls = counted.tasks, counted.calls
        ttl_while_taken = sum(
            move.count
            for move in counted.transitions
            if (move.from_state, move.to_state) == (State.TAKEN, State.STATE_UNSPECIFIED)
        )
        ttl_while_taken = max(0, ttl_while_taken - calls.ack)
        numbers = {
            "ack": calls.ack,
            "bury": calls.bury,
            "delay": calls.delay,
            "delete": calls.delete + calls.ttl,
            "kick": calls.kick,
            "put": calls.put,
            "release": calls.release
            + calls.session_release
            + calls.startup_release
            + calls.release_all,
            "take": calls.take,
            "touch": calls.touch,
            "ttl": calls.ttl,
            "ttr": calls.ttr,
        }
        return {
            "calls": {name: number - before.get(name, 0) for name, number in numbers.items()},
            "tasks": {
                "buried": tasks.buried,
                "delayed": tasks.delayed,
                "done": calls.finished - before.get("done", 0),
                "ready": tasks.ready,
                "taken": tasks.taken,
                "total": tasks.total,
            },
        }

    # ------------------------------------------------------------------------------ snapshots

    def snapshot(self, tubes: Sequence[str], connections: Mapping[str, int]) -> Json:
        """Return the tubes with their tasks and counts, and the sessions that have names.

        ``connections`` is the number of connections of each session, which only the clients know.
        """
        kinds, counts = self._kinds(), self._statistics(tubes)
        shown = {
            name: {
                "type": kinds[name],
                "tasks": [self._task(name, kinds[name], task) for task in self._tasks(name)],
                "statistics": counts[name],
            }
            for name in sorted(tubes)
            if name in kinds
        }
        return {"tubes": shown, "sessions": self._sessions(connections)}

    def _tasks(self, tube: str) -> Iterator[task_pb2.Task]:
        token = ""
        while True:
            request = pb.ListTasksRequest(
                tube=tube, page_size=PAGE_SIZE, page_token=token, consistency=self.consistency
            )
            answer = self._stubs.call(self._stubs.tasks.ListTasks, request)
            yield from answer.tasks
            token = answer.next_page_token
            if not token:
                return

    def _task(self, tube: str, kind: str, task: task_pb2.Task) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "task": self._names.task(tube, task.id),
            "state": State.State.Name(task.state),
            "data": json.loads(task.spec.payload),
        }
        if kind in TIMED_KINDS:
            shown["pri"] = task.priority
            shown["ttl"] = _seconds(task.ttl_ms)
            is_zero = task.spec.HasField("ttr_ms") and task.spec.ttr_ms == 0
            shown["ttr"] = 0 if is_zero and not task.ttr_ms else _seconds(task.ttr_ms)
        if kind in SUBQUEUE_KINDS:
            shown["utube"] = task.spec.subqueue
        if task.state == State.TAKEN:
            owner = self._names.session_by_prefix(task.session_id)
            shown["owner"] = owner[1] if owner else None
        return shown

    def _sessions(self, connections: Mapping[str, int]) -> list[dict[str, Any]]:
        request = session_service_pb2.ListSessionsRequest(consistency=self.consistency)
        shown = []
        for session in self._stubs.call(self._stubs.sessions.ListSessions, request).sessions:
            known = self._names.session_by_prefix(session.session_id)
            if known is not None:
                session_id, name = known
                shown.append(
                    {
                        "session_id": name,
                        "active": session.expires_ms == 0,
                        "connections": connections.get(session_id, 0),
                    }
                )
        return sorted(shown, key=lambda one: int(one["session_id"][1:]))

    def is_idle(self, session_id: str) -> bool:
        """Return whether a session has ended or has no connection."""
        request = session_service_pb2.ListSessionsRequest()
        for session in self._stubs.call(self._stubs.sessions.ListSessions, request).sessions:
            if session_id.startswith(session.session_id):
                return bool(session.expires_ms)
        return True


def _seconds(time_ms: int) -> float | None:
    """Return seconds; None means no limit."""
    if time_ms == 0:
        return None
    return time_ms / 1000 if time_ms % 1000 else time_ms // 1000
