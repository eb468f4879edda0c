"""A Subscribe stream whose client and submitter are in the test."""

import asyncio
from types import SimpleNamespace

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.streams.subscribe_stream import SubscribeStream
from taskraft_service.api.streams.subscription_state import SubscriptionState
from taskraft_service.leader.waiters import Waiters
from tests.service.api.rpc.call_loads import call_load
from tests.service.leader.waiting import Board, add

EACH_TUBE = pb.TakeSource(tube="*")
OPENING = pb.SubscribeRequest(open=pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="a")]))


class Stream:
    """A stream whose client sends the given messages and then waits for the end of the stream."""

    deadline = None
    arrives_together = False
    """Whether the messages that were sent arrive in one read."""

    @property
    def has_arrived(self):
        return self.arrives_together and not self.sent.empty()

    def __init__(self, *messages):
        self.metadata = {}
        self.sent = asyncio.Queue()
        for message in messages:
            self.send(message)
        self.received = []

    def send(self, message):
        self.sent.put_nowait(message if message is None else message.SerializeToString())

    async def read(self):
        return await self.sent.get()

    async def write(self, raw):
        self.received.append(pb.SubscribeResponse.FromString(raw))

    @property
    def settled(self):
        return [one for message in self.received for one in message.settled]


class Submitter:
    """Proposes settlements, and resolves them when the test asks for it."""

    def __init__(self):
        self.refusal = None
        self.proposed = []
        self.woken = 0

    def submit(self, recorded, deadline=None):
        if self.refusal is not None:
            raise self.refusal
        future = asyncio.get_running_loop().create_future()
        self.proposed.append((recorded.command, future))
        return future

    def wake(self):
        self.woken += 1


class Reading:
    """Reads of a queue in which no session holds a task, at 5 ms."""

    applied = SimpleNamespace(tube_names=lambda: ())
    queues = SimpleNamespace(
        cancelled=lambda _session_id: (),
        holds_lease=lambda _session_id: False,
        lease_tokens=lambda _session_id: (),
    )

    wall_offset_ms = 2

    @staticmethod
    def wall_now_ms():
        return 7


class ReadingWithLease(Reading):
    """Reads of a queue in which each session holds a task."""

    queues = SimpleNamespace(holds_lease=lambda _session_id: True)


class Linked:
    """A stream of the tube "a", or of many tubes."""

    def __init__(self, *messages, reading=Reading, tubes=None):
        opening = OPENING if tubes is None else pb.SubscribeRequest(open={"sources": [EACH_TUBE]})
        self.stream = Stream(opening, *messages)
        self.submitter = Submitter()
        self.load = call_load()
        self.waiters = Waiters(Board(**tubes or {"a": 0}))
        self.subscription = SubscriptionState(
            opening.open, "session", lambda _tokens: None, self.load
        )
        add(self.waiters, self.subscription)
        self.opened = []
        self.built = 0
        self.link = SubscribeStream(
            self.subscription, self.stream, self.submitter, self.waiters, reading(), 100
        )

    def run(self):
        first = self.stream.sent.get_nowait()

        async def beat():
            return pb.SubscribeResponse(heartbeat=pb.SubscribeResponse.Heartbeat(now_ms=5))

        return asyncio.ensure_future(self.link.run(first, self.opening(), beat))

    async def opening(self):
        for response in self.opened:
            self.built += 1
            yield response.SerializeToString()


def acked(number=0):
    settlement = pb.Settlement(tokens=[1], ack=pb.Settlement.Ack())
    return pb.SubscribeRequest(settlements=[settlement], request_id=f"r{number}")


async def turn():
    for _ in range(5):
        await asyncio.sleep(0)
