"""Drops of tubes on which consumers wait, and repeated drops."""

import asyncio

import grpc
import pytest

from taskraft.v1 import tube_service_pb2
from tests.service.conftest import config_in, create, put, reason_of, running, take

pytestmark = pytest.mark.real_time


async def drop(node, **fields):
    request = tube_service_pb2.DropTubeRequest(name="emails", **fields)
    return await node.tubes.DropTube(request)


async def test_a_consumer_that_waits_on_a_dropped_tube_gets_an_error(node):
    await create(node)
    waiting = asyncio.ensure_future(take(node, wait_ms=20_000))
    await node.waiting(1)
    await drop(node, force=True)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await waiting
    assert reason_of(caught.value) == "TUBE_NOT_FOUND"


async def test_a_consumer_keeps_waiting_on_a_dropped_tube_if_puts_create_tubes(tmp_path):
    async with running(config_in(tmp_path, auto_create_tubes=True)) as node:
        await create(node)
        waiting = asyncio.ensure_future(take(node, wait_ms=20_000))
        await node.waiting(1)
        await drop(node, force=True)
        await put(node, b"x")
        assert [task.spec.payload for task in (await waiting).tasks] == [b"x"]


@pytest.mark.parametrize("force", [False, True])
async def test_a_repeated_drop_affects_neither_the_new_tube_nor_its_consumers(node, force):
    await create(node)
    first = await drop(node, request_id="r", force=force)
    await create(node)
    waiting = asyncio.ensure_future(take(node, wait_ms=20_000))
    await node.waiting(1)
    assert (await drop(node, request_id="r", force=force)).tasks == first.tasks
    await put(node, b"x")
    assert [task.spec.payload for task in (await waiting).tasks] == [b"x"]
