"""Measure the server processes under load: CPU time, memory, and their own metrics."""

from __future__ import annotations

import re
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.machine import TICKS_PER_SECOND, CpuTimes, process_ticks, resident_kib

SCRAPE_TIMEOUT_S: Final = 5
_SAMPLE: Final = re.compile(
    r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{[^}]*\})?\s(?P<value>\S+)", re.MULTILINE
)

SYNCS: Final = "taskraft_log_syncs_total"
ENTRIES: Final = "taskraft_log_entries_total"


@dataclass(slots=True, frozen=True)
class Server:
    """A process under load."""

    pid: int
    http_address: str = ""
    """Address of the metrics; empty: the server has no metrics."""


@dataclass(slots=True, frozen=True)
class Snapshot:
    """Resources that all servers and the machine had used at one time."""

    ticks: int
    cpu: CpuTimes
    metrics: Mapping[str, float]


@dataclass(slots=True, frozen=True)
class Use:
    """Resources used between two snapshots."""

    server_cpu_ms: float
    foreign_cpu_percent: float
    """Share of the machine that other programs used."""
    steal_percent: float
    syncs: float
    entries: float
    resident_mib: float


def parse_metrics(text: str) -> dict[str, float]:
    """Return the values of a Prometheus text, summed over the labels of each name."""
    values: defaultdict[str, float] = defaultdict(float)
    for sample in _SAMPLE.finditer(text):
        values[sample["name"]] += float(sample["value"])
    return values


def scrape(servers: Sequence[Server]) -> dict[str, float]:
    """Return the metrics of all servers, summed."""
    total: defaultdict[str, float] = defaultdict(float)
    for server in servers:
        if server.http_address:
            address = f"http://{server.http_address}/metrics"
            with urllib.request.urlopen(address, timeout=SCRAPE_TIMEOUT_S) as answer:
                for name, value in parse_metrics(answer.read().decode()).items():
                    total[name] += value
    return total


def look(servers: Sequence[Server]) -> Snapshot:
    """Take a snapshot; CPU times are read first, because they change fastest."""
    ticks, cpu = sum(process_ticks(server.pid) for server in servers), CpuTimes.now()
    return Snapshot(ticks, cpu, scrape(servers))


def used(
    servers: Sequence[Server], before: Snapshot, after: Snapshot, generator_cpu_s: float
) -> Use:
    """Return the resources used between two snapshots of the same servers."""
    server_s = (after.ticks - before.ticks) / TICKS_PER_SECOND
    busy = after.cpu.busy - before.cpu.busy
    steal = after.cpu.steal - before.cpu.steal
    total = busy + steal + after.cpu.idle - before.cpu.idle
    foreign = busy - (server_s + generator_cpu_s) * TICKS_PER_SECOND
    return Use(
        server_cpu_ms=1_000 * server_s,
        foreign_cpu_percent=max(0.0, 100 * foreign / max(total, 1)),
        steal_percent=100 * steal / max(total, 1),
        syncs=after.metrics[SYNCS] - before.metrics[SYNCS],
        # Every member appends every entry.
        entries=(after.metrics[ENTRIES] - before.metrics[ENTRIES]) / len(servers),
        resident_mib=sum(resident_kib(server.pid) for server in servers) / 1_024,
    )
