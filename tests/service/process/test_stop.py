"""A stopping node ends all streams and waits at once, and each end names the reason.

The grace period of the nodes is ten minutes, so a stop that waits for a call fails these tests.
"""

import asyncio

import grpc
import grpc.aio
import pytest

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import create, reason_of, take

pytestmark = pytest.mark.real_time

GUARD_SECONDS = 60.0


@pytest.fixture
async def three(tmp_path):
    async with cluster_in(tmp_path, stop_grace_ms=600_000) as one:
        await create(one.leader)
        yield one


async def subscribed(node):
    stream = node.tasks.Subscribe()
    opened = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="emails")], session_ttr_ms=60_000)
    await stream.write(pb.SubscribeRequest(open=opened))
    assert (await stream.read()).opened.session_id
    return stream


async def go_away_of(stream):
    """Return the last message of a stream; it contains the reason for the end."""
    last = pb.SubscribeResponse()

    async def read_all():
        nonlocal last
        while (message := await stream.read()) is not grpc.aio.EOF:
            last = message

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_all()
    assert last.HasField("go_away"), caught.value
    assert reason_of(caught.value) == error_pb2.Error.Reason.Name(last.go_away.error.reason)
    return last.go_away


async def stopped(three, node):
    """Stop a node whose clients stay connected."""
    three.nodes.remove(node)
    async with asyncio.timeout(GUARD_SECONDS):
        await node.server.stop()


async def test_a_follower_that_stops_ends_the_streams_that_it_relays(three):
    node = three.followers[0]
    leader = three.leader.server.config.listen
    streams = [await subscribed(node) for _ in range(3)]
    await stopped(three, node)
    for stream in streams:
        go_away = await go_away_of(stream)
        assert go_away.error.reason == error_pb2.Error.DRAINING
        assert go_away.leader == leader
    await node.channel.close()


async def test_a_leader_that_stops_ends_its_own_and_the_relayed_streams_with_the_reason(three):
    node = three.leader
    streams = [await subscribed(each) for each in three.nodes]
    await stopped(three, node)
    for stream in streams:
        assert (await go_away_of(stream)).error.reason == error_pb2.Error.DRAINING
    await node.channel.close()


async def test_a_leader_that_transfers_leadership_does_not_report_that_it_stops(three):
    stream = await subscribed(three.leader)
    server = three.leader.server
    await server.components.leadership.transfer(lambda: server.node.transfer_leadership(None))
    assert (await go_away_of(stream)).error.reason in {
        error_pb2.Error.NOT_LEADER,
        error_pb2.Error.NO_LEADER,
    }


@pytest.mark.parametrize("through", ["leader", "follower"])
async def test_a_stopping_node_ends_a_waiting_take_with_draining(three, through):
    node = three.leader if through == "leader" else three.followers[0]
    waiting = asyncio.ensure_future(take(node, wait_ms=60_000))
    await three.leader.waiting(1)
    await stopped(three, node)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await waiting
    assert reason_of(caught.value) == "DRAINING"
    await node.channel.close()


async def test_a_failed_follower_ends_the_streams_that_it_relays(three):
    node = three.followers[0]
    stream = await subscribed(node)
    node.server.node.fail(OSError(5, "Input/output error"))
    await stopped(three, node)
    assert (await go_away_of(stream)).error.reason == error_pb2.Error.DRAINING
    await node.channel.close()
