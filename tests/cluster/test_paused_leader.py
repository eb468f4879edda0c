"""Pause the leader of three real processes: it hangs, and its connections stay open."""

import asyncio
import uuid

import grpc.aio
import pytest

from taskraft import AsyncClient
from taskraft.v1 import task_pb2, task_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

TUBE = "work"
PUT_SECONDS = 4.5
"""Maximum duration of a call, less than the time after which a client gives up a node that does not
answer."""
GUARD_SECONDS = 30


def put_request(payload):
    return pb.PutTasksRequest(
        request_id=str(uuid.uuid4()), tube=TUBE, tasks=[task_pb2.TaskSpec(payload=payload)]
    )


@pytest.fixture
async def nodes(tmp_path):
    with LocalCluster(3, tmp_path) as cluster:
        await asyncio.to_thread(cluster.wait_ready)
        yield cluster


async def test_every_kind_of_call_and_stream_continues_while_the_leader_hangs(nodes):
    """Puts of the client, a call through a follower, and streams on both kinds of nodes."""
    leader = await asyncio.to_thread(nodes.leader)
    follower = next(node for node in nodes.nodes if node is not leader)
    async with (
        asyncio.timeout(GUARD_SECONDS),
        AsyncClient(nodes.target) as client,
        AsyncClient(follower.address) as through_follower,
        grpc.aio.insecure_channel(follower.address) as channel,
    ):
        stub = task_service_pb2_grpc.TaskServiceStub(channel)
        await client.create_tube(TUBE)
        await client.create_tube("other")
        tube = client.tube(TUBE)
        async with client.subscribe(TUBE, credit=1) as tasks:
            await tube.put(b"before")
            async with await anext(tasks) as task:
                assert task.payload == b"before"
            relayed = stub.Subscribe()
            await relayed.write(
                pb.SubscribeRequest(
                    open=pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="other")])
                )
            )
            assert (await relayed.read()).HasField("opened")
            answered = stub.PutTasks(put_request(b"first"))
            await answered
            leader.pause()
            try:
                await tube.put(b"by the client", timeout=PUT_SECONDS)
                # The stub's call has no deadline: the follower must give up the paused leader.
                await stub.PutTasks(put_request(b"by a stub"))
                await through_follower.tube(TUBE).put(b"by another client", timeout=PUT_SECONDS)
                received = set()
                while len(received) < 4:
                    async with await anext(tasks) as task:
                        received.add(task.payload)
                while not (response := await relayed.read()).HasField("go_away"):
                    pass
                assert response.go_away.leader not in ("", leader.address)
            finally:
                leader.resume()
        assert received == {b"first", b"by the client", b"by a stub", b"by another client"}
