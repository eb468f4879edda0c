"""Measure how much one large event delays the puts of another client, on a full cluster.

Three processes on loopback hold many tasks. A client puts one task every 20 ms. Then one call or
one deadline starts work on all the tasks at once:

- ``close``: the end of a session with the leases of all tasks;
- ``release``: ReleaseAll of a tube with as many leases;
- ``due``: all tasks become due in the same millisecond;
- ``cancel``: the cancellation of a group with all tasks;
- ``depend``: the end of a task that all other tasks depend on;
- ``schedule``: schedules that all put a task in the same minute, one for every ten tasks.

The report has the latency of the puts before and during the work, the ratio of the medians, the
time until the work was done, and whether the leader changed::

    python -m bench.large_events                           # all events, 100 000 tasks
    python -m bench.large_events --tasks 10000 --only due
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final

import grpc

from bench.catch_up import BASELINE_PUTS, BackgroundPuts, latency_line
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
from tools.local_cluster import LocalCluster

TUBE: Final = "large"
BATCH_TASKS: Final = 1_000
LEASE_MS: Final = 3_600_000
DUE_AFTER_MS: Final = 20_000
TASKS_PER_SCHEDULE: Final = 10
"""Number of tasks of the other events for each schedule; a caller may have 10 000 schedules."""
SCHEDULES_AT_ONCE: Final = 100
TICK_AFTER: Final = timedelta(minutes=2)
WAIT_SECONDS_MAX: Final = 150.0
PLAIN: Final = task_pb2.TaskSpec(payload=b"x" * 100)


class Stage:
    """The stubs of one leader, and the tasks of one event."""

    def __init__(self, channel: grpc.Channel, tasks: int) -> None:
        self.tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        self.tubes = tube_rpc.TubeServiceStub(channel)
        self.sessions = session_rpc.SessionServiceStub(channel)
        self.groups = group_rpc.GroupServiceStub(channel)
        self.schedules = schedule_rpc.ScheduleServiceStub(channel)
        self.count = tasks
        self.session_id = ""

    def create(self, name: str) -> None:
        """Create a tube."""
        tube = tube_pb.Tube(name=name, kind=tube_pb.Tube.FIFOTTL)
        self.tubes.CreateTube(tube_pb.CreateTubeRequest(tube=tube))

    def put(self, spec: task_pb2.TaskSpec = PLAIN) -> None:
        """Put all tasks."""
        for _ in range(0, self.count, BATCH_TASKS):
            request = task_pb.PutTasksRequest(tube=TUBE, tasks=[spec] * BATCH_TASKS)
            self.tasks.PutTasks(request)

    def take(self) -> None:
        """Take all tasks, in the session if there is one."""
        for _ in range(0, self.count, BATCH_TASKS):
            self.tasks.TakeTasks(
                task_pb.TakeTasksRequest(
                    sources=[task_pb.TakeSource(tube=TUBE)],
                    session_id=self.session_id,
                    tasks_max=BATCH_TASKS,
                    ttr_ms=LEASE_MS,
                )
            )

    def in_state(self, *names: str) -> int:
        """Return the number of tasks in these states."""
        request = tube_pb.GetStatisticsRequest(tubes=[TUBE], brief=True)
        (statistics,) = self.tubes.GetStatistics(request).tubes
        return sum(getattr(statistics.tasks, name) for name in names)


@dataclass(slots=True, frozen=True)
class Event:
    """What precedes an event, what starts it, and how much of its work is left.

    Attributes:
        begins_late: the work begins at a time of its own, and not with ``start``.
    """

    prepare: Callable[[Stage], object]
    start: Callable[[Stage], object]
    left: Callable[[Stage], int]
    begins_late: bool = False


def _hold(stage: Stage) -> None:
    opened = stage.sessions.OpenSession(session_pb.OpenSessionRequest(ttr_ms=LEASE_MS))
    stage.session_id = opened.session.session_id
    stage.put()
    stage.take()


def _close(stage: Stage) -> None:
    stage.sessions.CloseSession(session_pb.CloseSessionRequest(session_id=stage.session_id))


def _lease(stage: Stage) -> None:
    stage.put()
    stage.take()


def _delay(stage: Stage) -> None:
    due_ms = time.time_ns() // 1_000_000 + DUE_AFTER_MS
    stage.put(task_pb2.TaskSpec(visible_at_ms=due_ms))


def _group(stage: Stage) -> None:
    stage.groups.CreateGroup(group_pb.CreateGroupRequest(group=group_pb.Group(name=TUBE)))
    stage.put(task_pb2.TaskSpec(group=TUBE))


def _depend(stage: Stage) -> None:
    put = stage.tasks.PutTasks(task_pb.PutTasksRequest(tube=TUBE, tasks=[PLAIN]))
    first = task_pb2.TaskReference(tube=TUBE, id=put.task_ids[0])
    stage.put(task_pb2.TaskSpec(depends_on=[task_pb2.Dependency(task=first)]))


def _end_first(stage: Stage) -> None:
    taken = stage.tasks.TakeTasks(
        task_pb.TakeTasksRequest(sources=[task_pb.TakeSource(tube=TUBE)], ttr_ms=LEASE_MS)
    )
    token = taken.tasks[0].token
    settlement = task_pb.Settlement(tokens=[token], ack=task_pb.Settlement.Ack())
    stage.tasks.SettleTasks(task_pb.SettleTasksRequest(settlements=[settlement]))


def _schedule(stage: Stage) -> None:
    tick = datetime.now(UTC) + TICK_AFTER
    calls: deque[grpc.Future[schedule_pb.CreateScheduleResponse]] = deque()
    for number in range(stage.count // TASKS_PER_SCHEDULE):
        schedule = schedule_pb.Schedule(
            name=f"schedule-{number}",
            cron=f"{tick.minute} {tick.hour} * * *",
            time_zone="UTC",
            tube=TUBE,
            spec=PLAIN,
        )
        if len(calls) >= SCHEDULES_AT_ONCE:
            calls.popleft().result()
        request = schedule_pb.CreateScheduleRequest(schedule=schedule)
        calls.append(stage.schedules.CreateSchedule.future(request))
    for call in calls:
        call.result()


EVENTS: Final[Mapping[str, Event]] = {
    "close": Event(_hold, _close, lambda s: s.in_state("taken")),
    "release": Event(
        _lease,
        lambda s: s.tubes.ReleaseAll(tube_pb.ReleaseAllRequest(name=TUBE)),
        lambda s: s.in_state("taken"),
    ),
    "due": Event(_delay, lambda _: None, lambda s: s.in_state("delayed"), begins_late=True),
    "cancel": Event(
        _group,
        lambda s: s.groups.CancelGroup(group_pb.CancelGroupRequest(name=TUBE)),
        lambda s: s.in_state("held", "ready"),
    ),
    "depend": Event(_depend, _end_first, lambda s: s.in_state("held")),
    "schedule": Event(
        _schedule,
        lambda _: None,
        lambda s: s.count // TASKS_PER_SCHEDULE - s.in_state("ready"),
        begins_late=True,
    ),
}


def wait_for(stage: Stage, event: Event, left_max: int) -> float:
    """Wait until at most ``left_max`` tasks are left; return the time in seconds."""
    began = time.monotonic()
    while event.left(stage) > left_max:
        if time.monotonic() - began > WAIT_SECONDS_MAX:
            raise TimeoutError(f"more than {left_max} tasks are left after {WAIT_SECONDS_MAX:g} s")
        time.sleep(0.01)
    return time.monotonic() - began


def measure(name: str, tasks: int) -> str:
    """Measure one event on a new cluster; return its lines of the report."""
    event = EVENTS[name]
    with (
        tempfile.TemporaryDirectory(prefix="taskraft-bench-") as folder,
        LocalCluster(3, Path(folder, "cluster")) as cluster,
    ):
        leader = cluster.wait_ready()
        with grpc.insecure_channel(leader.address) as channel:
            stage = Stage(channel, tasks)
            stage.create(TUBE)
            stage.create("backlog")
            event.prepare(stage)
            puts = BackgroundPuts(stage.tasks)
            with puts.going_on():
                puts.wait_for(BASELINE_PUTS)
                before = puts.taken()
                tasks = event.left(stage)
                event.start(stage)
                if event.begins_late:
                    wait_for(stage, event, tasks - 1)
                    puts.taken()
                seconds = wait_for(stage, event, 0)
                during = puts.taken()
            after = cluster.wait_ready()
    ratio = median(during) / median(before)
    change = "the same leader" if after is leader else "ANOTHER LEADER"
    return (
        f"{name}: {tasks} tasks in {seconds:.1f} s, {change}, medians {ratio:.1f}\n"
        f"  before: {latency_line(before)}\n  during: {latency_line(during)}"
    )


def main() -> None:
    """Measure the events and print the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=EVENTS, help="measure one event")
    parser.add_argument("--tasks", type=int, default=100_000)
    arguments = parser.parse_args()
    for name in [arguments.only] if arguments.only else EVENTS:
        print(measure(name, arguments.tasks), flush=True)


if __name__ == "__main__":
    main()
