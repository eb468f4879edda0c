"""Clients that take tasks in a session of their own, by single calls or on a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import grpc.aio

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.drill.caller import Answer
from tests.drill.history import Invocation
from tests.drill.session import Session
from tests.drill.workload import (
    LEASE_SECONDS,
    Floor,
    TaskStub,
    Worker,
    close_item,
    named,
    position,
    uid_of,
)

WAIT_MS = 200
STREAM_CREDIT = 4
DECISIONS = {"ack": 74, "release": 8, "delayed release": 3, "bury": 5, "touch": 6, "hold": 4}
"""Ways in which a consumer treats a task, with the weight of each."""


class Consumer(Worker):
    """Takes tasks by calls, and settles them one after the other."""

    sizes: Sequence[int] = (1, 1, 1, 3)
    """Numbers of tasks that a call may ask for."""

    def __init__(self, floor: Floor, name: str, tubes: Sequence[str]) -> None:
        super().__init__(floor, name)
        self.tubes = tubes
        self.session = Session(floor, name)
        self._holding: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Take and settle until the drill is over."""
        heart = asyncio.ensure_future(self.session.run())
        while not self.floor.over.is_set():
            if self.session.is_fresh:
                for task in await self.take(self.draw.choice(self.tubes)):
                    await self.settle(task, self.decide())
            await self.floor.pause(self.floor.pace_seconds)
        await heart
        await asyncio.gather(*self._holding)

    def decide(self) -> str:
        """Draw how to settle a task."""
        (decision,) = self.draw.choices(tuple(DECISIONS), tuple(DECISIONS.values()))
        return decision

    async def take(self, tube: str, wait_ms: int = WAIT_MS) -> list[task_pb2.Task]:
        """Take some tasks; each take of a task is one operation in the history."""
        count = self.draw.choice(self.sizes)
        request_id, session = self.request_id(), self.session.id
        message = pb.TakeTasksRequest(
            request_id=request_id,
            sources=[pb.TakeSource(tube=tube)],
            session_id=session,
            tasks_max=count,
            wait_ms=wait_ms,
        )
        value = {"tube": tube, "session": session}
        operations = [("take", {**value, **named(request_id, place)}) for place in range(count)]
        answer = await self.request(
            "TakeTasks", message, operations, self._close_take, self._may_repeat
        )
        return list(answer.response.tasks) if answer.is_ok else []

    async def _may_repeat(self) -> bool:
        return self.session.is_fresh

    def _close_take(self, answer: Answer, opened: Sequence[Invocation]) -> None:
        tasks = list(answer.response.tasks)
        for place, one in enumerate(opened):
            if place < len(tasks):
                one.ok(**taken(tasks[place]), **position(one, answer))
            else:
                one.ok(id=None)

    async def settle(self, task: task_pb2.Task, decision: str) -> None:
        """Settle a taken task as decided; leave the task to its lease if the session is not fresh.

        The judge takes a session for alive for some seconds after each use.
        """
        if decision == "hold":
            # The lease may have expired, and another client may hold the task. The nodes must then
            # refuse.
            self._start_hold(task)
            return
        if decision == "touch":
            await self._settle(
                task, "touch", pb.Settlement(touch=pb.Settlement.Touch(restart=True))
            )
            decision = "ack"
        settlement = {
            "ack": pb.Settlement(ack=pb.Settlement.Ack()),
            "bury": pb.Settlement(bury=pb.Settlement.Bury()),
            "release": pb.Settlement(release=pb.Settlement.Release(delay_ms=0)),
            "delayed release": pb.Settlement(release=pb.Settlement.Release(delay_ms=200)),
        }[decision]
        await self._settle(task, decision.split()[-1], settlement)

    def _start_hold(self, task: task_pb2.Task) -> None:
        async def hold() -> None:
            await self.floor.pause(self.draw.uniform(0.5, 1.5) * LEASE_SECONDS)
            await self._settle(task, "ack", pb.Settlement(ack=pb.Settlement.Ack()))

        self._holding.add(asyncio.ensure_future(hold()))

    async def _settle(self, task: task_pb2.Task, f: str, settlement: pb.Settlement) -> None:
        if not self.session.is_fresh:
            return
        request_id = self.request_id()
        settlement.tokens.append(task.token)
        message = pb.SettleTasksRequest(request_id=request_id, settlements=[settlement])
        value = {
            "tube": task.tube,
            "id": task.id,
            "session": task.session_id,
            "token": task.token,
            **named(request_id, 0),
        }
        if f == "touch":
            value["restart"] = True
        if settlement.release.delay_ms:
            value["delay"] = settlement.release.delay_ms / 1_000
        answer = await self.request(
            "SettleTasks", message, [(f, value)], self._close_settle, self._may_repeat
        )
        if answer.is_ok and f != "touch":
            self.floor.spent.append((task.tube, task.id, task.token, task.session_id))

    def _close_settle(self, answer: Answer, opened: Sequence[Invocation]) -> None:
        for item, one in enumerate(opened):
            close_item(one, answer.response.errors, item, **position(one, answer))


