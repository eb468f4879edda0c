"""Merged chunks hold the same events, and a slow queue stores few chunks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.queue.feed.chunk import cut, encode, events_of, read_header
from taskraft_service.queue.feed.chunk_merge import (
    MERGE_WIDTH,
    MERGED_ROWS_MAX,
    ChunkTail,
    StoredChunk,
    join,
    merge,
)
from taskraft_service.queue.feed.feed_partition import PIECES_MAX, FeedPartition
from taskraft_service.queue.store.keys import chunk_key
from taskraft_service.versions import FeedVersion
from tests.service.queue.feed.test_change_feed import EVENTS, fields_of
from tests.service.queue.memory_store import MemoryStore

VERSION = max(FeedVersion)


@given(st.lists(EVENTS, min_size=1, max_size=5))
def test_a_merged_chunk_has_the_events_of_all_its_chunks(pieces):
    expected = [event for events in pieces for event in events]
    frames = []
    for events in pieces:
        frames.append(encode(fields_of(events), sum(map(len, frames)) + 7))
    merged = merge(frames)
    header = read_header(merged)
    assert list(events_of(cut(merged, 0, header.rows))) == expected
    assert (header.rows, header.bytes_before) == (len(expected), 7)
    assert (header.first_ms, header.last_ms) == (expected[0].at_ms, expected[-1].at_ms)


@given(st.lists(EVENTS, min_size=2, max_size=5))
def test_joined_columns_list_each_text_once_and_the_empty_text_first(pieces):
    columns = join([cut(encode(fields_of(events)), 0, len(events)) for events in pieces])
    assert columns.texts[0] == ""
    assert len(set(columns.texts)) == len(columns.texts)
    assert len(set(columns.tubes)) == len(columns.tubes)


class Tail:
    """A chunk tail, and the chunks of a store in which its merges are done."""

    def __init__(self, rows_max):
        self.rows_max = rows_max
        self.tail = ChunkTail()
        self.stored = {}
        self.end = 0
        self.rewritten = 0

    def add(self, rows):
        self.end += rows
        self.stored[self.end] = rows
        for chunks in self.tail.add(StoredChunk(self.end, rows), self.rows_max):
            assert len(chunks) > 1
            merged = sum(self.stored.pop(one.end_seq) for one in chunks)
            start = chunks[0].end_seq - chunks[0].rows
            assert merged == chunks[-1].end_seq - start <= self.rows_max
            self.stored[chunks[-1].end_seq] = merged
            self.rewritten += merged


@given(st.lists(st.integers(1, 40), min_size=1, max_size=400), st.sampled_from((40, 100, 10_000)))
def test_merges_are_adjacent_and_never_too_large(sizes, rows_max):
    tail = Tail(rows_max)
    for rows in sizes:
        tail.add(rows)
    at = 0
    for end in sorted(tail.stored):
        assert end - tail.stored[end] == at
        at = end
    assert at == sum(sizes)


@pytest.mark.parametrize("rows", [1, 2, 50, 130, 300])
def test_chunks_are_few_and_events_are_rewritten_once_per_level(rows):
    tail = Tail(4_096)
    for _ in range(100_000 // rows):
        tail.add(rows)
    levels = math.ceil(math.log(MERGED_ROWS_MAX / rows, MERGE_WIDTH))
    assert len(tail.stored) <= 100_000 // (MERGED_ROWS_MAX // 2) + levels * MERGE_WIDTH
    assert tail.rewritten <= levels * tail.end


@pytest.mark.parametrize("rows", [MERGED_ROWS_MAX // 2 + 1, MERGED_ROWS_MAX, 4_096])
def test_chunks_of_a_busy_queue_are_not_merged(rows):
    tail = Tail(4_096)
    for _ in range(100):
        tail.add(rows)
    assert tail.rewritten == 0


def test_a_trimmed_tail_merges_only_chunks_that_are_left():
    tail = ChunkTail()
    for end in range(1, MERGE_WIDTH):
        assert tail.add(StoredChunk(end, 1), 100) == []
    tail.trim(5)
    merges = [tail.add(StoredChunk(MERGE_WIDTH + more, 1), 100) for more in range(5)]
    assert merges == [[], [], [], [], []]
    (merge_now,) = tail.add(StoredChunk(MERGE_WIDTH + 5, 1), 100)
    assert [chunk.end_seq for chunk in merge_now] == list(range(6, MERGE_WIDTH + 6))


class Partition:
    """A partition whose events are stored one batch at a time."""

    def __init__(self):
        self.store = MemoryStore()
        self.partition = FeedPartition(3)

    def put(self, events):
        self.partition.fresh.extend(fields_of(events))

    def store_events(self, rows_max=4_096):
        writes = []
        self.partition.collect(self.store, writes, rows_max, VERSION)
        self.store.write(writes)

    def chunks(self, rows_max=4_096):
        return list(self.partition.read(self.store, 0, 10**9, rows_max))


@given(st.lists(st.tuples(EVENTS, st.booleans()), min_size=1, max_size=40), st.integers(1, 50))
def test_a_partition_reads_the_same_events_whatever_was_merged(batches, rows_max):
    events = Partition()
    for batch, is_stored in batches:
        events.put(batch)
        if is_stored:
            events.store_events(rows_max=20)
    found = events.chunks(rows_max)
    assert [event for chunk in found for event in events_of(chunk.columns)] == [
        event for batch, _ in batches for event in batch
    ]
    assert all(chunk.rows <= rows_max for chunk in found)


def one_event():
    return EVENTS.map(lambda events: events[:1])


@given(one_event())
def test_a_slow_partition_stores_few_chunks_and_sends_few_messages(event):
    events = Partition()
    for _ in range(1_000):
        events.put(event)
        events.store_events()
    assert len(events.store.pairs) <= 3 * MERGE_WIDTH
    assert len(events.chunks()) == 1
    frames = [events.store.pairs[key] for key in sorted(events.store.pairs)]
    assert events.partition.bytes_written == sum(map(len, frames))


@given(one_event())
def test_one_chunk_of_a_read_joins_a_bounded_number_of_stored_chunks(event):
    events = Partition()
    frame = encode(fields_of(event))
    for number in range(1, PIECES_MAX + 2):
        events.store.write([(chunk_key(3, number), frame)])
    events.partition.stored_seq = PIECES_MAX + 1
    assert [chunk.rows for chunk in events.chunks()] == [PIECES_MAX, 1]
