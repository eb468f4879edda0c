"""Count what a put, a take and an acknowledgement cost one node, over each server of clients.

The client blocks a thread of its own, so only the node runs on the event loop that is counted.
"""

import asyncio
import sys
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import get_native_id
from typing import NamedTuple

import grpc
import pytest

from taskraft.v1 import task_pb2, task_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.streams import stream_settlements, subscription_state
from tests.service.access.secured import secured, token_of
from tests.service.api.rpc.servers import SERVERS
from tests.service.conftest import config_in, create, put_many, running, take
from tests.turns import blocked_until

pytestmark = pytest.mark.real_time

CALLS = 50
"""Number of calls of which each count is the mean."""


class Cost(NamedTuple):
    """Mean counts of one call, on the thread of the event loop."""

    tasks: float
    """Tasks of asyncio that were made."""
    python_calls: float
    """Python functions that were entered."""
    wake_ups: float
    """Times that the event loop found something to do after it had waited."""
    switches: float
    """Times that the thread gave up its core (voluntary context switches)."""
    syncs: float
    """Writes of the log, each of which ends with one sync."""
    entries: float
    """Entries of the log."""


MAXIMA = {
    # Edge, tasks of a call: maximum number of asyncio tasks, Python calls and wake-ups of a put, a
    # take and an acknowledgement. The Python calls are 1.25 times those of CPython 3.11.7.
    ("native", 1): ((0, 440, 2.5), (1, 860, 3.5), (0, 460, 2.5)),
    ("native", 100): ((1, 1_950, 2.5), (1, 3_800, 3.5), (0, 2_000, 2.5)),
    ("grpc", 1): ((3, 660, 8), (3, 1_070, 8), (3, 700, 8)),
    ("grpc", 100): ((3, 2_110, 8), (3, 3_740, 8), (3, 1_790, 8)),
}
NAMED_MAXIMA = {
    # Edge: maximum number of asyncio tasks and Python calls of a put, a take and an acknowledgement
    # of a caller with a token. The Python calls are 1.25 times those of CPython 3.11.7.
    "native": ((0, 500), (1, 950), (0, 530)),
    "grpc": ((3, 790), (3, 1_140), (3, 825)),
}
SWITCHES_MAX = 20
"""Maximum number of voluntary context switches of a call; other load changes their number."""
BURST = 100
"""Number of calls that arrive together."""
BURST_PYTHON_CALLS_MAX = 180
"""Maximum number of Python calls of a put or settlement that arrives with others; 133 and 109 were
counted."""

STREAM_PYTHON_CALLS_MAX = 700
"""Maximum number of Python calls of a delivery with its acknowledgement; 560 were counted."""
RUN_PYTHON_CALLS_MAX = 75
"""Maximum number of Python calls of an acknowledgement that arrives on a stream with others; 54 to
60 were counted, and 95 to 101 with one command for each message."""
STREAM_WAKE_UPS_MAX = {"native": 3, "grpc": 8}


class Counts:
    """What the event loop of a node has done since the start of a block."""

    def __init__(self, node, monkeypatch):
        self.node, self.loop = node, asyncio.get_running_loop()
        self.tasks = self.python_calls = self.wake_ups = 0
        create_task, select = self.loop.create_task, self.loop._selector.select

        def counted_task(coroutine, **options):
            self.tasks += 1
            return create_task(coroutine, **options)

        def counted_select(timeout=None):
            events = select(timeout)
            self.wake_ups += bool(events) and timeout != 0
            return events

        monkeypatch.setattr(self.loop, "create_task", counted_task)
        monkeypatch.setattr(self.loop._selector, "select", counted_select)

    def _profile(self, _frame, event, _called):
        self.python_calls += event == "call"

    def _now(self):
        raft = self.node.server.node.counters
        status = Path(f"/proc/self/task/{get_native_id()}/status").read_text()
        switches = next(
            line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches")
        )
        return (
            *(self.tasks, self.python_calls, self.wake_ups),
            *(int(switches.split()[1]), raft.batches, raft.entries),
        )

    @contextmanager
    def of_calls(self, found, calls=CALLS):
        """Append the mean costs of a call to ``found``, after a block with ``calls`` calls."""
        before = self._now()
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
        found.append(
            Cost(*((new - old) / calls for old, new in zip(before, self._now(), strict=True)))
        )


