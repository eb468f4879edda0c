"""The feed is dense, readable from any position, and trimmed equally on all replicas."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft.v1 import feed_service_pb2
from taskraft_service.queue.entities.event_cause import EventCause
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.feed.chunk import (
    CAUSE_COLUMN,
    COLUMNS,
    FIELDS,
    ROW_BYTES,
    ChangeChunk,
    Event,
    cut,
    cut_column,
    encode,
    events_of,
    only,
    read_header,
)
from taskraft_service.queue.feed.feed_consumers import ConsumerView
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.feed import CommitCursor, TrimFeed
from taskraft_service.queue.operations.kick_bury_delete import Delete
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from tests.service.counted_calls import calls_of
from tests.service.queue.memory_store import MemoryStore

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT8 = st.integers(0, 22)
TEXTS = st.sampled_from(("", "a", "ü", "long " * 20))
EVENTS = st.lists(
    st.builds(
        Event,
        revision=INT64,
        place=INT32,
        at_ms=INT64,
        tube=TEXTS,
        task_id=INT64,
        kind=INT8,
        from_state=INT8,
        to_state=INT8,
        attempt=INT32,
        priority=INT64,
        created_ms=INT64,
        since_ms=INT64,
        subqueue=TEXTS,
        session=TEXTS,
        reason=TEXTS,
        type=TEXTS,
        payload_bytes=INT32,
        outcome=INT8,
        message=TEXTS,
        target=TEXTS,
        attempt_failed=st.integers(0, 1),
    ).map(lambda event: event._replace(fingerprint=cause_of(event).fingerprint)),
    min_size=1,
    max_size=12,
)


def cause_of(event):
    return EventCause(event.reason, event.message, event.target, bool(event.attempt_failed))


class Node:
    """A queue with two partitions whose chunks have at most three rows."""

    def __init__(self):
        self.limits = Limits(feed_chunk_rows_max=3)
        self.store = MemoryStore()
        self.queue = Queue(self.store, self.limits)
        self.index = 0
        tubes = [CreateTube(name, TubeKind.FIFO, TubeOptions()) for name in ("mail", "news")]
        self.do(Startup(1, 0, "feed-id", 2), *tubes, OpenSession("0123456789", ttr_ms=10**6))

    def do(self, *commands):
        self.index += 1
        return self.queue.apply(self.index, self.index * 10, commands)

    def put(self, tasks=1, tube="mail"):
        self.do(Put(tube, [NewTask(b"x", 1) for _ in range(tasks)]))

    def collect(self):
        self.store.write(self.queue.collect_writes())

    def reopen(self):
        self.collect()
        self.queue = Queue(self.store, self.limits)

    def seqs(self, partition, from_seq=0, to_seq=10**6, rows_max=100):
        seqs = []
        at = None
        for chunk in self.queue.feed.read(partition, from_seq, to_seq, rows_max):
            assert at is None or chunk.from_seq == at
            assert chunk.rows == chunk.next_seq - chunk.from_seq <= rows_max
            at = chunk.next_seq
            seqs += range(chunk.from_seq, chunk.next_seq)
        return seqs

    def views(self):
        return self.queue.feed.views()


def fields_of(events):
    """Return the fields of events as the feed holds them in memory."""
    return [
        field
        for event in events
        for field in (*event[:CAUSE_COLUMN], cause_of(event), *event[CAUSE_COLUMN + 1 : FIELDS])
    ]


@given(EVENTS)
def test_events_are_decoded_as_they_were_encoded(events):
    assert list(events_of(cut(encode(fields_of(events)), 0, len(events)))) == events


@given(EVENTS, st.data())
def test_any_range_of_rows_can_be_cut_out(events, data):
    first = data.draw(st.integers(0, len(events) - 1))
    last = data.draw(st.integers(first + 1, len(events)))
    assert list(events_of(cut(encode(fields_of(events)), first, last))) == events[first:last]


@given(EVENTS, st.data())
def test_one_column_can_be_cut_out(events, data):
    first = data.draw(st.integers(0, len(events) - 1))
    last = data.draw(st.integers(first + 1, len(events)))
    frame = encode(fields_of(events))
    columns = cut(frame, first, last)
    for place, (name, _, _) in enumerate(COLUMNS):
        assert cut_column(frame, place, first, last) == getattr(columns, name)


@given(EVENTS)
def test_columns_have_the_names_of_the_contract(events):
    """A generated message takes the columns by name; the arrays in it are little-endian."""
    columns = cut(encode(fields_of(events)), 0, len(events))
    message = feed_service_pb2.ChangeColumns(
        **{name: getattr(columns, name) for name in columns.__slots__}
    )
    assert {field.name for field in message.DESCRIPTOR.fields} == set(columns.__slots__)
    assert message.texts[0] == ""
    priorities = array("q")
    priorities.frombytes(message.priority)
    assert list(priorities) == [event.priority for event in events]
    places = array("i")
    places.frombytes(message.session)
    assert [message.texts[place] for place in places] == [event.session for event in events]


def test_an_event_has_all_fields_of_the_contract():
    fields = {field.name for field in feed_service_pb2.ChangeEvent.DESCRIPTOR.fields}
    # The node adds the content when it sends the event.
    assert {*Event._fields, "seq", "content"} == fields
    assert [name for name, _, _ in COLUMNS] == list(Event._fields)


def test_a_header_contains_rows_times_and_bytes():
    node = Node()
    node.put(4)
    node.do(Take(["mail"], tasks_max=4))
    node.collect()
    frames = [node.store.pairs[key] for key in sorted(node.store.pairs) if key[:1] == b"f"]
    headers = [read_header(frame) for frame in frames]
    assert [header.rows for header in headers] == [3, 1, 3, 1]
    assert headers[0].first_ms == 20
    assert headers[0].last_ms == 30
    assert headers[1].bytes_before == len(frames[0])
    assert len(frames[0]) < 3 * ROW_BYTES + 60


def test_sequence_numbers_are_dense_in_each_partition():
    node = Node()
    for number in range(7):
        node.put(number)
        node.do(Take(["mail"], "0123456789", tasks_max=number))
        if number % 3 == 0:
            node.collect()
        if number == 4:
            node.reopen()
    views = node.views()
    assert sum(view.high_seq for view in views) == 2 * 21
    for view in views:
        assert node.seqs(view.partition) == list(range(view.high_seq))
        for rows_max in (1, 2, 5):
            assert node.seqs(view.partition, rows_max=rows_max) == list(range(view.high_seq))
        for start in range(view.high_seq):
            assert node.seqs(view.partition, start, start + 4, 2) == list(
                range(start, min(start + 4, view.high_seq))
            )


def test_events_of_one_task_stay_in_one_partition_in_order():
    node = Node()
    node.put(10)
    node.do(Take(["mail"], "0123456789", tasks_max=10))
    node.do(Settle([Ack(list(range(1, 11)))]))
    seen = {}
    for view in node.views():
        for _, event in node.queue.feed.events(view.partition, 0, 100):
            seen.setdefault(event.task_id, []).append((view.partition, event.kind))
    for events in seen.values():
        assert len({partition for partition, _ in events}) == 1
        assert [kind for _, kind in events] == [1, 2, 3]
    assert {view.high_seq for view in node.views()} == {15}


def test_an_event_contains_only_the_first_characters_of_a_session_id():
    node = Node()
    node.put()
    node.do(Take(["mail"], "0123456789"))
    sessions = [
        event.session
        for view in node.views()
        for _, event in node.queue.feed.events(view.partition, 0, 10)
    ]
    assert sessions == ["", "01234567"]


@pytest.mark.parametrize("is_collected", [False, True])
def test_trimmed_events_are_removed(is_collected):
    node = Node()
    node.put(20)
    if is_collected:
        node.collect()
    (result,) = node.do(TrimFeed({0: 4, 1: 0, 7: 5}))
    assert result.count == 4
    assert node.seqs(0) == list(range(4, 10))
    assert node.seqs(1) == list(range(10))
    node.reopen()
    assert [view.low_seq for view in node.views()] == [4, 0]
    assert node.seqs(0) == list(range(4, 10))
    # The chunk that contains the oldest remaining event stays whole.
    assert sum(key[:1] == b"f" for key in node.store.pairs) == 3 + 4
    (result,) = node.do(TrimFeed({0: 10**9, 1: 2}))
    assert result.count == 8
    assert node.seqs(0) == []
    node.put(4)
    assert node.seqs(0) == [10, 11]
    node.collect()
    assert node.seqs(0) == [10, 11]


@pytest.mark.parametrize("trimmed", range(1, 8))
def test_events_that_are_trimmed_before_they_are_stored_are_never_merged(trimmed):
    """A node that replays the log gets a trim before it has stored the events."""
    node = Node()
    node.put(7, "news")
    lows = {view.partition: min(view.high_seq, trimmed) for view in node.views()}
    node.do(TrimFeed(lows))
    for _ in range(12):
        node.collect()
        node.put(1, "news")
    for view in node.views():
        assert view.low_seq == lows[view.partition]
        assert node.seqs(view.partition) == list(range(view.low_seq, view.high_seq))


def test_a_chunk_whose_last_event_remains_stays():
    node = Node()
    node.put(20)
    node.collect()
    node.do(TrimFeed({0: 5}))
    node.collect()
    assert node.seqs(0) == [5, 6, 7, 8, 9]


def test_events_are_trimmed_by_age_and_size():
    node = Node()
    feed = node.queue.feed
    for _ in range(4):
        node.put(6)
        node.collect()
    views = feed.views()
    assert [view.oldest_ms for view in views] == [20, 20]
    now_ms = node.queue.now_ms
    assert feed.retention_due(now_ms, 10**6, 10**9, {}) is None
    assert feed.retention_due(now_ms, now_ms - 35, 10**9, {}) == {0: 6, 1: 6}
    held = sum(view.bytes for view in views)
    assert feed.retention_due(now_ms, 10**6, held, {}) is None
    assert feed.retention_due(now_ms, 10**6, held * 3 // 4, {}) == {0: 3, 1: 3}
    node.do(TrimFeed({0: 3, 1: 3}))
    node.collect()
    assert sum(view.bytes for view in feed.views()) == held * 3 // 4
    assert [view.oldest_ms for view in feed.views()] == [30, 30]
    assert feed.retention_due(node.queue.now_ms, 0, 10**9, {}) == {0: 12, 1: 12}


def test_a_time_is_found_in_the_feed():
    node = Node()
    for number in range(8):
        node.put(2)
        if number == 5:
            node.collect()
    feed = node.queue.feed
    assert feed.seq_at(0, 0) == 0
    assert feed.seq_at(0, 40) == 2
    assert feed.seq_at(0, 45) == 3
    assert feed.seq_at(0, 80) == 6
    assert feed.seq_at(0, 10**6) == 8
    node.do(TrimFeed({0: 5}))
    assert feed.seq_at(0, 0) == 5


def test_a_filtered_chunk_contains_the_numbers_of_its_rows():
    node = Node()
    node.do(*(Put(tube, [NewTask(b"", 0) for _ in range(3)]) for tube in ("mail", "news", "mail")))
    kept = []
    for view in node.views():
        for chunk in node.queue.feed.read(view.partition, 0, 100, 100):
            news = only(chunk, ["news"], ())
            assert (news.from_seq, news.next_seq) == (chunk.from_seq, chunk.next_seq)
            seqs = array("q")
            seqs.frombytes(news.columns.seq)
            assert len(seqs) == news.rows
            for seq, event in zip(seqs, events_of(news.columns), strict=True):
                assert event.tube == "news"
                kept.append((view.partition, seq, event.task_id))
            assert isinstance(chunk, ChangeChunk)
    assert sorted(task_id for _, _, task_id in kept) == [1, 2, 3]


def test_a_chunk_is_filtered_by_kinds_of_events():
    node = Node()
    node.put(3)
    node.do(Delete("mail", ByIds([1, 3])))
    kept = []
    for view in node.views():
        for chunk in node.queue.feed.read(view.partition, 0, 100, 100):
            assert only(chunk, (), ()) is chunk
            assert only(chunk, ["news"], {EventKind.DELETE}).rows == 0
            ends = only(chunk, ["mail"], {EventKind.DELETE})
            assert (ends.from_seq, ends.next_seq) == (chunk.from_seq, chunk.next_seq)
            kept += [(event.kind, event.task_id) for event in events_of(ends.columns)]
    assert sorted(kept) == [(EventKind.DELETE, 1), (EventKind.DELETE, 3)]


def test_there_is_no_event_before_the_first_startup():
    queue = Queue(MemoryStore(), Limits())
    queue.apply(1, 5, [CreateTube("mail", TubeKind.FIFO, TubeOptions())])
    queue.apply(2, 5, [Put("mail", [NewTask(b"", 0)])])
    assert queue.feed.views() == []
    queue.apply(3, 5, [Startup(1, 0, "feed", 4), Startup(1, 0, "other", 8)])
    assert queue.feed.feed_id == "feed"
    assert [view.high_seq for view in queue.feed.views()] == [0, 0, 0, 0]


def commit(next_seq, consumer="reader", feed_id="feed-id", idle_ttl_ms=10**6):
    return CommitCursor(consumer, feed_id, next_seq, idle_ttl_ms)


def test_positions_of_consumers_are_stored_and_never_go_back():
    node = Node()
    node.put(10)
    node.do(commit({0: 3, 1: 4}), commit({0: 1}, "other", feed_id=""))
    node.do(commit({0: 2, 1: 5}))
    reader = ConsumerView("reader", {0: 3, 1: 5}, 40, 10**6)
    other = ConsumerView("other", {0: 1}, 30, 10**6)
    assert node.queue.consumers() == [other, reader]
    assert node.queue.held_back() == {0: 1, 1: 5}
    digest = node.queue.digest()
    node.reopen()
    assert node.queue.consumers() == [other, reader]
    assert node.queue.digest() == digest
    (first, again) = node.do(commit(None, "other"), commit(None, "other"))
    assert (first.count, again.count) == (1, 0)
    node.reopen()
    assert node.queue.consumers() == [ConsumerView("reader", {0: 3, 1: 5}, 40, 10**6)]


def test_a_silent_consumer_delays_retention_for_its_idle_ttl_and_is_removed_after_twice_the_time():
    node = Node()
    node.put(10)
    node.do(commit({0: 1}, idle_ttl_ms=20))
    node.put()
    assert node.queue.held_back() == {0: 1}
    node.do(commit({0: 2}, "other"))
    assert node.queue.held_back() == {0: 2}
    node.reopen()
    assert [one.name for one in node.queue.consumers()] == ["other", "reader"]
    node.put()
    node.put()
    assert [one.name for one in node.queue.consumers()] == ["other"]
    node.do(commit({0: 2}, "other"))
    node.reopen()
    assert not any(b"reader" in key for key in node.store.pairs)
    node.do(commit({0: 0}))
    assert node.queue.held_back() == {0: 0}, "its position starts again"


def test_positions_outside_the_feed_are_refused():
    node = Node()
    node.put(10)
    results = node.do(
        commit({0: 5}), commit({0: 6, 1: 6, 2: 0}, "x"), commit({0: 0}, "x", feed_id="other")
    )
    assert results[0].count == 1
    assert [result.reason for result in results[1:]] == [
        Reason.INVALID_FIELD,
        Reason.FEED_MISMATCH,
    ]
    assert [field for field, _ in results[1].violations] == [
        "cursor.next_seq[0]",
        "cursor.next_seq[1]",
        "cursor.next_seq[2]",
    ]


def test_the_number_of_consumers_is_limited():
    queue = Queue(MemoryStore(), Limits(consumers_max=2))
    queue.apply(1, 0, [Startup(1, 0, "feed-id", 1)])
    first, second, third, known = queue.apply(
        2, 0, [commit({0: 0}, name, idle_ttl_ms=5) for name in ("a", "b", "c", "a")]
    )
    assert (first.count, second.count, known.count) == (1, 1, 1)
    assert isinstance(third, Refusal)
    assert third.reason is Reason.LIMIT_REACHED
    (third,) = queue.apply(3, 5, [commit({0: 0}, "c")])
    assert third.count == 1, "the other consumers are idle"
    assert [one.name for one in queue.consumers()] == ["c"]


def test_a_known_consumer_that_was_idle_keeps_its_position_at_the_maximum():
    queue = Queue(MemoryStore(), Limits(consumers_max=1))
    queue.apply(1, 0, [Startup(1, 0, "feed-id", 1), commit({0: 0}, "a", idle_ttl_ms=5)])
    refused, kept = queue.apply(2, 6, [commit({9: 0}, "b"), commit({}, "a")])
    assert (refused.reason, kept.count) == (Reason.INVALID_FIELD, 1)
    assert [(one.name, dict(one.next_seq)) for one in queue.consumers()] == [("a", {0: 0})]


def test_a_commit_does_not_look_at_the_other_consumers():
    most = 200
    queue = Queue(MemoryStore(), Limits(consumers_max=most))
    names = [f"{number:03}" for number in range(most)]
    commits = [commit({0: 0}, name, idle_ttl_ms=50) for name in names]
    queue.apply(1, 0, [Startup(1, 0, "feed-id", 1), *commits])
    assert calls_of(queue.apply, 2, 40, commits) < 100 * most
    queue.apply(3, 101, commits[:1])
    assert len(queue.consumers()) == most, "all have made a commit at 40 ms"
    queue.apply(4, 140, commits[:1])
    assert [one.name for one in queue.consumers()] == names[:1]


def test_trimming_by_age_waits_for_consumers_but_trimming_by_size_does_not():
    node = Node()
    for _ in range(4):
        node.put(6)
        node.collect()
    feed, now_ms = node.queue.feed, node.queue.now_ms
    held = sum(view.bytes for view in feed.views())
    assert feed.retention_due(now_ms + 1, 0, 10**9, {}) == {0: 12, 1: 12}
    assert feed.retention_due(now_ms + 1, 0, 10**9, {0: 5}) == {0: 3, 1: 12}
    assert feed.retention_due(now_ms + 1, 0, 10**9, {0: 6, 1: 0}) == {0: 6}
    assert feed.retention_due(now_ms, 10**6, held * 3 // 4, {0: 0, 1: 0}) == {0: 3, 1: 3}
