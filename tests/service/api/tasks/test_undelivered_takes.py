"""A take releases its tasks if the caller has gone before the answer is sent."""

import asyncio
import socket
import struct
import threading
from contextlib import contextmanager

import pytest

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.forwarding import Forwarder
from taskraft_service.api.tasks import takes
from tests.cluster.hostile_frames import DATA, END_STREAM, RST_STREAM, frame
from tests.service.api.rpc.raw_connection import OPENING, SECONDS_MAX, begun_call
from tests.service.api.rpc.servers import SERVERS
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import config_in, create, put, running, take

pytestmark = pytest.mark.real_time

ROUNDS = 20
PING = 6
ACK = 1
CANCEL = struct.pack(">I", 8)


class Caller:
    """A caller of TakeTasks in a thread, which cancels its call when it is told to go.

    The server acknowledges a PING after it has read all frames before the PING. So ``goes`` returns
    when the server, but not yet its handler, knows that the call has ended.
    """

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
        self._socket.sendall(OPENING)
        self._received = self._socket.makefile("rb")

    def take(self, request):
        content = request.SerializeToString()
        message = struct.pack(">BI", 0, len(content)) + content
        self._socket.sendall(begun_call(1, "TakeTasks") + frame(DATA, END_STREAM, 1, message))

    def goes(self):
        self._socket.sendall(frame(RST_STREAM, 0, 1, CANCEL) + frame(PING, 0, 0, bytes(8)))
        while True:
            head = self._received.read(9)
            self._received.read(int.from_bytes(head[:3], "big"))
            if (head[3], head[4]) == (PING, ACK):
                return

    def close(self):
        self._received.close()
        self._socket.close()


@contextmanager
def caller_at(node):
    caller = Caller(node.server.client_port)
    try:
        yield caller
    finally:
        caller.close()


def blocked_while(act):
    """Block the event loop, as a busy handler does, until a thread has acted."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()


def request_of(**fields):
    return pb.TakeTasksRequest(sources=[pb.TakeSource(tube="emails")], **fields)


async def state_of_the_task(node):
    (task,) = (await node.tasks.ListTasks(pb.ListTasksRequest(tube="emails"))).tasks
    return task


async def taken_again(node):
    """Return the task once it is READY again; the call waits for the release."""
    answer = await take(node, wait_ms=20_000)
    (task,) = answer.tasks
    return task


class Hook:
    """Runs ``act`` once, between the take and its answer."""

    def __init__(self):
        self.act = None
        self.fired = asyncio.Event()

    def fire(self):
        act, self.act = self.act, None
        if act is not None:
            blocked_while(act)
            self.fired.set()


@pytest.fixture
def after_take(monkeypatch):
    hook = Hook()
    encode = takes.encode_take

    def encode_take(*args):
        answer = encode(*args)
        hook.fire()
        return answer

    monkeypatch.setattr(takes, "encode_take", encode_take)
    return hook


@pytest.fixture
def after_forward(monkeypatch):
    hook = Hook()
    forward = Forwarder.forward

    async def forwarded(self, method, *args, **options):
        answer = await forward(self, method, *args, **options)
        if method.endswith("/TakeTasks"):
            hook.fire()
        return answer

    monkeypatch.setattr(Forwarder, "forward", forwarded)
    return hook


async def cancelled_take(leader, called, hook, **fields):
    """Call TakeTasks, and cancel the call after the take and before its answer."""
    hook.fired.clear()
    with caller_at(called) as caller:
        caller.take(request_of(wait_ms=20_000, **fields))
        await leader.waiting(1)
        hook.act = caller.goes
        await put(leader, b"x")
        await hook.fired.wait()


@pytest.mark.parametrize("edge", SERVERS)
async def test_a_cancelled_take_releases_its_tasks(tmp_path, edge, after_take):
    async with running(config_in(tmp_path, edge=edge)) as node:
        await create(node)
        assert await attempts_after(node, node, after_take) == [1] * ROUNDS


@pytest.mark.parametrize("edge", SERVERS)
async def test_a_cancelled_take_with_a_request_id_keeps_its_tasks(tmp_path, edge, after_take):
    async with running(config_in(tmp_path, edge=edge)) as node:
        await create(node)
        await put(node, b"x")
        with caller_at(node) as caller:
            after_take.act = caller.goes
            caller.take(request_of(request_id="r"))
            await after_take.fired.wait()
            (task,) = (await node.tasks.TakeTasks(request_of(request_id="r"))).tasks
            assert task.state == task_pb2.Task.TAKEN
            assert (await state_of_the_task(node)).attempt == 1


@pytest.mark.parametrize("edge", SERVERS)
async def test_a_cancelled_take_at_a_follower_releases_its_tasks(tmp_path, edge, after_forward):
    async with cluster_in(tmp_path, edge=edge) as three:
        leader, follower = three.leader, three.followers[0]
        await create(leader)
        assert await attempts_after(leader, follower, after_forward) == [1] * ROUNDS


async def test_a_take_at_a_follower_that_is_cancelled_while_the_leader_answers_releases_its_tasks(
    tmp_path, after_take
):
    async with cluster_in(tmp_path) as three:
        leader, follower = three.leader, three.followers[0]
        await create(leader)
        assert await attempts_after(leader, follower, after_take) == [1] * ROUNDS


async def attempts_after(leader, called, hook):
    """Cancel takes, each on its way to the caller; return the attempts of the next takes."""
    attempts = []
    for _ in range(ROUNDS):
        await cancelled_take(leader, called, hook)
        task = await taken_again(leader)
        attempts.append(task.attempt)
        await settle(leader, task)
    return attempts


async def settle(node, task):
    ack = pb.Settlement(tokens=[task.token], ack=pb.Settlement.Ack())
    await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[ack]))
