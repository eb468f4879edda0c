"""Calls and streams that hold too much memory are refused, and their bytes are freed at the end."""

import asyncio
import gc
from contextlib import AsyncExitStack
from types import FrameType

import grpc
import grpc.aio
import pytest

from taskraft.v1 import error_pb2, task_pb2, task_service_pb2, task_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.call_load import SMALL_REQUEST_BYTES
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.streams.responses import UNSENT_BYTES_MAX, ResponseBuffer
from taskraft_service.limits import TAKE_BYTES_DEFAULT
from tests.service.api.rpc.call_loads import call_load
from tests.service.conftest import config_in, create, put, reason_of, running, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

PATH = "/taskraft.v1.TaskService/PutTasks"
MIB = 1024 * 1024
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
BURST_CONNECTIONS = 8
BURST_CALLS = 500
"""Number of calls on each connection."""


def refusal_of(load, request_bytes):
    with pytest.raises(CallRefused) as caught:
        load.check_call(request_bytes)
    assert caught.value.reason == error_pb2.Error.OVERLOADED
    return caught.value.metadata["limit"]


def test_a_call_above_the_limit_of_calls_is_refused():
    load = call_load(calls_max=2)
    load.calls = 2
    load.check_call(1)
    load.calls = 3
    assert refusal_of(load, 1) == "calls_max"


def test_only_a_small_request_is_accepted_above_the_limit_of_bytes():
    load = call_load()
    load.held_bytes = load.bytes_max + 1
    load.check_call(SMALL_REQUEST_BYTES)
    assert refusal_of(load, SMALL_REQUEST_BYTES + 1) == "call_bytes_max"


def test_a_stream_above_the_limit_of_streams_is_refused():
    load = call_load(streams_max=1)
    load.streams = 1
    load.check_stream()
    load.streams = 2
    with pytest.raises(CallRefused) as caught:
        load.check_stream()
    assert caught.value.metadata["limit"] == "streams_max"


async def test_responses_count_until_they_are_sent():
    load = call_load()
    responses = ResponseBuffer(load)
    responses.add(b"x" * UNSENT_BYTES_MAX)
    assert responses.is_full
    await responses.next()
    assert (responses.is_full, load.held_bytes) == (True, UNSENT_BYTES_MAX)
    responses.sent()
    assert (responses.is_full, load.held_bytes) == (False, 0)


def test_unsent_responses_no_longer_count_at_the_end_of_the_stream():
    load = call_load()
    responses = ResponseBuffer(load)
    responses.add_tasks([b"ab", b"cd"], [1, 2])
    assert load.held_bytes == 4
    assert responses.unsent() == [1, 2]
    assert load.held_bytes == 0


def test_a_stream_with_unsent_responses_is_full_while_the_node_holds_too_much():
    load = call_load()
    idle, busy = ResponseBuffer(load), ResponseBuffer(load)
    busy.add(b"x")
    load.held_bytes = load.bytes_max // 2
    assert (idle.is_full, busy.is_full) == (False, True)


# ------------------------------------------------------------------------------ a real node


async def test_a_call_above_the_limit_is_refused_with_a_reason(tmp_path):
    async with running(config_in(tmp_path, calls_max=1)) as node:
        await create(node)
        waiting = asyncio.ensure_future(take(node, wait_ms=5_000))
        await node.waiting(1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await put(node, b"x")
        assert reason_of(caught.value) == "OVERLOADED"
        waiting.cancel()
        await turns_until(lambda: node.server.components.load.calls == 0)
        await put(node, b"x")


async def test_open_streams_do_not_count_as_calls(tmp_path):
    async with running(config_in(tmp_path, calls_max=1, streams_max=2)) as node:
        await create(node)
        opening = pb.SubscribeRequest(
            open=pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="emails")])
        )
        streams = []
        for _ in range(2):
            streams.append(node.tasks.Subscribe())
            await streams[-1].write(opening)
            assert (await streams[-1].read()).HasField("opened")
        # gRPC does not keep the order of calls that start together, so this stream starts last.
        refused = node.tasks.Subscribe()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await refused.read()
        assert reason_of(caught.value) == "OVERLOADED"
        await put(node, b"x")
        for stream in streams:
            stream.cancel()


async def test_no_call_of_a_burst_is_cancelled(node):
    await create(node)
    selected = pb.GetTasksRequest(tube="emails", selector=task_pb2.TaskSelector(ids=[1]))
    address = f"127.0.0.1:{node.server.client_port}"
    async with AsyncExitStack() as stack:
        stubs = []
        for _ in range(BURST_CONNECTIONS):
            channel = grpc.aio.insecure_channel(address, options=OWN_CONNECTION)
            await stack.enter_async_context(channel)
            await channel.channel_ready()
            stubs.append(task_service_pb2_grpc.TaskServiceStub(channel))
        # The calls start in one turn of the event loop, so gRPC gets all calls before the node
        # does.
        calls = [stub.GetTasks(selected) for stub in stubs for _ in range(BURST_CALLS)]
        codes = {await call.code() for call in calls}
    assert codes == {grpc.StatusCode.OK}


async def test_the_bytes_of_requests_are_freed(node):
    await create(node)
    load = node.server.components.load
    await put(node, b"x" * MIB)
    with pytest.raises(grpc.aio.AioRpcError):
        await put(node, b"x" * MIB, tube="unknown")
    await turns_until(lambda: load.calls == 0)
    assert load.held_bytes == 0


async def test_a_refused_call_leaves_no_garbage_with_its_request(node):
    """A reference cycle would keep the request until the garbage collector runs."""
    request = task_service_pb2.PutTasksRequest(
        tube="unknown", tasks=[task_pb2.TaskSpec(payload=b"x" * MIB)]
    )
    call = node.channel.unary_unary(PATH)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(3):  # gRPC still refers to the last request.
            with pytest.raises(grpc.aio.AioRpcError):
                await call(request.SerializeToString())
        await turns_until(lambda: node.server.components.load.calls == 0)
        gc.collect()
        held = [
            (found.f_code.co_qualname, name)
            for found in gc.garbage
            if isinstance(found, FrameType)
            for name, value in found.f_locals.items()
            if isinstance(value, bytes) and len(value) > MIB
        ]
        requests = [each for each in gc.garbage if isinstance(each, pb.PutTasksRequest)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert (held, requests) == ([], [])


async def test_a_consumer_that_does_not_read_holds_few_bytes_on_the_leader(node):
    await create(node)
    tasks, size = 60, MIB // 2
    for _ in range(tasks // 10):
        await put(node, *[b"x" * size] * 10)
    stream = node.tasks.Subscribe()
    await stream.write(
        pb.SubscribeRequest(
            open=pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="emails")]),
            credit=pb.SubscribeRequest.Credit(tasks=tasks),
        )
    )
    load = node.server.components.load
    await turns_until(lambda: load.held_bytes >= UNSENT_BYTES_MAX)
    (subscription,) = node.server.components.streams.all()
    await turns_until(lambda: subscription.idle.is_set() and not subscription.wanted_tasks())
    assert load.held_bytes <= UNSENT_BYTES_MAX + 2 * TAKE_BYTES_DEFAULT
    received = 0
    while received < tasks:
        received += len((await stream.read()).tasks)
    await turns_until(lambda: load.held_bytes == 0)
    stream.cancel()
