"""A process that sends the most expensive request of every method to a cluster.

The first line of its input has the addresses of the nodes, the seed and the credentials, as JSON.
The process creates many objects, writes a line, and waits for a second line. Then it sends
requests until its input ends, and writes what the nodes answered.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor

from bench.worst.calls import call, methods_of_the_contract
from bench.worst.requests import MEMBER, WORST
from bench.worst.stage import Size, Stage
from taskraft.v1 import bulk_sweep_pb2, cluster_service_pb2
from taskraft_service.limits import MESSAGE_BYTES_MAX, PAGE_SIZE_MAX
from tests.drill.caller import NO_ANSWERS, OPTIONS

SIZE: Final = Size(tubes=1_000, sessions=1_000, schedules=1_000, groups=1_000, tasks=50_000)
"""Objects that the caller creates before the first fault."""
AT_ONCE: Final = 2
"""Number of requests at the same time."""
METHOD_SECONDS_MAX: Final = 20.0
"""Maximum time to prepare and send the request of one method; a fault can make a call hang."""
GOING_ON: Final = (bulk_sweep_pb2.BulkSweep.WAITING, bulk_sweep_pb2.BulkSweep.RUNNING)


def channel_to_all(settings: Mapping[str, Any]) -> grpc.aio.Channel:
    """Return a channel to all nodes, which take turns."""
    options = (
        *OPTIONS,
        ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
        ("grpc.ssl_target_name_override", "localhost"),
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    )
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(Path(settings["ca"]).read_bytes()),
        grpc.access_token_call_credentials(settings["token"]),
    )
    target = f"ipv4:{','.join(settings['addresses'])}"
    return grpc.aio.secure_channel(target, credentials, options=options)


@dataclass
class RequestSender:
    """Sends the request of each method; a refusal by a node is an answer too.

    The requests change objects of this caller only.
    """

    stage: Stage
    draw: random.Random
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when no further request may be sent."""
    answered: Counter[str] = field(default_factory=Counter)
    """Successful requests, by method."""
    refused: int = 0
    unanswered: int = 0
    """Requests that failed without an answer of a node, because of a fault or too many calls."""
    _methods: Iterator[MethodDescriptor] = field(default_factory=lambda: iter(()))

    async def send_all(self) -> None:
        """Send until ``over``, and end what would change the state afterwards."""
        await asyncio.gather(*(self._send_in_turns() for _ in range(AT_ONCE)))
        await self._end_work()

    async def _send_in_turns(self) -> None:
        while not self.over.is_set():
            await self.send(self.next_method())

    def next_method(self) -> MethodDescriptor:
        """Return the next method; all methods come in a random order, again and again."""
        method = next(self._methods, None)
        if method is None:
            methods = methods_of_the_contract()
            self._methods = iter(self.draw.sample(methods, len(methods)))
            method = next(self._methods)
        return method

    async def send(self, method: MethodDescriptor) -> None:
        """Prepare and send the request of one method."""
        try:
            async with asyncio.timeout(METHOD_SECONDS_MAX):
                request = await WORST[method.name](self.stage)
                await call(self.stage.channel, method, request)
        except grpc.aio.AioRpcError as error:
            if error.code() in NO_ANSWERS:
                self.unanswered += 1
            else:
                self.refused += 1
        except (TimeoutError, asyncio.InvalidStateError):
            self.unanswered += 1
        else:
            self.answered[method.name] += 1

    async def _end_work(self) -> None:
        """Stop the bulk sweeps, which change the state for hours, and remove the dead member."""
        stage = self.stage
        running = bulk_sweep_pb2.ListBulkSweepsRequest(page_size=PAGE_SIZE_MAX)
        for sweep in (await stage.tasks.ListBulkSweeps(running)).sweeps:
            if sweep.state in GOING_ON:
                stop = bulk_sweep_pb2.StopBulkSweepRequest(number=sweep.number)
                await stage.tasks.StopBulkSweep(stop)
        member = cluster_service_pb2.RemoveMemberRequest(name=MEMBER)
        try:
            await stage.cluster.RemoveMember(member)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise


async def serve() -> None:
    """Follow the lines of the input."""
    settings = json.loads(await asyncio.to_thread(sys.stdin.readline))
    async with channel_to_all(settings) as channel:
        sender = RequestSender(Stage(channel, SIZE), random.Random(settings["seed"]))
        await sender.stage.fill()
        print("{}", flush=True)
        if not await asyncio.to_thread(sys.stdin.readline):
            return
        sending = asyncio.ensure_future(sender.send_all())
        await asyncio.to_thread(sys.stdin.read)
        sender.over.set()
        await sending
    counts = {"answered": sender.answered, "refused": sender.refused}
    print(json.dumps({**counts, "unanswered": sender.unanswered}), flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
