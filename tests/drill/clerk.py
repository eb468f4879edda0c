"""List, drain and compare the tubes at the end of a drill, when all nodes are in order."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.drill.consumers import Consumer
from tests.drill.workload import STATES, TUBES, Floor, TaskStub, TubeStub, Visitor, named, uid_of
from tools.local_node import Node

DRAIN_SECONDS = 60
"""Maximum time until all tubes are empty, and until all nodes have the same log position."""


class Clerk(Consumer):
    """Lists and drains the tubes at the end of a drill, when all nodes are in order."""

    sizes = (100,)

    def __init__(self, floor: Floor, name: str) -> None:
        super().__init__(floor, name, tuple(TUBES))

    async def list_tasks(self, tube: str) -> int:
        """Record all tasks of a tube; return their number."""
        one = self.floor.recorder.invoke(self.process, "snapshot", tube=tube)
        tasks: list[task_pb2.Task] = []
        request = pb.ListTasksRequest(tube=tube, page_size=1_000)
        while True:
            answer = await self.caller.call(TaskStub, "ListTasks", request, 10)
            assert answer.is_ok, f"a healthy cluster does not list {tube}: {answer.error}"
            tasks += answer.response.tasks
            request.page_token = answer.response.next_page_token
            if not request.page_token:
                break
        items = [
            {"id": each.id, "uid": uid_of(each), "state": STATES[each.state]} for each in tasks
        ]
        one.ok(tasks=items, complete=True)
        return len(items)

    async def drain(self) -> None:
        """Kick, take and acknowledge until the tubes are empty.

        Leases that clients have given up end with their time to run.
        """
        heart = asyncio.ensure_future(self.session.run())
        until = time.monotonic() + DRAIN_SECONDS
        visitor = Visitor(self.floor, "end-kick")
        for tube in TUBES:
            while await self.list_tasks(tube):
                assert time.monotonic() < until, f"{tube} cannot be drained"
                await visitor.kick(tube, 1_000)
                while self.session.is_fresh and (tasks := await self.take(tube, 100)):
                    await self._acknowledge(tasks)
                await self.floor.pause(0.1)
        self.floor.over.set()
        await heart

    async def _acknowledge(self, tasks: Sequence[task_pb2.Task]) -> None:
        """Acknowledge tasks in one call; one operation of the history for each."""
        request_id = self.request_id()
        ack = pb.Settlement(tokens=[task.token for task in tasks], ack=pb.Settlement.Ack())
        message = pb.SettleTasksRequest(request_id=request_id, settlements=[ack])
        operations = [
            (
                "ack",
                {
                    "tube": task.tube,
                    "id": task.id,
                    "session": task.session_id,
                    "token": task.token,
                    **named(request_id, place),
                },
            )
            for place, task in enumerate(tasks)
        ]
        await self.request("SettleTasks", message, operations, self._close_settle)

    async def compare(self, nodes: Sequence[Node]) -> None:
        """Record a digest of the state that each node shows, at the same log position."""
        until = time.monotonic() + DRAIN_SECONDS
        while True:
            found = [await self._digest(node) for node in nodes]
            positions = {applied for applied, _ in found}
            if (len(positions) == 1 and None not in positions) or time.monotonic() > until:
                break
        for node, (applied, digest) in zip(nodes, found, strict=True):
            one = self.floor.recorder.invoke(self.process, "digest", node.name, final=True)
            if applied is None:
                one.info("the state changed between the reads")
                self.renew()
            else:
                one.ok(applied=applied, digest=digest)

    async def _digest(self, node: Node) -> tuple[int | None, str]:
        """Return the log position and a digest of the tasks and counters that a node shows.

        The position is None if entries were applied between the reads.
        """
        self.caller.node = node
        local = task_pb2.Consistency(level=task_pb2.Consistency.LOCAL)
        digest, positions = hashlib.sha256(), set()
        statistics = tube_service_pb2.GetStatisticsRequest(consistency=local, transitions=True)
        answer = await self.caller.call(TubeStub, "GetStatistics", statistics, 10)
        assert answer.is_ok, f"{node.name} shows no statistics: {answer.error}"
        positions.add(answer.response.revision)
        for tube in answer.response.tubes:
            digest.update(f"{tube.tube} {tube.tasks} {tube.transitions}".encode())
        for name in TUBES:
            request = pb.ListTasksRequest(tube=name, page_size=1_000, consistency=local)
            answer = await self.caller.call(TaskStub, "ListTasks", request, 10)
            assert answer.is_ok, f"{node.name} does not list {name}: {answer.error}"
            positions.add(answer.response.revision)
            for task in answer.response.tasks:
                digest.update(task.SerializeToString(deterministic=True))
        return (positions.pop() if len(positions) == 1 else None), digest.hexdigest()
