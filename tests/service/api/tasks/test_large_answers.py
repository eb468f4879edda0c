"""Large answers hold a bounded number of bytes of a node."""

import asyncio

import grpc.aio
import pytest

from taskraft.v1 import task_pb2, task_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from tests.service.conftest import config_in, create, put, running
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

MIB = 1024 * 1024
TASKS = 7
"""Number of tasks of one answer, each of almost 1 MiB."""
CALLS = 12
ANY_SIZE = (("grpc.max_receive_message_length", -1),)


async def test_large_answers_at_once_hold_a_bounded_number_of_bytes(tmp_path):
    async with running(config_in(tmp_path, call_bytes_max=64 * MIB)) as node:
        await create(node)
        for _ in range(TASKS):
            await put(node, b"x" * (MIB - 1024))
        selector = task_pb2.TaskSelector(ids=range(1, TASKS + 1))
        request = pb.GetTasksRequest(tube="emails", selector=selector)
        address = f"127.0.0.1:{node.server.client_port}"
        async with grpc.aio.insecure_channel(address, options=ANY_SIZE) as channel:
            stub = task_service_pb2_grpc.TaskServiceStub(channel)
            load = node.server.components.load
            room, held = load.answers, []
            reading = asyncio.gather(*[stub.GetTasks(request) for _ in range(CALLS)])
            await turns_until(lambda: held.append(len(room.held)) or reading.done())
            for answer in reading.result():
                assert [task.id for task in answer.tasks] == list(range(1, TASKS + 1))
            await turns_until(lambda: load.held_bytes == 0)
            assert room.bytes_max == 16 * MIB
            assert 2 * (TASKS - 1) * MIB < max(held) <= room.bytes_max
            assert held[-1] == len(room.held) == 0
