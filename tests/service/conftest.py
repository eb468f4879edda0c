"""Run a real node in this process: gRPC on loopback, RocksDB, and a Raft log."""

import asyncio
import os
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from taskraft.v1 import (
    cluster_service_pb2_grpc,
    feed_service_pb2_grpc,
    session_service_pb2_grpc,
    task_pb2,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.status import reason_in
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.limits import PUT_TASKS_MAX
from taskraft_service.process.node_server import NodeServer
from tests.turns import turns_until


class Node:
    """A running node, and stubs for each of its services."""

    def __init__(self, server: NodeServer, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.channel = channel
        self.tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        self.tubes = tube_service_pb2_grpc.TubeServiceStub(channel)
        self.sessions = session_service_pb2_grpc.SessionServiceStub(channel)
        self.feed = feed_service_pb2_grpc.FeedServiceStub(channel)
        self.cluster = cluster_service_pb2_grpc.ClusterServiceStub(channel)

    @property
    def queue(self):
        return self.server.machine.queue

    async def waiting(self, consumers, tube="emails"):
        """Return once the given number of consumers waits on a tube."""
        await turns_until(lambda: self.server.components.waiters.waiting_count(tube) == consumers)

    async def waiting_anywhere(self, consumers):
        """Return once the given number of consumers waits."""
        await turns_until(lambda: len(self.server.components.waiters) == consumers)


async def until_phase(server: NodeServer, phase: NodePhase) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + 10
    while server.components.phases.phase is not phase:
        assert await server.components.leadership.wait_for_change_until(until), (
            f"still {server.components.phases.phase.name}"
        )


def config_in(tmp_path, **settings) -> ServerConfig:
    return ServerConfig(
        **{
            "node_name": "n0",
            "data_dir": tmp_path / "data",
            "listen": "127.0.0.1:0",
            "peer_listen": "127.0.0.1:0",
            "http_listen": "127.0.0.1:0",
            "stop_grace_ms": 1000,
            "edge": os.environ.get("TASKRAFT_EDGE", "auto"),
            **settings,
        }
    )


@asynccontextmanager
async def running(config: ServerConfig):
    """Run a node that leads."""
    server = await NodeServer.open(config)
    await server.start()
    try:
        await until_phase(server, NodePhase.RUNNING)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.client_port}") as channel:
            yield Node(server, channel)
    finally:
        await server.stop()


@pytest.fixture
async def node(tmp_path):
    async with running(config_in(tmp_path)) as one:
        yield one


async def create(node, name="emails", kind=tube_service_pb2.Tube.FIFOTTL):
    tube = tube_service_pb2.Tube(name=name, kind=kind)
    return await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))


async def put(node, *payloads, tube="emails", **fields):
    tasks = [task_pb2.TaskSpec(payload=payload, **fields) for payload in payloads]
    return await node.tasks.PutTasks(pb.PutTasksRequest(tube=tube, tasks=tasks))


async def put_many(node, count, **fields):
    """Put many empty tasks, in requests of the largest size."""
    for left in range(count, 0, -PUT_TASKS_MAX):
        await put(node, *[b""] * min(left, PUT_TASKS_MAX), **fields)


async def take(node, tube="emails", tasks_max=20, wait_ms=0, **fields):
    request = pb.TakeTasksRequest(
        sources=[pb.TakeSource(tube=tube)], tasks_max=tasks_max, wait_ms=wait_ms, **fields
    )
    return await node.tasks.TakeTasks(request, timeout=10)


async def ack(node, tasks):
    tokens = [task.token for task in tasks]
    settlement = pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())
    return await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))


def reason_of(error):
    return reason_in(error.trailing_metadata())


__all__ = ["ack", "config_in", "create", "put", "reason_of", "running", "take"]
