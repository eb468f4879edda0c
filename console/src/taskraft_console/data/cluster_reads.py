"""The questions that pages ask the cluster, each with the maximum age of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft import errors
from taskraft_console.data.failure_report import (
    FailureReport,
    Stage,
    report_failures,
)
from taskraft_console.data.group_tasks import GroupTasks, find_group_tasks
from taskraft_console.data.shared_reads import Reading, SharedReads
from taskraft_console.data.subqueue_counts import SubqueueCounts, count_subqueues

if TYPE_CHECKING:
    from datetime import datetime

    from taskraft import (
        AsyncClient,
        Group,
        Schedule,
        Statistics,
        Task,
        TaskCounts,
        TaskPage,
        TubeInfo,
        TubeStatistics,
    )
    from taskraft.v1.bulk_sweep_pb2 import BulkSweep
    from taskraft.v1.cluster_service_pb2 import (
        AuditRecord,
        GetCallerResponse,
        GetClusterStateResponse,
        GetServerInfoResponse,
    )
    from taskraft.v1.feed_service_pb2 import GetTaskEventsResponse
    from taskraft.v1.session_service_pb2 import Session
    from taskraft.v1.task_service_pb2 import GetTaskGraphResponse
    from taskraft.v1.tube_service_pb2 import GetHistoryResponse, WaitingConsumer

TOTAL_SECONDS: Final = 1.0
STATE_SECONDS: Final = 1.0
TUBES_SECONDS: Final = 4.0
"""Minimum age of the counts of all tubes before they are read again."""
TUBES_SECONDS_MAX: Final = 120.0
TUBES_SHARE: Final = 0.005
"""Maximum part of the time in which the nodes answer questions about all tubes: 0.5 %."""
OPTIONS_SECONDS: Final = 60.0
"""Maximum age of the options of all tubes, if there are more than `TUBES_CHEAP`."""
TUBES_CHEAP: Final = 500
LIST_SECONDS: Final = 4.0
FAILURES_SHARE: Final = 0.01
"""Maximum part of the time in which the nodes list failed tasks of one stage: 1 %."""
HISTORY_SECONDS: Final = 5.0
TASK_SECONDS: Final = 0.9
GRAPH_TASKS_MAX: Final = 60
"""Maximum number of tasks in the graph of a task."""
SCHEDULE_TIMES: Final = 10
"""Number of next times of a schedule that a page shows."""
STALENESS_SECONDS: Final = 5
"""Maximum age of the state that a node may answer with, in seconds."""


@dataclass(frozen=True, slots=True)
class CountedTube:
    """A tube with its options and its counts."""

    info: TubeInfo
    counts: TubeStatistics


@dataclass(frozen=True, slots=True)
class CountedTubes:
    """All tubes that the console may read."""

    tubes: tuple[CountedTube, ...]
    total: TubeStatistics
    now_ms: int
    revision: int

    def named(self, name: str) -> CountedTube | None:
        """Return the tube with a name, or None."""
        return next((each for each in self.tubes if each.info.name == name), None)


class ClusterReads:
    """Asks the cluster, at most once at a time for each question."""

    def __init__(self, client: AsyncClient, reads: SharedReads, timeout_seconds: float) -> None:
        self.client: Final = client
        self.reads: Final = reads
        self._timeout = timeout_seconds
        self._tubes_seconds = TUBES_SECONDS
        self._failures_seconds: dict[tuple[Stage, str], float] = {}
        """Maximum age of reports that take long, by the stage and the tube of the report."""
        self._group_seconds = LIST_SECONDS
        self._subqueues_seconds = LIST_SECONDS
        self._changed_at = float("-inf")
        self._infos: Mapping[str, TubeInfo] = {}
        self._infos_at = float("-inf")

    def forget(self) -> None:
        """Forget all answers, so that the next page shows the effect of a change."""
        self.reads.forget()
        self._infos_at = float("-inf")
        self._changed_at = asyncio.get_running_loop().time()

    def _staleness(self) -> int | None:
        """Return the maximum age of an answer; None after a change, so that its effect is shown."""
        now = asyncio.get_running_loop().time()
        return STALENESS_SECONDS if now - self._changed_at > STALENESS_SECONDS else None

    async def total(self) -> Reading[Statistics]:
        """Return the sums over all tubes."""
        return await self.reads.read(
            "total",
            TOTAL_SECONDS,
            lambda: self.client.total(staleness=self._staleness(), timeout=self._timeout),
        )

    async def state(self) -> Reading[GetClusterStateResponse]:
        """Return the members and the leader."""
        return await self.reads.read(
            "state", STATE_SECONDS, lambda: self.client.cluster_state(timeout=self._timeout)
        )

    async def nodes(self) -> Reading[Mapping[str, GetClusterStateResponse]]:
        """Return the state of each node that answers, by its name."""
        return await self.reads.read(
            "nodes", LIST_SECONDS, lambda: self.client.node_states(timeout=self._timeout)
        )

    async def caller(self) -> Reading[GetCallerResponse]:
        """Return the principal of the client, and its grants."""
        return await self.reads.read(
            "caller", LIST_SECONDS, lambda: self.client.caller(timeout=self._timeout)
        )

    async def server(self) -> Reading[GetServerInfoResponse]:
        """Return version and limits of the node that answers."""
        return await self.reads.read(
            "server", OPTIONS_SECONDS, lambda: self.client.server_info(timeout=self._timeout)
        )

    async def audit(
        self, *, principal: str, call: str, name: str, limit: int
    ) -> Reading[Sequence[AuditRecord]]:
        """Return the last acts of management, newest first."""
        return await self.reads.read(
            ("audit", principal, call, name, limit),
            LIST_SECONDS,
            lambda: self.client.audit(
                principal=principal, call=call, name=name, limit=limit, timeout=self._timeout
            ),
        )

    async def sweeps(self) -> Reading[Sequence[BulkSweep]]:
        """Return the bulk sweeps, newest first."""
        return await self.reads.read(
            "sweeps", TASK_SECONDS, lambda: self.client.bulk_sweeps(timeout=self._timeout)
        )

    async def sweep(self, number: int) -> Reading[BulkSweep]:
        """Return a bulk sweep.

        Raises:
            BulkSweepNotFound: there is no such sweep.
        """
        return await self.reads.read(
            ("sweep", number),
            TASK_SECONDS,
            lambda: self.client.bulk_sweep(number, timeout=self._timeout),
        )

    async def tubes(self) -> Reading[CountedTubes]:
        """Return all tubes with their counts, without counts of operations."""
        return await self.reads.read("tubes", self._tubes_seconds, self._ask_tubes)

    async def _ask_tubes(self) -> CountedTubes:
        """Read the counts of all tubes; read their options less often if there are many tubes."""
        clock = asyncio.get_running_loop().time
        began = clock()
        counts = await self.client.stats(
            brief=True, staleness=self._staleness(), timeout=self._timeout
        )
        names = {each.tube for each in counts.tubes}
        age = OPTIONS_SECONDS if len(names) > TUBES_CHEAP else 0.0
        if began - self._infos_at > age or not names <= self._infos.keys():
            infos = await self.client.list_tubes(staleness=self._staleness(), timeout=self._timeout)
            self._infos = {one.name: one for one in infos}
            self._infos_at = began if began > self._changed_at else float("-inf")
        wanted = (clock() - began) / TUBES_SHARE if len(names) > TUBES_CHEAP else 0.0
        self._tubes_seconds = min(max(wanted, TUBES_SECONDS), TUBES_SECONDS_MAX)
        return CountedTubes(
            # A tube can be created or dropped between the two calls.
            tuple(
                CountedTube(self._infos[one.tube], one)
                for one in counts.tubes
                if one.tube in self._infos
            ),
            counts.total,
            counts.now_ms,
            counts.revision,
        )

    async def history(
        self, tubes: Sequence[str], *, is_day: bool = False
    ) -> Reading[GetHistoryResponse]:
        """Return the samples of the named tubes; without a name, the sums over all tubes."""
        return await self.reads.read(
            ("history", tuple(tubes), is_day),
            HISTORY_SECONDS,
            lambda: self.client.history(
                tubes,
                total=not tubes,
                step="120s" if is_day else "10s",
                timeout=self._timeout,
            ),
        )

    async def failures(self, stage: Stage, tube: str = "") -> Reading[FailureReport]:
        """Return the causes of the failed tasks of a stage, in all tubes or in one tube."""
        tubes = await self.tubes()
        failing = [
            each.info.name
            for each in tubes.value.tubes
            if _may_have(each.counts.tasks, stage) and tube in ("", each.info.name)
        ]

        async def ask() -> FailureReport:
            clock = asyncio.get_running_loop().time
            began = clock()
            report = await report_failures(self.client, failing, stage, self._timeout)
            wanted = (clock() - began) / FAILURES_SHARE
            if wanted > LIST_SECONDS:
                self._failures_seconds[stage, tube] = wanted
            else:
                self._failures_seconds.pop((stage, tube), None)
            return report

        age = self._failures_seconds.get((stage, tube), LIST_SECONDS)
        return await self.reads.read(("failures", stage, tube), age, ask)

    async def tube(self, name: str) -> Reading[CountedTubes]:
        """Return one tube with its counts.

        Raises:
            TubeNotFound: the tube does not exist.
        """

        async def ask() -> CountedTubes:
            infos, counts = await asyncio.gather(
                self.client.list_tubes([name], timeout=self._timeout),
                self.client.stats([name], timeout=self._timeout),
            )
            if not infos or not counts.tubes:
                raise errors.TubeNotFound.named(name)
            tube = CountedTube(infos[0], counts.tubes[0])
            return CountedTubes((tube,), counts.total, counts.now_ms, counts.revision)

        return await self.reads.read(("tube", name), TASK_SECONDS, ask)

    async def consumers(self, tube: str) -> Reading[Sequence[WaitingConsumer]]:
        """Return the consumers that wait for tasks of a tube, in the order of service."""
        return await self.reads.read(
            ("consumers", tube),
            LIST_SECONDS,
            lambda: self.client.consumers(tube, timeout=self._timeout),
        )

    async def tasks(
        self, tube: str, where: str, *, order: str = "", size: int = 50, token: str = ""
    ) -> Reading[TaskPage]:
        """Return one page of the tasks of a tube, without payloads."""
        return await self.reads.read(
            ("tasks", tube, where, order, size, token),
            TASK_SECONDS,
            lambda: self.client.tube(tube).page(
                where,
                order_by=order,
                size=size,
                token=token,
                payload=False,
                timeout=self._timeout,
            ),
        )

    async def task(self, tube: str, task_id: int, *, payload: bool) -> Reading[Task]:
        """Return one task.

        Raises:
            TaskNotFound: the task does not exist.
        """
        return await self.reads.read(
            ("task", tube, task_id, payload),
            TASK_SECONDS,
            lambda: self.client.tube(tube).peek(task_id, payload=payload, timeout=self._timeout),
        )

    async def task_graph(self, tube: str, task_id: int) -> Reading[GetTaskGraphResponse]:
        """Return the tasks that a task waits for and that wait for the task, by distance.

        Raises:
            TaskNotFound: the task does not exist.
        """
        return await self.reads.read(
            ("task graph", tube, task_id),
            LIST_SECONDS,
            lambda: self.client.tube(tube).graph(
                task_id, tasks_max=GRAPH_TASKS_MAX, timeout=self._timeout
            ),
        )

    async def events(self, tube: str, task_id: int) -> Reading[GetTaskEventsResponse]:
        """Return the transitions of a task, newest first.

        Raises:
            TaskNotFound: the task does not exist.
        """
        return await self.reads.read(
            ("events", tube, task_id),
            TASK_SECONDS,
            lambda: self.client.tube(tube).events(task_id, timeout=self._timeout),
        )

    async def sessions(self) -> Reading[Sequence[Session]]:
        """Return the sessions that the console may see."""
        return await self.reads.read(
            "sessions", LIST_SECONDS, lambda: self.client.list_sessions(timeout=self._timeout)
        )

    async def session(self, session_id: str) -> Reading[Session]:
        """Return one session.

        Raises:
            SessionNotFound: there is no such session, or the visitor may not see it.
        """
        return await self.reads.read(
            ("session", session_id),
            TASK_SECONDS,
            lambda: self.client.session(session_id, timeout=self._timeout),
        )

    async def session_consumers(self, session_id: str) -> Reading[Sequence[WaitingConsumer]]:
        """Return what the calls and streams of a session wait for.

        Raises:
            SessionNotFound: there is no such session, or the visitor may not see it.
        """
        return await self.reads.read(
            ("session consumers", session_id),
            TASK_SECONDS,
            lambda: self.client.consumers(session=session_id, timeout=self._timeout),
        )

    async def leases(self, session_id: str) -> Reading[Sequence[Task]]:
        """Return the tasks that a session holds, in the order of their takes.

        Raises:
            SessionNotFound: there is no such session, or the visitor may not see its tasks.
        """
        return await self.reads.read(
            ("leases", session_id),
            TASK_SECONDS,
            lambda: self.client.list_leases(session_id, timeout=self._timeout),
        )

    async def groups(self) -> Reading[Sequence[Group]]:
        """Return all groups."""
        return await self.reads.read(
            "groups", LIST_SECONDS, lambda: self.client.groups.list(timeout=self._timeout)
        )

    async def group_tasks(self, name: str, first_tube: str) -> Reading[GroupTasks]:
        """Return the tasks of a group; the search begins with `first_tube` (empty: any tube)."""
        tubes = await self.tubes()
        names = [each.info.name for each in tubes.value.tubes if each.counts.tasks.total]
        names.sort(key=lambda tube: tube != first_tube)

        async def ask() -> GroupTasks:
            clock = asyncio.get_running_loop().time
            began = clock()
            found = await find_group_tasks(self.client, name, names, self._timeout)
            self._group_seconds = max((clock() - began) / FAILURES_SHARE, LIST_SECONDS)
            return found

        return await self.reads.read(("group tasks", name), self._group_seconds, ask)

    async def subqueues(self, tube: str) -> Reading[SubqueueCounts]:
        """Return the sub-queues of a tube.

        Raises:
            TubeNotFound: the tube does not exist.
        """

        async def ask() -> SubqueueCounts:
            clock = asyncio.get_running_loop().time
            began = clock()
            found = await count_subqueues(self.client, tube, self._timeout)
            self._subqueues_seconds = max((clock() - began) / FAILURES_SHARE, LIST_SECONDS)
            return found

        return await self.reads.read(("subqueues", tube), self._subqueues_seconds, ask)

    async def schedule(self, name: str) -> Reading[tuple[Schedule, Sequence[datetime]]]:
        """Return a schedule with its next times.

        Raises:
            ScheduleNotFound: there is no such schedule.
        """

        async def ask() -> tuple[Schedule, Sequence[datetime]]:
            schedules = self.client.schedules
            return await asyncio.gather(
                schedules.get(name, timeout=self._timeout),
                schedules.times(name, SCHEDULE_TIMES, timeout=self._timeout),
            )

        return await self.reads.read(("schedule", name), TASK_SECONDS, ask)

    async def schedules(self) -> Reading[Sequence[Schedule]]:
        """Return all schedules."""
        return await self.reads.read(
            "schedules", LIST_SECONDS, lambda: self.client.schedules.list(timeout=self._timeout)
        )


def _may_have(counts: TaskCounts, stage: Stage) -> bool:
    """Return whether a tube with these counts can have failed tasks of a stage."""
    return bool(counts.buried if stage == "buried" else counts.ready or counts.delayed)
