"""Clients that do not read their answers hold a bounded number of bytes of a node."""

import grpc.aio
import pytest

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.conftest import config_in, create, put, running
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

MIB = 1024 * 1024
TASKS = 7
"""Number of tasks of one answer, each of almost 1 MiB."""
CALLS = 12
ANY_SIZE = (("grpc.max_receive_message_length", -1),)
PATH = "/taskraft.v1.TaskService/GetTasks"


async def test_answers_that_clients_do_not_read_are_bounded(tmp_path):
    async with running(config_in(tmp_path, call_bytes_max=64 * MIB)) as node:
        await create(node)
        for _ in range(TASKS):
            await put(node, b"x" * (MIB - 1024))
        selector = task_pb2.TaskSelector(ids=range(1, TASKS + 1))
        request = pb.GetTasksRequest(tube="emails", selector=selector).SerializeToString()
        address = f"127.0.0.1:{node.server.client_port}"
        async with grpc.aio.insecure_channel(address, options=ANY_SIZE) as channel:
            get = channel.unary_stream(PATH)
            calls = [get(request) for _ in range(CALLS)]
            load = node.server.components.load
            room = load.answers
            # The calls whose answers are written have ended; the others wait for room.
            await turns_until(lambda: load.calls + 2 == CALLS)
            assert room.bytes_max == 16 * MIB
            assert 2 * (TASKS - 1) * MIB < len(room.held) <= room.bytes_max
            assert load.held_bytes < room.bytes_max + MIB
            for call in calls:
                answer = pb.GetTasksResponse.FromString(await call.read())
                assert [task.id for task in answer.tasks] == list(range(1, TASKS + 1))
            await turns_until(lambda: load.held_bytes == 0)
            assert len(room.held) == 0