def taken(task: task_pb2.Task) -> dict[str, Any]:
    """Return the answer of a take in the form of the history."""
    subqueue = {"utube": task.spec.subqueue} if task.spec.subqueue else {}
    return {
        "id": task.id,
        "uid": uid_of(task),
        "token": task.token,
        "tube": task.tube,
        "ttr": LEASE_SECONDS,
        **subqueue,
    }


class StreamConsumer(Consumer):
    """Takes tasks on a stream: each unit of credit is an open take of the history."""

    def __init__(self, floor: Floor, name: str, tube: str) -> None:
        super().__init__(floor, name, (tube,))
        self._open: list[Invocation] = []
        """Credit in use, in the order of the grants, which is the order of the leases."""
        self._seen: set[int] = set()
        """Tokens of received leases."""

    async def run(self) -> None:
        """Subscribe again and again, until the drill is over."""
        heart = asyncio.ensure_future(self.session.run())
        while not self.floor.over.is_set():
            if self.session.is_fresh:
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    await self._subscribe()
                self.caller.turn_away()
                self.renew()
            await self.floor.pause(0.05)
        self._forget(self._open)
        await heart
        await asyncio.gather(*self._holding)

    async def _subscribe(self) -> None:
        session = self.session.id
        stream = TaskStub(self.caller.channel()).Subscribe()
        earlier, self._open = self._open, []
        try:
            opening = pb.SubscribeRequest.Open(
                sources=[pb.TakeSource(tube=self.tubes[0])], session_id=session
            )
            await stream.write(pb.SubscribeRequest(open=opening))
            first = await self._read(stream)
            if first is None or not first.HasField("opened"):
                self._open = earlier
                return
            # Leases of an earlier stream whose messages were lost.
            for task in first.opened.held:
                if task.token not in self._seen and earlier:
                    await self._received(task, earlier.pop(0))
            self._forget(earlier)
            await self._grant(stream, STREAM_CREDIT)
            while session == self.session.id and not self.floor.over.is_set():
                response = await self._read(stream)
                if response is None or response.HasField("go_away"):
                    return
                for task in response.tasks:
                    await self._received(task, self._open.pop(0))
                if response.tasks:
                    await self._grant(stream, len(response.tasks))
        finally:
            stream.cancel()

    async def _read(self, stream: Any) -> pb.SubscribeResponse | None:
        """Return the next message; None if the stream has ended or is silent."""
        reading = asyncio.ensure_future(stream.read())
        for _ in range(3):
            done, _ = await asyncio.wait({reading}, timeout=1.0)
            if done:
                response = reading.result()
                return None if response is grpc.aio.EOF else response
            if self.floor.over.is_set():
                break
            await stream.write(pb.SubscribeRequest(heartbeat=True))
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        return None

    async def _received(self, task: task_pb2.Task, one: Invocation) -> None:
        self._seen.add(task.token)
        one.ok(**taken(task))
        await self.settle(task, self.decide())

    async def _grant(self, stream: Any, tasks: int) -> None:
        for _ in range(tasks):
            one = self.floor.recorder.invoke(
                self.process,
                "take",
                self.caller.node.name,
                tube=self.tubes[0],
                session=self.session.id,
            )
            self._open.append(one)
        credit = pb.SubscribeRequest.Credit(tasks=tasks)
        await stream.write(pb.SubscribeRequest(credit=credit))

    def _forget(self, opened: list[Invocation]) -> None:
        """Close takes whose leases never arrived."""
        for one in opened:
            one.info("the stream ended")
        opened.clear()
