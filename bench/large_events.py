"""Measure how much one large event delays the puts of another client, on a full cluster.

Three processes on loopback hold many tasks. A client puts one task every 20 ms. Then one call or
one deadline starts work on all the tasks at once:

- ``close``: the end of a session with the leases of all tasks;
- ``release``: ReleaseAll of a tube with as many leases;
- ``due``: all tasks become due in the same millisecond;
- ``cancel``: the cancellation of a group with all tasks.

The report has the latency of the puts before and during the work, the ratio of the medians, the
time until the work was done, and whether the leader changed::

    python -m bench.large_events                           # all events, 100 000 tasks
    python -m bench.large_events --tasks 10000 --only due
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import grpc

from bench.catch_up import BASELINE_PUTS, BackgroundPuts, latency_line
from taskraft.v1 import group_service_pb2 as group_pb
from taskraft.v1 import group_service_pb2_grpc as group_rpc
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
DONE_SECONDS_MAX: Final = 120.0
PLAIN: Final = task_pb2.TaskSpec(payload=b"x" * 100)


class Stage:
    """The stubs of one leader, and the tasks of one event."""

    def __init__(self, channel: grpc.Channel, tasks: int) -> None:
        self.tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        self.tubes = tube_rpc.TubeServiceStub(channel)
        self.sessions = session_rpc.SessionServiceStub(channel)
        self.groups = group_rpc.GroupServiceStub(channel)
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

    def states(self) -> Mapping[str, int]:
        """Return the number of tasks by state."""
        request = tube_pb.GetStatisticsRequest(tubes=[TUBE], brief=True)
        (statistics,) = self.tubes.GetStatistics(request).tubes
        return {
            name: getattr(statistics.tasks, name) for name in ("ready", "delayed", "taken", "held")
        }


@dataclass(slots=True, frozen=True)
class Event:
    """What precedes an event, what starts it, and the states that have no task at its end."""

    prepare: Callable[[Stage], object]
    start: Callable[[Stage], object]
    emptied: tuple[str, ...]


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


EVENTS: Final[Mapping[str, Event]] = {
    "close": Event(_hold, _close, ("taken",)),
    "release": Event(
        _lease, lambda s: s.tubes.ReleaseAll(tube_pb.ReleaseAllRequest(name=TUBE)), ("taken",)
    ),
    "due": Event(_delay, lambda _: None, ("delayed",)),
    "cancel": Event(
        _group,
        lambda s: s.groups.CancelGroup(group_pb.CancelGroupRequest(name=TUBE)),
        ("held", "ready"),
    ),
}


def wait_for_end(stage: Stage, event: Event, *, begins_late: bool) -> float:
    """Wait until the work is done; return its time in seconds.

    ``begins_late``: the work begins when the first task leaves its state.
    """
    began = time.monotonic()
    while time.monotonic() - began < DONE_SECONDS_MAX:
        states = stage.states()
        left = sum(states[state] for state in event.emptied)
        if begins_late and left == stage.count:
            began = time.monotonic()
        if not left:
            return time.monotonic() - began
        time.sleep(0.01)
    raise TimeoutError(f"{left} tasks are left after {DONE_SECONDS_MAX:g} s")


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
                event.start(stage)
                seconds = wait_for_end(stage, event, begins_late=name == "due")
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
