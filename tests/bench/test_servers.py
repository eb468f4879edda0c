"""Read the metrics of servers."""

from collections import defaultdict

import pytest

from bench.machine import CpuTimes
from bench.servers import ENTRIES, SYNCS, Server, Snapshot, parse_metrics, used

METRICS = """\
# HELP taskraft_log_entries_total Entries appended to the log.
# TYPE taskraft_log_entries_total counter
taskraft_log_entries_total 12.0
taskraft_tasks{state="ready",tube="a b"} 3
taskraft_tasks{state="taken",tube="a b"} 4.5
"""


def snapshot(ticks, busy, idle, **metrics):
    return Snapshot(ticks, CpuTimes(busy, idle, 0), defaultdict(float, metrics))


def test_metrics_are_summed_over_their_labels():
    assert parse_metrics(METRICS) == {"taskraft_log_entries_total": 12.0, "taskraft_tasks": 7.5}


def test_the_remaining_cpu_time_counts_as_foreign(monkeypatch):
    monkeypatch.setattr("bench.servers.resident_kib", lambda pid: 1_024)
    servers = [Server(1), Server(2), Server(3)]
    before = snapshot(100, 1_000, 1_000, **{SYNCS: 10, ENTRIES: 30})
    after = snapshot(140, 1_100, 1_100, **{SYNCS: 25, ENTRIES: 60})
    use = used(servers, before, after, generator_cpu_s=0.2)
    assert use.server_cpu_ms == pytest.approx(400)
    # Of 200 ticks, 100 were busy: 40 in the servers, 20 in the generator, and 40 foreign.
    assert use.foreign_cpu_percent == pytest.approx(20)
    assert use.syncs == 15
    assert use.entries == 10  # every member appends the same entries
    assert use.resident_mib == 3