async def costs_of(node, batch, monkeypatch, channel=None, metadata=()):
    """Return the costs of a put, a take and an acknowledgement of ``batch`` tasks.

    Without a channel, the calls use a connection without TLS.
    """
    channel = channel or grpc.insecure_channel(f"127.0.0.1:{node.server.client_port}")
    with channel:
        stub = task_service_pb2_grpc.TaskServiceStub(channel)
        specs = [task_pb2.TaskSpec(payload=b"x" * 100)] * batch
        taken = []

        def put():
            stub.PutTasks(pb.PutTasksRequest(tube="emails", tasks=specs), metadata=metadata)

        def take():
            source = pb.TakeSource(tube="emails")
            request = pb.TakeTasksRequest(sources=[source], tasks_max=batch)
            answer = stub.TakeTasks(request, metadata=metadata)
            taken.append([task.token for task in answer.tasks])

        def ack():
            settlement = pb.Settlement(tokens=taken.pop(), ack=pb.Settlement.Ack())
            request = pb.SettleTasksRequest(settlements=[settlement])
            assert not stub.SettleTasks(request, metadata=metadata).errors

        def repeat(call, times):
            for _ in range(times):
                call()

        calls = (put, take, ack)
        for call in calls:
            await asyncio.to_thread(call)  # the connection and all caches
        counts, found = Counts(node, monkeypatch), []
        for call in calls:
            with counts.of_calls(found):
                await asyncio.to_thread(repeat, call, CALLS)
        assert not taken
        return found


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("edge", SERVERS)
async def test_a_call_costs_few_tasks_calls_wake_ups_syncs_and_entries(
    tmp_path, monkeypatch, edge, batch
):
    async with running(config_in(tmp_path, edge=edge)) as node:
        await create(node)
        found = await costs_of(node, batch, monkeypatch)
    for cost, (tasks, python_calls, wake_ups) in zip(found, MAXIMA[edge, batch], strict=True):
        assert cost.tasks <= tasks
        assert cost.python_calls <= python_calls
        assert cost.wake_ups <= wake_ups
        assert cost.switches <= SWITCHES_MAX
        # The node itself may append an entry meanwhile, for example for its clock.
        assert 1 <= cost.syncs <= cost.entries <= 1.1


@pytest.mark.parametrize("edge", SERVERS)
async def test_a_call_of_a_named_caller_costs_no_more_tasks(tmp_path, monkeypatch, edge):
    async with secured(tmp_path, edge=edge) as node:
        await create(await node.known("root"))
        credentials = grpc.ssl_channel_credentials(node.authority.path.read_bytes())
        options = (("grpc.ssl_target_name_override", "localhost"),)
        address = f"127.0.0.1:{node.server.client_port}"
        channel = grpc.secure_channel(address, credentials, options)
        token = (("authorization", f"Bearer {token_of('root')}"),)
        found = await costs_of(node, 1, monkeypatch, channel, token)
    for cost, (tasks, python_calls) in zip(found, NAMED_MAXIMA[edge], strict=True):
        assert cost.tasks <= tasks
        assert cost.python_calls <= python_calls
        assert 1 <= cost.syncs <= cost.entries <= 1.1


@pytest.mark.parametrize("edge", SERVERS[1:])
async def test_puts_and_settlements_that_arrive_together_share_entries_and_make_no_task(
    tmp_path, monkeypatch, edge
):
    async with running(config_in(tmp_path, edge=edge)) as node:
        await create(node)
        with grpc.insecure_channel(f"127.0.0.1:{node.server.client_port}") as channel:
            stub = task_service_pb2_grpc.TaskServiceStub(channel)
            await asyncio.to_thread(grpc.channel_ready_future(channel).result)
            put = pb.PutTasksRequest(tube="emails", tasks=[task_pb2.TaskSpec(payload=b"x" * 100)])
            counts = Counts(node, monkeypatch)
            await together(counts, stub.PutTasks, [put] * BURST)
            taken = await take(node, tasks_max=BURST)
            acks = [
                pb.Settlement(tokens=[task.token], ack=pb.Settlement.Ack()) for task in taken.tasks
            ]
            requests = [pb.SettleTasksRequest(settlements=[one]) for one in acks]
            assert len(requests) == BURST
            await together(counts, stub.SettleTasks, requests)


