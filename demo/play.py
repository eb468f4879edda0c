"""Play the demo: the acts in order, and the verdict at the end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from demo import chaos
from demo.chronicle import Chronicle
from demo.corpus import SourceFile, source_files, standard_library
from demo.crew import Crew
from demo.feed import judge_feed, read_feed
from demo.producer import put_files
from demo.progress import Progress
from demo.records import Record, judge_records, read_records
from demo.report import ReportFailed, make_report
from demo.results import judge_results, read_results
from demo.verdict import Verdict
from taskraft import Client
from tools.local_cluster import LocalCluster

TUBE: Final = "files"

NODES_THAT_SURVIVE_ONE: Final = 3
"""With fewer nodes the loss of one stops the cluster, so nothing is killed."""


@dataclass(slots=True, frozen=True)
class Script:
    """What may be chosen about the demo."""

    folder: Path = Path("var/demo")
    """Where everything is written; what is there from an earlier run is removed."""
    nodes: int = 3
    consumers: int = 4
    has_report: bool = True


def play(script: Script) -> Verdict:
    """Play all acts; everything that was started has ended when this returns."""
    chronicle = Chronicle()
    shutil.rmtree(script.folder, ignore_errors=True)
    files = source_files(standard_library())
    chronicle.tell(f"{len(files)} source files below {standard_library()}")
    chronicle.tell(f"starting {script.nodes} nodes on loopback, data in {script.folder}")
    with LocalCluster(script.nodes, script.folder) as cluster, Client(cluster.target) as client:
        for node in cluster.nodes:
            chronicle.tell(f"{node.name} serves on {node.address} (process {node.pid})")
        client.create_tube(TUBE, on_ack="keep")
        client.create_tube(chaos.PROBE_TUBE)
        return _work(script, chronicle, cluster, client, files)


def _work(
    script: Script,
    chronicle: Chronicle,
    cluster: LocalCluster,
    client: Client,
    files: Sequence[SourceFile],
) -> Verdict:
    total = len(files)
    crew = Crew(script.consumers, cluster.target, TUBE, script.folder / "consumers")
    with (
        Progress(cluster, TUBE, chronicle) as progress,
        crew,
        ThreadPoolExecutor(1, thread_name_prefix="producer") as threads,
    ):
        chronicle.tell(f"{script.consumers} consumer processes take, hash and acknowledge")
        putting = threads.submit(asyncio.run, put_files(cluster.target, TUBE, files))
        strike = None
        if script.nodes >= NODES_THAT_SURVIVE_ONE:
            progress.wait_until(lambda sight: 3 * sight.processed >= total)
            strike = chaos.kill_leader(cluster, client, chronicle)
            progress.wait_until(lambda sight: 3 * sight.processed >= 2 * total)
            chaos.restart(strike, chronicle)
        paths = putting.result()
        progress.wait_until(lambda sight: sight.processed >= total)
        crew.stop()
        chronicle.tell("all is processed; waiting until every node follows")
        leader = cluster.wait_ready()
    records = list(read_records(crew.records))
    chronicle.tell("reading the results back and comparing them with the files")
    results = read_results(client.tube(TUBE))
    report, is_report_missing = "left out", False
    if script.has_report:
        try:
            report = make_report(cluster.target, TUBE, script.folder / "report", chronicle)
        except ReportFailed as error:
            report, is_report_missing = str(error), True
    return Verdict(
        put=len(paths),
        records=judge_records(paths.keys(), records),
        feed=judge_feed(TUBE, read_feed(leader.address)),
        results=judge_results(paths, results),
        failover_ms=strike.failover_ms if strike else None,
        duration_ms=duration_ms(records),
        report=report,
        is_report_missing=is_report_missing,
    )


def duration_ms(records: Sequence[Record]) -> int:
    """Return the time from the first take until the last acknowledgement was sent."""
    if not records:
        return 0
    first = min(record.taken_ns for record in records)
    return (max(record.settled_ns for record in records) - first) // 1_000_000
