"""Convert chunks into record batches, and compare with a loop over the events."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskraft.v1.feed_service_pb2 import ChangeEvent, ReadChangesResponse
from taskraft.v1.task_pb2 import Task
from taskraft_pipeline.codec import arrow_schema, record_batch
from taskraft_pipeline.errors import FeedBroken
from taskraft_pipeline.schema import COLUMNS, spark_schema
from tests.pipeline.history import Event, encoded
from tests.pipeline.rows import row

INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES_MS = st.integers(0, 2**50)
NAMES = st.text(max_size=8)

EVENTS = st.builds(
    Event,
    partition=st.just(3),
    seq=st.just(0),
    revision=INT64,
    place=INT32,
    at_ms=TIMES_MS,
    tube=st.sampled_from(["mail", "billing", "Zürich/β"]),
    task_id=INT64,
    kind=st.sampled_from(ChangeEvent.Kind.values()[1:]),
    from_state=st.sampled_from(Task.State.values()),
    to_state=st.sampled_from(Task.State.values()),
    attempt=INT32,
    priority=INT64,
    created_ms=TIMES_MS,
    since_ms=TIMES_MS,
    subqueue=NAMES,
    session=NAMES,
    reason=NAMES,
    type=NAMES,
    payload_bytes=INT32,
    outcome=st.sampled_from(Task.Outcome.values()),
    message=NAMES,
    fingerprint=INT64,
    target=NAMES,
    attempt_failed=st.booleans(),
)


def chunk_of(events, from_seq=0, next_seq=None, **options):
    return ReadChangesResponse(
        partition=3,
        from_seq=from_seq,
        next_seq=from_seq + len(events) if next_seq is None else next_seq,
        rows=len(events),
        columns=encoded(events, **options),
    )


def rows_of(batch):
    """Return the rows of a batch with times in µs, because Arrow's range exceeds datetime's."""
    plain = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(plain, names=batch.schema.names).to_pylist()


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=20), st.integers(0, 2**40))
def test_columns_say_the_same_as_a_loop_over_the_events(events, from_seq):
    batch = record_batch(chunk_of(events, from_seq), tuple(COLUMNS))
    assert rows_of(batch) == [row(event, from_seq + n) for n, event in enumerate(events)]
    assert batch.schema.equals(arrow_schema(tuple(COLUMNS)))
    batch.validate(full=True)


@settings(deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=5), st.permutations(list(COLUMNS)), st.integers(1, 19))
def test_only_the_named_columns_are_made_in_their_order(events, order, count):
    batch = record_batch(chunk_of(events), order[:count])
    assert rows_of(batch) == [
        {name: row(event, n)[name] for name in order[:count]} for n, event in enumerate(events)
    ]


def event(**changes):
    values = dict.fromkeys(("partition", "revision", "place", "attempt", "priority"), 0)
    values |= {"at_ms": 1_000, "created_ms": 1_000, "since_ms": 0, "tube": "mail", "task_id": 1}
    values |= {"kind": ChangeEvent.PUT, "from_state": 0, "to_state": Task.READY, "seq": 0}
    return Event(**{**values, **changes})


def test_filtered_chunks_carry_the_sequence_numbers_of_their_rows():
    chunk = chunk_of([event(seq=12), event(seq=17)], 10, 20, is_filtered=True)
    assert record_batch(chunk, ["seq"]).to_pydict() == {"seq": [12, 17]}


def test_a_chunk_whose_events_are_all_filtered_out_is_empty():
    assert record_batch(chunk_of([], 10, 20, is_filtered=True), tuple(COLUMNS)).num_rows == 0


def test_a_time_is_in_utc():
    batch = record_batch(chunk_of([event(at_ms=1_500)]), ["ts"])
    assert batch.to_pydict()["ts"] == [datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)]


def broken(change):
    chunk = chunk_of([event(), event()], 10, 12)
    change(chunk)
    return chunk


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("revision", lambda chunk: setattr(chunk.columns, "revision", b"\0" * 15)),
        ("seq", lambda chunk: setattr(chunk, "next_seq", 13)),
        ("seq", lambda chunk: setattr(chunk.columns, "seq", encoded_seq(11, 11))),
        ("seq", lambda chunk: setattr(chunk.columns, "seq", encoded_seq(9, 10))),
        ("seq", lambda chunk: setattr(chunk.columns, "seq", encoded_seq(10, 12))),
        ("tube", lambda chunk: setattr(chunk.columns, "tube", b"\1" + b"\0" * 7)),
        ("tube", lambda chunk: setattr(chunk.columns, "tube", b"\xff" * 8)),
        ("reason", lambda chunk: chunk.columns.ClearField("texts")),
        ("kind", lambda chunk: setattr(chunk.columns, "kind", b"\1\x7f")),
        ("since_ts", lambda chunk: setattr(chunk.columns, "since_ms", b"")),
    ],
)
def test_a_chunk_that_contradicts_itself_is_refused(name, change):
    with pytest.raises(FeedBroken):
        record_batch(broken(change), [name])


def encoded_seq(*numbers):
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def test_the_schema_of_spark_has_the_columns_of_arrow():
    assert spark_schema(["ts", "type", "seq"]) == "`ts` TIMESTAMP, `type` STRING, `seq` BIGINT"
