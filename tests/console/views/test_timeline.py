"""The transitions of a task in words."""

from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft.v1.task_pb2 import Task
from taskraft_console.views.timeline import TITLES, timeline_of


def test_a_timeline_tells_attempts_waits_and_runs():
    put = ChangeEvent(kind=ChangeEvent.PUT, at_ms=10, to_state=Task.READY)
    take = ChangeEvent(
        kind=ChangeEvent.TAKE,
        at_ms=30,
        since_ms=10,
        from_state=Task.READY,
        to_state=Task.TAKEN,
        attempt=1,
        session="w\u202e1",
    )
    release = ChangeEvent(
        kind=ChangeEvent.RELEASE,
        at_ms=90,
        since_ms=30,
        from_state=Task.TAKEN,
        to_state=Task.READY,
        session="w1",
        reason="Timeout",
    )
    told = [(step.title, step.mark, step.state, step.detail) for step in
            timeline_of([release, take, put])]  # fmt: skip
    assert told == [
        ("put", "", "READY", ""),
        ("taken", "taken", "TAKEN", "attempt 1, by w⟨202E⟩1, waited 20\u2009ms"),
        ("released by its holder", "bad", "READY", "ran 60\u2009ms, held by w1, Timeout"),
    ]


def test_each_kind_that_changes_a_state_has_a_title():
    silent = {"KIND_UNSPECIFIED", "TOUCH", "TRUNCATE", "UPDATE", "RETENTION_EXPIRED", "CANCEL"}
    assert {ChangeEvent.Kind.Name(kind) for kind in TITLES} == set(ChangeEvent.Kind.keys()) - silent
