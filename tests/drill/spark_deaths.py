"""Kill the export of a journal after published batches, and leaders meanwhile; judge the events.

The judge uses neither the manifests' sums nor Spark: it compares the ids of the events in the
Parquet files with those that a node sends, and with the tasks that clients put and acknowledged.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pyarrow.parquet as pq

from taskraft import Client, TaskraftError
from taskraft.v1 import feed_service_pb2 as pb
from taskraft.v1 import feed_service_pb2_grpc
from taskraft_pipeline import java
from taskraft_pipeline.journal.journal import Journal
from tests.drill.drill_run import Result
from tests.drill.judge import Evidence, Verdict
from tests.drill.task_history import Violation
from tools.local_cluster import LocalCluster

NAME = "spark-deaths"
TUBE = "exported"
EXPORT_KILLS, LEADER_KILLS = 10, 3
TASKS_MIN = 600
"""Number of tasks before each start of the export: more events than one batch has."""
TASKS_AT_ONCE = 100
RUN_SECONDS_MAX = 600
POLL_SECONDS = 0.05
TIMEOUT = "30s"

EventId = tuple[int, int, str, int, str]
"""Partition, sequence number, tube, task and kind of an event."""


class JavaTooOld(Exception):
    """This machine has no Java that Spark can use."""


class Workload:
    """Puts and acknowledges tasks in a thread, and keeps what the nodes acknowledged."""

    def __init__(self, client: Client) -> None:
        self._tube = client.tube(TUBE)
        self._stop = threading.Event()
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="workload")
        self.put: set[int] = set()
        self.acknowledged: set[int] = set()

    def __enter__(self) -> Workload:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop after the current calls."""
        self._stop.set()
        self._thread.join()

    def wait_for_tasks(self, tasks: int) -> None:
        """Wait until so many tasks were put since the call."""
        with self._more:
            wanted = len(self.put) + tasks
            enough = self._more.wait_for(lambda: len(self.put) >= wanted, RUN_SECONDS_MAX)
        assert enough, f"fewer than {wanted} tasks were put"

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                ids = self._tube.put_many(["work"] * TASKS_AT_ONCE, timeout=TIMEOUT)
                with self._more:
                    self.put.update(ids)
                    self._more.notify_all()
                for task in self._tube.take_many(TASKS_AT_ONCE // 2, wait="1s", timeout=TIMEOUT):
                    task.ack(timeout=TIMEOUT)
                    self.acknowledged.add(task.id)
            except TaskraftError as error:
                print(f"    {NAME}: the workload goes on after {error.reason}", file=sys.stderr)


@contextmanager
def export(cluster: LocalCluster, journal: Journal, *kill: str) -> Iterator[subprocess.Popen[str]]:
    """Run the export in a process group of its own, which is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.exporter", cluster.target, str(journal.root), *kill],
        env={**os.environ, "TMPDIR": str(journal.root.parent)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def await_end(process: subprocess.Popen[str], status: int) -> None:
    """Wait until the export has ended with a status."""
    output, _ = process.communicate(timeout=RUN_SECONDS_MAX)
    assert process.returncode == status, output


def kill_leader(cluster: LocalCluster, process: subprocess.Popen[str], plan: Path) -> None:
    """Kill the leader once Spark has planned the next batch; start it after the export ended."""
    while not plan.exists():
        assert process.poll() is None, f"the export ended before it planned {plan}"
        threading.Event().wait(POLL_SECONDS)
    leader = cluster.wait_ready()
    leader.kill()
    await_end(process, -signal.SIGKILL)
    leader.start()
    cluster.wait_ready()


def run(folder: Path, seed: int, kills: int = EXPORT_KILLS) -> Result:
    """Kill, export the rest, and judge.

    Raises:
        JavaTooOld: Spark cannot run here.
    """
    if not java.is_sufficient():
        raise JavaTooOld(java.HINT)
    draw = random.Random(seed)
    journal = Journal.at(folder / "journal")
    with_leader = set(draw.sample(range(kills), min(LEADER_KILLS, kills)))
    with LocalCluster(3, folder / "c") as cluster, Client(cluster.target) as client:
        cluster.wait_ready()
        client.create_tube(TUBE)
        with Workload(client) as workload:
            for number in range(kills):
                workload.wait_for_tasks(TASKS_MIN)
                batch = len(list(journal.manifests()))
                with export(cluster, journal, "after", str(batch)) as process:
                    if number in with_leader:
                        kill_leader(cluster, process, journal.checkpoint / "offsets" / str(batch))
                    else:
                        await_end(process, -signal.SIGKILL)
        with export(cluster, journal) as process:
            await_end(process, 0)
        sent = Counter(events_of(cluster.wait_ready().address))
    stored = Counter(stored_events(journal))
    violations = tuple(judge(stored, sent, workload.put, workload.acknowledged))
    operations = len(workload.put) + len(workload.acknowledged)
    evidence = Evidence(operations, 0, len(workload.put), len(workload.acknowledged), 0)
    verdict = Verdict(violations, evidence)
    return Result(NAME, kills + len(with_leader), 0.0, verdict, 0.0)


def stored_events(journal: Journal) -> Iterator[EventId]:
    """Yield the ids of the events in the files that the manifests name."""
    for manifest in sorted((journal.root / "_manifests" / "raw").glob("*.json")):
        for file in json.loads(manifest.read_text())["files"]:
            table = pq.ParquetFile(journal.root / file["path"]).read(
                columns=["feed_partition", "seq", "tube", "task_id", "kind"]
            )
            yield from zip(*(column.to_pylist() for column in table.columns), strict=True)


def events_of(address: str) -> Iterator[EventId]:
    """Yield the ids of all events that a node has."""
    with grpc.insecure_channel(address) as channel:
        feed = feed_service_pb2_grpc.FeedServiceStub(channel)
        for part in feed.DescribeFeed(pb.DescribeFeedRequest()).partitions:
            if not part.high_seq:
                continue
            request = pb.ReadChangesRequest(partition=part.partition, to_seq=part.high_seq)
            for chunk in feed.ReadChanges(request):
                for event in chunk.events:
                    kind = pb.ChangeEvent.Kind.Name(event.kind).lower()
                    yield part.partition, event.seq, event.tube, event.task_id, kind


def judge(
    stored: Counter[EventId], sent: Counter[EventId], put: set[int], acknowledged: set[int]
) -> Iterator[Violation]:
    """Yield each event that the journal lacks, repeats or invents, and each lost task."""
    for event in sorted(sent.keys() - stored.keys()):
        yield Violation("S1", "LOST_EVENT", f"the journal lacks {event}")
    for event in sorted(stored.keys() - sent.keys()):
        yield Violation("S2", "INVENTED_EVENT", f"no node has {event}")
    for event, times in sorted(stored.items()):
        if times > 1:
            yield Violation("S3", "REPEATED_EVENT", f"the journal has {event} {times} times")
    for kind, ids in (("put", put), ("ack", acknowledged)):
        found = Counter(event[3] for event in stored if event[2] == TUBE and event[4] == kind)
        for task_id in sorted(ids):
            if found[task_id] != 1:
                text = f"the journal has {found[task_id]} {kind} of task {task_id}"
                yield Violation("S4", "WRONG_TASK", text)
