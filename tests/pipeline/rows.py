"""Compute the expected rows in plain Python, and read the rows of Spark."""

from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft.v1.task_pb2 import Task
from taskraft_pipeline.schema import COLUMNS

TIMES = ("ts", "created_ts", "since_ts")


def instant(at_ms):
    return at_ms * 1_000 or None


def state(number):
    return Task.State.Name(number).lower() if number else None


def row(event, seq):
    """Return the expected row of an event; times are in µs."""
    return {
        "feed_partition": event.partition,
        "seq": seq,
        "revision": event.revision,
        "place": event.place,
        "ts": instant(event.at_ms),
        "tube": event.tube,
        "task_id": event.task_id,
        "kind": ChangeEvent.Kind.Name(event.kind).lower(),
        "from_state": state(event.from_state),
        "to_state": state(event.to_state),
        "attempt": event.attempt,
        "priority": event.priority,
        "created_ts": instant(event.created_ms),
        "since_ts": instant(event.since_ms),
        "subqueue": event.subqueue or None,
        "session": event.session or None,
        "reason": event.reason or None,
        "type": event.type or None,
        "payload_bytes": event.payload_bytes,
        "outcome": Task.Outcome.Name(event.outcome).lower() if event.outcome else None,
        "message": event.message or None,
        "fingerprint": event.fingerprint or None,
        "target": event.target or None,
        "attempt_failed": event.attempt_failed,
    }


def in_order(rows):
    return sorted(rows, key=lambda one: (one["feed_partition"], one["seq"]))


def expected_rows(events):
    """Return the expected rows of events, ordered by partition and sequence number."""
    return in_order(row(event, event.seq) for event in events)


def found_rows(frame):
    """Return the rows of a DataFrame with all columns, in the form and order of expected rows."""
    columns = [f"unix_micros({name}) AS {name}" if name in TIMES else name for name in COLUMNS]
    return in_order(one.asDict() for one in frame.selectExpr(*columns).collect())
