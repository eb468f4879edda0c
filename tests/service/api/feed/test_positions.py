"""Positions in the feed: by time, of named consumers, and their effect on retention."""

import pytest

from taskraft.v1 import feed_service_pb2 as pb
from taskraft.v1 import task_pb2
from tests.service.conftest import ack, config_in, create, put, put_many, running, take

pytestmark = pytest.mark.real_time


async def described(node):
    return await node.feed.DescribeFeed(pb.DescribeFeedRequest())


def commit(next_seq=None, **fields):
    cursor = pb.FeedCursor(next_seq=next_seq) if next_seq is not None else None
    return pb.CommitCursorRequest(consumer="reader", cursor=cursor, **fields)


async def test_a_consumer_finds_its_position_again(node):
    await create(node)
    await put(node, b"1", b"2", b"3", b"4")
    ends = {part.partition: part.high_seq for part in (await described(node)).partitions}
    partition = max(ends, key=ends.get)
    request = commit({partition: 1}, request_id="once")
    answer = await node.feed.CommitCursor(request)
    assert dict(answer.cursor.next_seq) == {partition: 1}
    assert (await node.feed.CommitCursor(request)).cursor == answer.cursor
    answer = await node.feed.CommitCursor(commit({partition: 0}))
    assert dict(answer.cursor.next_seq) == {partition: 1}, "positions never go back"
    feed = await described(node)
    (consumer,) = feed.consumers
    assert (consumer.name, consumer.cursor.feed_id) == ("reader", feed.feed_id)
    assert dict(consumer.cursor.next_seq) == {partition: 1}
    assert (consumer.idle_ttl_ms, consumer.committed_ms <= feed.now_ms) == (7 * 86_400_000, True)
    answer = await node.feed.CommitCursor(commit())
    assert not answer.HasField("cursor")
    assert not (await described(node)).consumers


async def test_events_that_a_consumer_needs_are_kept_beyond_their_age(tmp_path):
    config = config_in(tmp_path, feed_retention_ms=1_000, feed_partitions=1)
    async with running(config) as node:
        await create(node)
        await put_many(node, 5_000)
        await node.feed.CommitCursor(commit({0: 4_000}))
        node.server.machine.collect()
        await put(node, b"")
        clock = node.server.components.clock.cluster
        clock.lead(clock.term, node.queue.now_ms + 5_000)
        await put(node, b"")
        await node.server.components.housekeeping.trim_feed()
        (part,) = (await described(node)).partitions
        # A chunk is deleted as a whole; where chunks begin depends on when they are written.
        assert 2_000 < part.low_seq <= 4_000, "the chunks from the position on stay"
        await node.feed.CommitCursor(commit())
        await node.server.components.housekeeping.trim_feed()
        (part,) = (await described(node)).partitions
        assert 4_000 < part.low_seq <= 5_000


async def test_a_time_has_a_position_in_each_partition(node):
    await create(node)
    await put(node, b"1", b"2", b"3")
    (first, *_) = (await take(node)).tasks
    ends = {part.partition: part.high_seq for part in (await described(node)).partitions}
    feed_id = (await described(node)).feed_id
    begin = await node.feed.ResolveTimestamp(pb.ResolveTimestampRequest(at_ms=first.created_ms))
    assert begin.cursor == pb.FeedCursor(feed_id=feed_id, next_seq=dict.fromkeys(ends, 0))
    end = await node.feed.ResolveTimestamp(pb.ResolveTimestampRequest(at_ms=2**62))
    assert dict(end.cursor.next_seq) == ends


async def test_events_contain_the_outcome_of_a_task(node):
    await create(node)
    await put(node, b"1")
    await ack(node, (await take(node)).tasks)
    for part in (await described(node)).partitions:
        if part.high_seq:
            request = pb.ReadChangesRequest(partition=part.partition, to_seq=part.high_seq)
            events = [
                event async for chunk in node.feed.ReadChanges(request) for event in chunk.events
            ]
            request.encoding = pb.ReadChangesRequest.COLUMNS
            columns = [chunk.columns.outcome async for chunk in node.feed.ReadChanges(request)]
    assert [event.outcome for event in events] == [0, 0, task_pb2.Task.PROCESSED]
    assert b"".join(columns) == bytes((0, 0, task_pb2.Task.PROCESSED))
