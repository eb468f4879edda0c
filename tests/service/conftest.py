"""A real node in this process: real gRPC on loopback, real RocksDB, a real log."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from service.assembly import Server
from service.config import Config
from service.roles import Phase
from taskraft.v1 import (
    cluster_service_pb2_grpc,
    feed_service_pb2_grpc,
    session_service_pb2_grpc,
    task_service_pb2_grpc,
    tube_service_pb2_grpc,
)


class Node:
    """A running node and stubs for each of its services."""

    def __init__(self, server: Server, channel: grpc.aio.Channel) -> None:
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


async def until_phase(server: Server, phase: Phase) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + 10
    while server.roles.phase is not phase:
        assert await server.leadership.changed(until), f"still {server.roles.phase.name}"


def config_in(tmp_path, **settings) -> Config:
    return Config(
        **{
            "node_name": "n0",
            "data_dir": tmp_path / "data",
            "listen": "127.0.0.1:0",
            "peer_listen": "127.0.0.1:0",
            "http_listen": "127.0.0.1:0",
            "stop_grace_ms": 1000,
            **settings,
        }
    )


@asynccontextmanager
async def running(config: Config):
    """Run a node that leads."""
    server = await Server.open(config)
    await server.start()
    try:
        await until_phase(server, Phase.RUNNING)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.client_port}") as channel:
            yield Node(server, channel)
    finally:
        await server.stop()


@pytest.fixture
async def node(tmp_path):
    async with running(config_in(tmp_path)) as one:
        yield one
