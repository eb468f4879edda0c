"""Run the steps of the demo, and return the verdict."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from demo import leader_kill
from demo.consumer import TUBE, app, examine_file
from demo.consumer_processes import ConsumerProcesses
from demo.delivery_records import DeliveryRecord, check_records, read_records
from demo.event_log import EventLog
from demo.feed_check import check_feed, read_feed
from demo.progress_watcher import ProgressWatcher
from demo.report import ReportFailed, make_report
from demo.results_check import check_results, read_results
from demo.source_files import SourceFile, source_files, standard_library
from demo.verdict import Verdict
from taskraft import AsyncClient, Client
from tools.local_cluster import LocalCluster

PUTS_AT_ONCE: Final = 25
"""Number of concurrent puts; few, so that puts are in flight when the leader is killed."""

PUT_TIMEOUT: Final = "30s"
"""Time limit of a put; longer than any failover, so that no outcome stays unknown."""

NODES_THAT_SURVIVE_ONE: Final = 3
"""Minimum number of nodes for killing one; smaller clusters would stop."""


@dataclass(slots=True, frozen=True)
class DemoOptions:
    """Options of the demo."""

    folder: Path = Path("var/demo")
    """Output folder; files of an earlier run are removed."""
    nodes: int = 3
    consumers: int = 4
    has_report: bool = True


def run_demo(options: DemoOptions) -> Verdict:
    """Run all steps; all started processes have ended when this function returns."""
    event_log = EventLog()
    shutil.rmtree(options.folder, ignore_errors=True)
    files = source_files(standard_library())
    event_log.print_event(f"{len(files)} source files below {standard_library()}")
    event_log.print_event(f"starting {options.nodes} nodes on loopback, data in {options.folder}")
    with LocalCluster(options.nodes, options.folder) as cluster, Client(cluster.target) as client:
        for node in cluster.nodes:
            event_log.print_event(f"{node.name} serves on {node.address} (process {node.pid})")
        client.create_tube(TUBE, on_ack="keep")
        client.create_tube(leader_kill.PROBE_TUBE)
        return _work(options, event_log, cluster, client, files)


def _work(
    options: DemoOptions,
    event_log: EventLog,
    cluster: LocalCluster,
    client: Client,
    files: Sequence[SourceFile],
) -> Verdict:
    total = len(files)
    consumers = ConsumerProcesses(options.consumers, cluster.target, options.folder / "consumers")
    with (
        ProgressWatcher(cluster, TUBE, event_log) as watcher,
        consumers,
        ThreadPoolExecutor(1, thread_name_prefix="producer") as threads,
    ):
        event_log.print_event(f"{options.consumers} consumer processes take, hash and acknowledge")
        putting = threads.submit(asyncio.run, put_files(cluster.target, files))
        kill = None
        if options.nodes >= NODES_THAT_SURVIVE_ONE:
            watcher.wait_until(lambda seen: 3 * seen.processed >= total)
            kill = leader_kill.kill_leader(cluster, client, event_log)
            watcher.wait_until(lambda seen: 3 * seen.processed >= 2 * total)
            leader_kill.restart(kill, event_log)
        paths = putting.result()
        watcher.wait_until(lambda seen: seen.processed >= total)
        consumers.stop()
        event_log.print_event("all tasks are processed; waiting until all nodes have caught up")
        leader = cluster.wait_ready()
    records = list(read_records(consumers.records))
    event_log.print_event("reading the results back and comparing them with the files")
    results = read_results(client.tube(TUBE))
    report, is_report_missing = "left out", False
    if options.has_report:
        try:
            report = make_report(cluster.target, TUBE, options.folder / "report", event_log)
        except ReportFailed as error:
            report, is_report_missing = str(error), True
    return Verdict(
        put=len(paths),
        records=check_records(paths.keys(), records),
        feed=check_feed(TUBE, read_feed(leader.address)),
        results=check_results(paths, results),
        failover_ms=kill.failover_ms if kill else None,
        duration_ms=duration_ms(records),
        report=report,
        is_report_missing=is_report_missing,
    )


async def put_files(target: str, files: Sequence[SourceFile]) -> Mapping[int, str]:
    """Put the files, and return the path of each acknowledged task by its id.

    Each put is its own call; the client sends concurrent puts in one message.
    """
    paths: dict[int, str] = {}
    async with AsyncClient(target, name="producer", timeout=PUT_TIMEOUT) as client:
        app.use(client)
        for start in range(0, len(files), PUTS_AT_ONCE):
            part = files[start : start + PUTS_AT_ONCE]
            puts = (
                examine_file.options(priority=file.size_bytes).aput(str(file.path)) for file in part
            )
            handles = await asyncio.gather(*puts)
            for file, handle in zip(part, handles, strict=True):
                paths[handle.id] = str(file.path)
    return paths


def duration_ms(records: Sequence[DeliveryRecord]) -> int:
    """Return the time from the first take to the last acknowledgement, in ms."""
    if not records:
        return 0
    first = min(record.taken_ns for record in records)
    return (max(record.settled_ns for record in records) - first) // 1_000_000
