"""Fill a node with many objects, and prepare what one expensive request needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeAlias

import grpc.aio
from google.protobuf.message import Message

from taskraft.v1 import cluster_service_pb2_grpc as cluster_rpc
from taskraft.v1 import feed_service_pb2_grpc as feed_rpc
from taskraft.v1 import group_service_pb2 as group_pb
from taskraft.v1 import group_service_pb2_grpc as group_rpc
from taskraft.v1 import schedule_service_pb2 as schedule_pb
from taskraft.v1 import schedule_service_pb2_grpc as schedule_rpc
from taskraft.v1 import session_service_pb2 as session_pb
from taskraft.v1 import session_service_pb2_grpc as session_rpc
from taskraft.v1 import task_pb2, task_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as task_pb
from taskraft.v1 import tube_service_pb2 as tube_pb
from taskraft.v1 import tube_service_pb2_grpc as tube_rpc
from taskraft_service.limits import KEY_PARTS_MAX

AT_ONCE: Final = 50
"""Number of calls that fill the node at the same time."""
BATCH_TASKS: Final = 1_000
LEASE_MS: Final = 3_600_000
MANY: Final = 10_000
"""Number of tasks, leases or group members that one request ends, starts or lists."""
NEVER: Final = "0 0 1 1 *"
FILLED: Final = "filled"
"""The tube with most of the tasks."""
FILLED_TYPE: Final = "ab" * 64
"""Type of the tasks of ``FILLED``."""


@dataclass(frozen=True)
class Size:
    """Numbers of objects in a node."""

    tubes: int
    sessions: int
    schedules: int
    groups: int
    tasks: int


class Stage:
    """A node with many objects, and the stubs of a client.

    Args:
        channel: leads to the leader.
        size: numbers of objects.
    """

    def __init__(self, channel: grpc.aio.Channel, size: Size) -> None:
        self.channel = channel
        self.size = size
        self.tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        self.tubes = tube_rpc.TubeServiceStub(channel)
        self.sessions = session_rpc.SessionServiceStub(channel)
        self.schedules = schedule_rpc.ScheduleServiceStub(channel)
        self.groups = group_rpc.GroupServiceStub(channel)
        self.cluster = cluster_rpc.ClusterServiceStub(channel)
        self.feed = feed_rpc.FeedServiceStub(channel)
        self.session_ids: list[str] = []
        self._numbers = count(1)

    async def fill(self) -> None:
        """Create the objects."""
        await self.create_tube(FILLED)
        await self.put(FILLED, self.size.tasks, type=FILLED_TYPE)
        await _each(self.size.tubes, lambda number: self.create_tube(f"tube.{number:05}"))
        await _each(self.size.sessions, self._open_session)
        await _each(self.size.schedules, self._create_schedule)
        await _each(self.size.groups, self._create_group)

    def new_name(self) -> str:
        """Return a name that no object has."""
        return f"new-{next(self._numbers)}"

    # ------------------------------------------------------------------------------ objects

    async def create_tube(
        self, name: str, kind: tube_pb.Tube.Kind.ValueType = tube_pb.Tube.FIFOTTL
    ) -> None:
        """Create a tube."""
        tube = tube_pb.Tube(name=name, kind=kind)
        await self.tubes.CreateTube(tube_pb.CreateTubeRequest(tube=tube))

    async def tube_of(self, tasks: int, **options: object) -> tuple[str, list[int]]:
        """Create a tube with tasks; return its name and the ids of the tasks."""
        name = self.new_name()
        await self.create_tube(name)
        return name, await self.put(name, tasks, **options)

    async def put(self, tube: str, tasks: int, **options: object) -> list[int]:
        """Put tasks of 100 bytes; return their ids."""
        ids: list[int] = []
        spec = task_pb2.TaskSpec(payload=b"x" * 100, **options)  # type: ignore[arg-type]  # names of fields
        for first in range(0, tasks, BATCH_TASKS):
            request = task_pb.PutTasksRequest(
                tube=tube, tasks=[spec] * min(BATCH_TASKS, tasks - first)
            )
            ids += (await self.tasks.PutTasks(request)).task_ids
        return ids

    async def keyed_tube(self, tasks: int) -> str:
        """Create a tube with tasks that have the unique keys of ``key``; return its name."""
        tube, _ = await self.tube_of(0)
        specs = [task_pb2.TaskSpec(payload=b"x" * 100, unique_key=key(n)) for n in range(tasks)]
        await self.tasks.PutTasks(task_pb.PutTasksRequest(tube=tube, tasks=specs))
        return tube

    async def taken(self, tasks: int) -> tuple[str, list[int]]:
        """Take tasks of a new tube; return the session that holds the leases, and their tokens."""
        tube, _ = await self.tube_of(tasks)
        opening = session_pb.OpenSessionRequest(ttr_ms=LEASE_MS)
        session_id = (await self.sessions.OpenSession(opening)).session.session_id
        tokens: list[int] = []
        while len(tokens) < tasks:
            request = task_pb.TakeTasksRequest(
                sources=[task_pb.TakeSource(tube=tube)],
                session_id=session_id,
                tasks_max=min(BATCH_TASKS, tasks - len(tokens)),
                ttr_ms=LEASE_MS,
                payload_omit=True,
            )
            tokens += [task.token for task in (await self.tasks.TakeTasks(request)).tasks]
        return session_id, tokens

    async def buried(self, tasks: int) -> tuple[str, list[int]]:
        """Bury tasks of a new tube; return its name and the ids of the tasks."""
        tube, ids = await self.tube_of(tasks)
        for first in range(0, tasks, BATCH_TASKS):
            selector = task_pb2.TaskSelector(ids=ids[first : first + BATCH_TASKS])
            await self.tasks.BuryTasks(task_pb.BuryTasksRequest(tube=tube, selector=selector))
        return tube, ids

    async def group_of(self, tasks: int) -> str:
        """Create a group with tasks; return its name."""
        name = await self._create_group()
        await self.tube_of(tasks, group=name)
        return name

    # ------------------------------------------------------------------------------ filling

    async def _open_session(self, number: int) -> None:
        opening = session_pb.OpenSessionRequest(name=f"session {number}", ttr_ms=LEASE_MS)
        opened = await self.sessions.OpenSession(opening)
        self.session_ids.append(opened.session.session_id)

    async def _create_schedule(self, number: int) -> None:
        schedule = schedule_pb.Schedule(
            name=f"schedule.{number:05}",
            cron=NEVER,
            tube=FILLED,
            spec=task_pb2.TaskSpec(payload=b"x"),
        )
        await self.schedules.CreateSchedule(schedule_pb.CreateScheduleRequest(schedule=schedule))

    async def _create_group(self, _number: int = 0) -> str:
        name = self.new_name()
        group = group_pb.Group(name=name)
        await self.groups.CreateGroup(group_pb.CreateGroupRequest(group=group))
        return name


WorstRequest: TypeAlias = Callable[[Stage], Awaitable[Message]]
"""Prepares the node for the most expensive request of a method, and returns this request."""


def key(number: int) -> list[str]:
    """Return a unique key with as many parts as a key can have; each number has another key."""
    return ["part"] * (KEY_PARTS_MAX - 1) + [str(number)]


async def _each(many: int, create: Callable[[int], Awaitable[object]]) -> None:
    """Create objects, some at the same time."""
    for first in range(0, many, AT_ONCE):
        await asyncio.gather(*map(create, range(first, min(first + AT_ONCE, many))))