class Stream:
    """A Subscribe stream with credit, in a thread that blocks."""

    def __init__(self, stub, credit=1):
        self._requests = SimpleQueue()
        opened = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="emails")])
        self._send(open=opened, credit=pb.SubscribeRequest.Credit(tasks=credit))
        self._responses = stub.Subscribe(iter(self._requests.get, None))

    def _send(self, **fields):
        self._requests.put(pb.SubscribeRequest(**fields))

    def take_and_ack(self, count):
        """Take and acknowledge tasks; each acknowledgement grants credit for the next task."""
        settled = taken = 0
        while settled < count:
            response = next(self._responses)
            settled += len(response.settled)
            assert not [one for one in response.settled if one.HasField("error") or one.errors]
            for task in response.tasks:
                taken += 1
                self._send(
                    credit=pb.SubscribeRequest.Credit(tasks=1),
                    settlements=[pb.Settlement(tokens=[task.token], ack=pb.Settlement.Ack())],
                    request_id=str(taken),
                )

    def take(self, count):
        """Return the tokens of ``count`` delivered tasks."""
        tokens = []
        while len(tokens) < count:
            tokens += [task.token for task in next(self._responses).tasks]
        return tokens

    def ack_each(self, tokens):
        """Send a message for each token, without waiting for answers."""
        for token in tokens:
            ack = pb.Settlement(tokens=[token], ack=pb.Settlement.Ack())
            self._send(settlements=[ack], request_id=str(token))

    def has_sent_all(self):
        """Return whether the client has handed over all messages but the last."""
        return self._requests.empty()

    def await_settled(self, count):
        """Wait for the answers to ``count`` messages, which all succeeded."""
        settled = []
        while len(settled) < count:
            settled += next(self._responses).settled
        assert not [one for one in settled if one.HasField("error") or one.errors]

    def end(self):
        self._requests.put(None)
        self._responses.cancel()


@pytest.mark.parametrize("edge", SERVERS)
async def test_a_stream_takes_and_acknowledges_with_one_entry_and_encodes_a_delivery_once(
    tmp_path, monkeypatch, edge
):
    async with running(config_in(tmp_path, edge=edge)) as node:
        await create(node)
        await put_many(node, 2 * CALLS)
        encoded, encode = [], subscription_state.encode_tasks

        def counted_encode(tasks, *arguments, **options):
            encoded.extend(task.token for task in tasks)
            return encode(tasks, *arguments, **options)

        monkeypatch.setattr(subscription_state, "encode_tasks", counted_encode)
        with grpc.insecure_channel(f"127.0.0.1:{node.server.client_port}") as channel:
            stream = Stream(task_service_pb2_grpc.TaskServiceStub(channel))
            await asyncio.to_thread(stream.take_and_ack, CALLS // 2)
            encoded.clear()
            counts, found = Counts(node, monkeypatch), []
            with counts.of_calls(found):
                await asyncio.to_thread(stream.take_and_ack, CALLS)
            stream.end()
    (cost,) = found
    assert cost.tasks == 0
    assert cost.python_calls <= STREAM_PYTHON_CALLS_MAX
    assert cost.wake_ups <= STREAM_WAKE_UPS_MAX[edge]
    # The acknowledgement of a task shares its entry with the take of the next task.
    assert cost.entries == cost.syncs <= 1.1
    assert CALLS <= len(encoded) == len(set(encoded)) <= CALLS + 1


@pytest.mark.parametrize("edge", SERVERS[1:])
async def test_acknowledgements_that_arrive_together_on_a_stream_share_commands(
    tmp_path, monkeypatch, edge
):
    sizes, encode = [], stream_settlements.encode_request

    def counted_encode(codec, request, *arguments):
        sizes.append(sum(len(one.tokens) for one in request.settlements))
        return encode(codec, request, *arguments)

    monkeypatch.setattr(stream_settlements, "encode_request", counted_encode)
    async with running(config_in(tmp_path, edge=edge)) as node:
        await create(node)
        await put_many(node, BURST)
        with grpc.insecure_channel(f"127.0.0.1:{node.server.client_port}") as channel:
            stream = Stream(task_service_pb2_grpc.TaskServiceStub(channel), credit=BURST)
            tokens = await asyncio.to_thread(stream.take, BURST)
            counts, found = Counts(node, monkeypatch), []
            stream.ack_each(tokens)
            # The event loop waits here, so the messages collect at the edge.
            blocked_until(stream.has_sent_all)
            with counts.of_calls(found, BURST):
                await asyncio.to_thread(stream.await_settled, BURST)
            stream.end()
    assert sum(sizes) == BURST
    assert len(sizes) <= BURST / 4
    (cost,) = found
    assert cost.python_calls <= RUN_PYTHON_CALLS_MAX


async def together(counts, method, requests):
    """Send calls that the event loop finds together; check what they cost in all."""
    server, found = counts.node.server._clients, []
    before = server.counts().in_use["calls"]
    with counts.of_calls(found, BURST):
        calls = [method.future(request) for request in requests]
        blocked_until(lambda: server.counts().in_use["calls"] == before + BURST)
        await asyncio.to_thread(lambda: [call.result() for call in calls])
    (cost,) = found
    assert cost.tasks == 0
    assert cost.python_calls <= BURST_PYTHON_CALLS_MAX
    # The message of a call may arrive after the call, so a burst may need some more entries.
    assert cost.entries == cost.syncs <= 0.1
    assert cost.wake_ups <= 0.25
