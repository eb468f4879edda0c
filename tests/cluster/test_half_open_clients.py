"""Lose the packets between a node and its clients: the connections look open to the node."""

from __future__ import annotations

import asyncio
import time

import grpc.aio
import pytest

from taskraft import AsyncClient
from taskraft.v1 import task_service_pb2 as pb
from taskraft.v1 import task_service_pb2_grpc
from tools.local_cluster import LocalCluster
from tools.packet_links import NoNamespaces, PacketLinks

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

TUBE = "work"
CONNECTIONS = 20
RETURN_SECONDS_MAX = 40
"""The node pings a connection after 20 s without a byte, and closes it 10 s later."""
GUARD_SECONDS = 90


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(3, tmp_path / "c")


@pytest.fixture
def links(cluster):
    try:
        network = PacketLinks(cluster)
    except NoNamespaces as error:
        pytest.skip(str(error))
    with network, cluster:
        yield network


async def taking_stream(address):
    """Take a task on a connection of its own; its lease ends with the stream."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    channel = grpc.aio.insecure_channel(address, options=options)
    stream = task_service_pb2_grpc.TaskServiceStub(channel).Subscribe()
    opening = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube=TUBE)], session_ttr_ms=0)
    credit = pb.SubscribeRequest.Credit(tasks=1)
    await stream.write(pb.SubscribeRequest(open=opening, credit=credit))
    while not (await stream.read()).tasks:
        pass
    return channel, stream


async def test_the_leases_of_half_open_connections_return(cluster, links):
    leader = await asyncio.to_thread(cluster.wait_ready)
    follower = next(node for node in cluster.nodes if node is not leader)
    term = follower.state().state.term
    async with asyncio.timeout(GUARD_SECONDS), AsyncClient(follower.address) as client:
        await client.create_tube(TUBE)
        tube = client.tube(TUBE)
        await tube.put_many([b"held"] * CONNECTIONS)
        held = await asyncio.gather(*(taking_stream(leader.address) for _ in range(CONNECTIONS)))
        assert await tube.take(wait=0) is None
        links.cut_clients(leader.name)
        cut_at = time.monotonic()
        returned = 0
        while returned < CONNECTIONS:
            returned += len(await tube.take_many(CONNECTIONS, wait=RETURN_SECONDS_MAX))
        assert time.monotonic() - cut_at < RETURN_SECONDS_MAX
        assert follower.state().state.term == term
        links.heal()
        for channel, _stream in held:
            await channel.close()
