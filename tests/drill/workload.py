"""Clients that put, take, settle, kick, delete and peek, and record each operation.

Each client repeats most requests of unknown outcome with the same request id, so that the history
shows their effect. Clients pause by waiting for the end of the drill.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from taskraft.v1 import (
    error_pb2,
    task_pb2,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)
from taskraft.v1 import task_service_pb2 as pb
from tests.drill.caller import Answer, Caller, Channels, refusal
from tests.drill.history import HistoryRecorder, Invocation

TaskStub = task_service_pb2_grpc.TaskServiceStub
TubeStub = tube_service_pb2_grpc.TubeServiceStub
Kind = tube_service_pb2.Tube

LEASE_SECONDS = 3.0
TUBES = {
    "work": {"type": "fifottl", "ttr": LEASE_SECONDS, "ttl": None},
    "lanes": {"type": "utubettl", "ttr": LEASE_SECONDS, "ttl": None, "concurrency": 1},
    "streamed": {"type": "fifottl", "ttr": LEASE_SECONDS, "ttl": None},
}
"""A task whose lease ends is ready at once: histories cannot say how long a retry is delayed."""
SUBQUEUES = 6
PRIORITIES = 3
REPEAT_UNKNOWN = 0.85
"""Share of the requests of unknown outcome that are repeated."""
UNNAMED = 0.3
"""Share of the requests without a request id. They are sent once, so their log position is known.
"""
REPEAT_ACKNOWLEDGED = 0.03
"""Share of the acknowledged puts that are repeated too."""
DELAY_MS = 150
KNOWN_TASKS = 200
"""Number of recent tasks that a visitor may peek at or delete."""


@dataclass
class Floor:
    """The data that all clients of one drill share."""

    channels: Channels
    recorder: HistoryRecorder
    seed: int
    pace_seconds: float = 0.01
    """Pause of a client between two requests."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the clients must finish."""
    recent: deque[tuple[str, int]] = field(default_factory=lambda: deque(maxlen=KNOWN_TASKS))
    acknowledged_ns: list[int] = field(default_factory=list)
    """Times at which puts were acknowledged."""
    spent: deque[tuple[str, int, int, str]] = field(default_factory=lambda: deque(maxlen=50))
    """Tube, id, token and session of leases that have ended."""

    async def pause(self, seconds: float) -> None:
        """Wait for a time, or until the clients must finish."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), seconds)


class Worker:
    """One client, with its name in the history, its request ids and its random choices."""

    def __init__(self, floor: Floor, name: str) -> None:
        self.floor = floor
        self.draw = random.Random(f"{floor.seed}/{name}")
        self.caller = Caller(floor.channels, self.draw)
        self._name = name
        self._lives = itertools.count()
        self.process = ""
        self.renew()

    def renew(self) -> None:
        """Take a new name; an operation of the old name stays open in the history forever."""
        self.process = f"{self._name}.{next(self._lives)}"

    async def request(
        self,
        method: str,
        message: Any,
        operations: Sequence[tuple[str, dict[str, Any]]],
        close: Callable[[Answer, Sequence[Invocation]], None],
        may_repeat: Callable[[], Awaitable[bool]] | None = None,
        repeats: int = 60,
    ) -> Answer:
        """Send a request, and repeat it while its outcome is unknown; record each attempt.

        A change without a request id is sent once.

        ``close`` records the answer of a call that succeeded.
        """
        stub = TubeStub if method in ("ReleaseAll", "TruncateTube") else TaskStub
        is_named = method == "GetTasks" or bool(getattr(message, "request_id", ""))
        for _ in range(repeats if is_named else 1):
            opened = [
                self.floor.recorder.invoke(self.process, f, self.caller.node.name, **value)
                for f, value in operations
            ]
            answer = await self.caller.call(stub, method, message)
            if answer.is_ok:
                close(answer, opened)
                return answer
            for one in opened:
                one.fail(answer.error) if answer.outcome == "fail" else one.info(answer.error)
            if answer.outcome == "fail":
                await self.floor.pause(0.03)
                return answer
            self.renew()
            if self.draw.random() > REPEAT_UNKNOWN or (may_repeat and not await may_repeat()):
                return answer
            await self.floor.pause(0.03)
        return answer

    def request_id(self) -> str:
        """Return a new request id, or an empty one for a request that is sent once."""
        if self.draw.random() < UNNAMED:
            return ""
        return str(uuid.UUID(int=self.draw.getrandbits(128), version=4))


async def create_tubes(caller: Caller) -> None:
    """Create the tubes of the workload."""
    kinds = {"fifottl": Kind.FIFOTTL, "utubettl": Kind.UTUBETTL}
    for name, options in TUBES.items():
        tube = tube_service_pb2.Tube(name=name, kind=kinds[options["type"]])
        tube.options.ttr_ms = int(LEASE_SECONDS * 1_000)
        tube.options.retry.SetInParent()  # unlimited attempts without delay
        request = tube_service_pb2.CreateTubeRequest(tube=tube, if_not_exists=True)
        answer = await caller.call(TubeStub, "CreateTube", request, 20)
        assert answer.is_ok, f"a healthy cluster creates no tube: {answer.error}"


def spec_of(value: dict[str, Any], size: int) -> task_pb2.TaskSpec:
    """Return the task of a put in the history; the payload begins with the uid."""
    spec = task_pb2.TaskSpec(payload=value["uid"].encode().ljust(size, b" "))
    spec.headers["uid"] = value["uid"].encode()
    spec.subqueue = value.get("utube", "")
    if "pri" in value:
        spec.priority = value["pri"]
    if "delay" in value:
        spec.delay_ms = int(value["delay"] * 1_000)
    return spec


def uid_of(task: task_pb2.Task) -> str:
    """Return the content of a task; a damaged payload gives a text that no client put."""
    uid = task.spec.headers["uid"].decode()
    if task.spec.payload and task.spec.payload.rstrip().decode(errors="replace") != uid:
        return f"damaged {task.spec.payload[:40]!r}"
    return uid


class Producer(Worker):
    """Puts one to three tasks at a time, each with a content of its own."""

    def __init__(self, floor: Floor, name: str) -> None:
        super().__init__(floor, name)
        self._contents = itertools.count(1)

    async def run(self) -> None:
        """Put until the drill is over."""
        while not self.floor.over.is_set():
            await self.put(self.draw.choice(tuple(TUBES)))
            await self.floor.pause(self.floor.pace_seconds)

    async def put(self, tube: str) -> None:
        """Put tasks, and sometimes repeat the request although it was acknowledged."""
        request_id = self.request_id()
        # The judge recognises a put of unknown outcome by its content.
        values = [
            {"tube": tube, "uid": f"{self._name}-{next(self._contents)}"}
            for _ in range(self.draw.choice((1, 1, 2, 3)))
        ]
        for place, value in enumerate(values):
            value.update(named(request_id, place))
            if tube == "lanes":
                value["utube"] = str(self.draw.randrange(SUBQUEUES))
            elif tube == "work":
                value["pri"] = self.draw.randrange(PRIORITIES)
            if self.draw.random() < 0.05:
                value["delay"] = DELAY_MS / 1_000
        size = self.draw.choice((100, 100, 100, 2_000))
        message = pb.PutTasksRequest(
            request_id=request_id, tube=tube, tasks=[spec_of(value, size) for value in values]
        )
        operations = [("put", value) for value in values]
        answer = await self.request("PutTasks", message, operations, self._close)
        if request_id and answer.is_ok and self.draw.random() < REPEAT_ACKNOWLEDGED:
            await self.request("PutTasks", message, operations, self._close)

    def _close(self, answer: Answer, opened: Sequence[Invocation]) -> None:
        self.floor.acknowledged_ns.append(time.monotonic_ns())
        for number, one in zip(answer.response.task_ids, opened, strict=True):
            assert number, "no item of these puts can be refused alone"
            one.ok(id=number, **position(one, answer))
            self.floor.recent.append((one.value["tube"], number))


class Visitor(Worker):
    """Kicks, deletes and peeks at tasks, and settles leases that have ended."""

    async def run(self) -> None:
        """Do one such operation at a time, until the drill is over."""
        while not self.floor.over.is_set():
            act = self.draw.choice((self._kick_some, self.delete, self.peek, self.settle_spent))
            await act()
            await self.floor.pause(self.floor.pace_seconds * 5)

    async def _kick_some(self) -> None:
        await self.kick(self.draw.choice(tuple(TUBES)), 5)

    async def kick(self, tube: str, count: int) -> Answer:
        """Make buried tasks ready."""
        value = {"tube": tube, "count": count}
        message = pb.KickTasksRequest(tube=tube, count=count)
        return await self.request(
            "KickTasks",
            message,
            [("kick", value)],
            lambda answer, opened: opened[0].ok(
                count=answer.response.count, **position(opened[0], answer)
            ),
        )

    async def delete(self) -> None:
        """Remove a recent task in any state."""
        if not self.floor.recent or self.draw.random() < 0.7:
            return
        tube, number = self.draw.choice(self.floor.recent)
        value = {"tube": tube, "id": number}
        message = pb.DeleteTasksRequest(tube=tube, selector=task_pb2.TaskSelector(ids=[number]))
        await self.request("DeleteTasks", message, [("delete", value)], self._close)

    async def peek(self) -> None:
        """Peek at a recent task."""
        if not self.floor.recent:
            return
        tube, number = self.draw.choice(self.floor.recent)
        message = pb.GetTasksRequest(tube=tube, selector=task_pb2.TaskSelector(ids=[number]))
        await self.request(
            "GetTasks",
            message,
            [("peek", {"tube": tube, "id": number})],
            lambda answer, opened: opened[0].ok(
                **shown(answer.response.tasks), **position(opened[0], answer)
            ),
        )

    async def settle_spent(self) -> None:
        """Acknowledge with the token of an ended lease; the node must refuse."""
        if not self.floor.spent:
            return
        tube, number, token, session = self.draw.choice(self.floor.spent)
        request_id = self.request_id()
        value = {"tube": tube, "id": number, "token": token, "session": session}
        message = pb.SettleTasksRequest(
            request_id=request_id,
            settlements=[pb.Settlement(tokens=[token], ack=pb.Settlement.Ack())],
        )
        operations = [("ack", {**value, **named(request_id, 0)})]
        await self.request("SettleTasks", message, operations, self._close)

    def _close(self, answer: Answer, opened: Sequence[Invocation]) -> None:
        (one,) = opened
        close_item(one, answer.response.errors, 0, **position(one, answer))


def named(request_id: str, place: int) -> dict[str, str]:
    """Return the field of the history with the request id of one item of a request."""
    return {"request_id": f"{request_id}/{place}"} if request_id else {}


def position(one: Invocation, answer: Answer) -> dict[str, int]:
    """Return the field of the history with the log position of an effect, if it is known.

    A request with an id may have been repeated, also by a node that forwards the request. Its
    answer then has the log position of the repetition.
    """
    return {} if "request_id" in one.value else {"rev": answer.response.revision}


STATES = {
    task_pb2.Task.READY: "r",
    task_pb2.Task.DELAYED: "~",
    task_pb2.Task.TAKEN: "t",
    task_pb2.Task.BURIED: "!",
}


def shown(tasks: Sequence[task_pb2.Task]) -> dict[str, Any]:
    """Return the record of a peeked task for the history."""
    if not tasks:
        return {"state": None}
    return {"state": STATES[tasks[0].state], "uid": uid_of(tasks[0])}


def close_item(one: Invocation, errors: Sequence[Any], item: int, **answer: Any) -> bool:
    """Record the outcome of one item of a list; return whether it succeeded."""
    for error in errors:
        if error.item == item:
            one.fail(refusal(error_pb2.Error.Reason.Name(error.error.reason)))
            return False
    one.ok(**answer)
    return True
