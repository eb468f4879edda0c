"""A bug of the native edge stops the node, because the edge may have lost calls."""

import asyncio
import os
import subprocess
import sys

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from taskraft_service.api.rpc.method_table import CallKind, ServedMethod
from taskraft_service.api.rpc.rpc_server import ServerLimits
from taskraft_service.process.main import EXIT_BROKEN
from tests.service.api.rpc.servers import SERVERS, server_class
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

PATH = "/taskraft.v1.TaskService/Break"
PAIRS = 40_000
"""A map of headers cannot hold so many metadata; the thread of the edge panics."""
BREAKING = f"""
import sys
from taskraft_service.api.rpc.native_call import NativeCall
from taskraft_service.process.main import main

finish = NativeCall.finish
metadata = tuple((f"name{{number}}", "") for number in range({PAIRS}))
NativeCall.finish = lambda call, code, text, _, answer: finish(call, code, text, metadata, answer)
sys.exit(main())
"""
"""A node whose first answer makes the edge panic."""


async def breaks_the_edge(_raw, context):
    context.set_trailing_metadata(tuple((f"name{number}", "") for number in range(PAIRS)))
    return b""


@pytest.mark.parametrize("edge", SERVERS[1:])
async def test_a_panic_of_the_edge_reaches_the_event_loop_and_the_server_can_be_stopped(edge):
    failed = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.set_result(context))
    method = ServedMethod(CallKind.UNARY, breaks_the_edge, breaks_the_edge)
    server = server_class(edge)({PATH: method}, ServerLimits(10, 10))
    port = server.listen("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(PATH)(b"", timeout=60)
        context = await asyncio.wait_for(failed, 60)
        call.cancel()
    assert "handle" in context, "the exception handler of a node stops the node"
    assert "the native edge of the client port has a bug: " in str(context["exception"])
    await server.stop(0)


@pytest.mark.parametrize("edge", SERVERS[1:])
def test_a_node_whose_edge_fails_exits_with_status_70_and_tells_why(edge, tmp_path):
    cluster = LocalCluster(1, tmp_path / "c", {"TASKRAFT_EDGE": edge})
    (node,) = cluster.nodes
    log = tmp_path / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-c", BREAKING],
            env={**os.environ, **node.environment},
            stdout=output,
            stderr=output,
        ) as process,
        grpc.insecure_channel(node.address) as channel,
    ):
        try:
            health = health_pb2_grpc.HealthStub(channel)
            with pytest.raises(grpc.RpcError):
                health.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=60)
            assert process.wait(60) == EXIT_BROKEN, log.read_text()
        finally:
            process.kill()
            cluster.close()
    said = log.read_text()
    assert "node is broken" in said
    assert "taskraft: EdgeFailed: the native edge of the client port has a bug: " in said
