"""Measure the cost of an idle cluster of three nodes: CPU time and wake-ups per node.

There are no clients; the nodes only exchange heartbeats. CPU time is that of
the scheduler, ended threads included; wake-ups are voluntary context switches. On a busy machine a
wake-up takes up to three times as much CPU time, because the caches are cold, so the results are
upper bounds.

    python -m bench.idle_cluster [--seconds 20]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.machine import process_cpu_ns
from tools.local_cluster import LocalCluster

GOAL_PERCENT: Final = 2.0
SETTLE_SECONDS: Final = 2.0
"""Time after the election in which the first state is written and the streams open, in seconds."""


@dataclass(slots=True, frozen=True)
class Account:
    """Resources that a process has used so far."""

    cpu_ns: int
    wakeups: int


def account_of(pid: int) -> Account:
    """Return the resources that a process has used; wake-ups are those of its present threads."""
    wakeups = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for line in (thread / "status").read_text(encoding="ascii").splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                wakeups += int(line.split()[1])
    return Account(process_cpu_ns(pid), wakeups)


def measure(cluster: LocalCluster, seconds: float) -> str:
    """Watch the nodes of an idle cluster; return the line with the results."""
    leader = cluster.wait_ready()
    time.sleep(SETTLE_SECONDS)
    before = accounts(cluster)
    begun = time.monotonic()
    time.sleep(seconds)
    after = accounts(cluster)
    spent = time.monotonic() - begun
    shown = []
    for name, account in after.items():
        percent = (account.cpu_ns - before[name].cpu_ns) / spent / 1e7
        wakeups = (account.wakeups - before[name].wakeups) / spent
        role = "leader" if name == leader.name else "follower"
        shown.append(f"{role} {percent:.2f} % of a core, {wakeups:.0f} wake-ups/s")
    return f"idle cluster of three, {spent:.0f} s: {'; '.join(shown)}; target {GOAL_PERCENT:.0f} %"


def accounts(cluster: LocalCluster) -> Mapping[str, Account]:
    """Return the resources that each node has used."""
    return {node.name: account_of(node.pid) for node in cluster.nodes}


def main() -> None:
    """Parse the arguments, measure, print one line."""
    parser = argparse.ArgumentParser(description="Measure what an idle cluster costs.")
    parser.add_argument("--seconds", type=float, default=20)
    seconds = parser.parse_args().seconds
    with (
        tempfile.TemporaryDirectory(prefix="taskraft-idle-") as folder,
        LocalCluster(3, Path(folder) / "cluster") as cluster,
    ):
        print(measure(cluster, seconds))


if __name__ == "__main__":
    main()
