"""Streams of responses: the time limit of a call bounds the time without progress."""

import asyncio
from functools import partial

import pytest

from taskraft import AsyncClient, errors
from taskraft.v1 import cluster_service_pb2 as pb

SAVE = "/taskraft.v1.ClusterService/SaveSnapshot"


@pytest.fixture
def serve(async_kit):
    """Return a function that replaces the handler of SaveSnapshot of the node in memory."""
    return partial(async_kit._backend.node.handlers.__setitem__, SAVE)


@pytest.fixture
async def hasty(async_kit):
    """Return a client with a time limit of 2 s."""
    async with AsyncClient(timeout="2s") as one:
        yield one


async def read_all(items):
    return [each async for each in items]


async def outcome_after(kit, reading, duration):
    """Return the outcome of a read, which must end at the end of a virtual duration."""
    reader = asyncio.ensure_future(reading)
    await kit.advance(f"{duration - 0.6:.1f}s")
    assert not reader.done(), "the read ended too early"
    await kit.advance("0.6s")
    assert reader.done(), "the read did not end at its time limit"
    return reader


async def test_a_snapshot_without_a_leader_ends_at_the_time_limit(
    async_kit, async_calls, memory_client
):
    async_calls.refuse("SaveSnapshot", "NO_LEADER", times=1_000)
    reading = read_all(memory_client.snapshot(timeout="2s"))
    ended = await outcome_after(async_kit, reading, 2)
    with pytest.raises(errors.NoLeader) as told:
        ended.result()
    assert "gave up after" in told.value.advice


async def test_a_snapshot_of_a_silent_node_ends_at_the_time_limit(async_kit, async_calls, hasty):
    async_calls.hold("SaveSnapshot")
    reading = read_all(hasty.snapshot())
    ended = await outcome_after(async_kit, reading, 2)
    with pytest.raises(errors.DeadlinePassed, match="did not answer in time"):
        ended.result()


async def test_pieces_and_digests_may_take_longer_than_the_time_limit(async_kit, hasty, serve):
    sent = asyncio.Queue()

    async def save(_raw, stream):
        while (message := await sent.get()) is not None:
            await stream.write(message.SerializeToString())

    serve(save)
    reading = asyncio.ensure_future(read_all(hasty.snapshot()))
    sent.put_nowait(pb.SaveSnapshotResponse(header=pb.SnapshotHeader(content_bytes=3)))
    for piece in (b"a", b"b", b"c"):
        await async_kit.advance("1.5s")
        sent.put_nowait(pb.SaveSnapshotResponse(content=piece))
    await async_kit.advance("1m")
    sent.put_nowait(pb.SaveSnapshotResponse(digest=pb.SnapshotDigest(version=1)))
    sent.put_nowait(None)
    found = await reading
    assert b"".join(each.content for each in found) == b"abc"
    assert found[-1].HasField("digest")


async def test_a_transfer_that_breaks_for_ever_ends_at_the_time_limit_after_its_last_piece(
    async_kit, hasty, serve
):
    async def save(raw, stream):
        request = pb.SaveSnapshotRequest.FromString(raw)
        header = pb.SnapshotHeader(snapshot_id="s", content_bytes=3)
        await stream.write(pb.SaveSnapshotResponse(header=header).SerializeToString())
        if not request.offset:
            await stream.write(pb.SaveSnapshotResponse(content=b"a").SerializeToString())

    serve(save)
    reading = read_all(hasty.snapshot())
    ended = await outcome_after(async_kit, reading, 2)
    with pytest.raises(errors.Unavailable, match="the server ended the stream"):
        ended.result()


async def test_a_read_of_the_feed_to_its_end_stops_at_the_time_limit(async_kit, async_calls, hasty):
    await hasty.tube("emails").put("a")
    async_calls.refuse("ReadChanges", "NODE_BEHIND", times=1_000)
    reading = read_all(hasty.changes(from_start=True, follow=False))
    ended = await outcome_after(async_kit, reading, 2)
    with pytest.raises(errors.NodeBehind):
        ended.result()


async def test_a_reader_that_follows_the_feed_waits_for_the_nodes_without_a_limit(
    async_kit, async_calls, hasty
):
    task_id = await hasty.tube("emails").put("a")
    async_calls.refuse("ReadChanges", "NODE_BEHIND", times=100_000)
    events = hasty.changes(from_start=True)
    first = asyncio.ensure_future(anext(events))
    await async_kit.advance("60s")
    assert not first.done()
    async_calls.accept("ReadChanges")
    await async_kit.advance("1s")
    assert (await first).task_id == task_id
    await events.aclose()
