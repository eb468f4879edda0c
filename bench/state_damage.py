"""Measure the repair of a damaged state, and the cost of the scrubber, on a full cluster.

Three processes on loopback are filled with tasks, and their log is trimmed. A client puts one task
every 20 ms. Three measurements follow:

- A follower starts with a damaged manifest. Time from its start until it is ready.
- The scrubber of a running follower finds a flipped bit in a table. Time from the detection until
  the node is ready.
- With ``--pairs``: latency of the puts and CPU time of the nodes, alternately while the scrubbers
  of all nodes read and while they rest::

    python -m bench.state_damage                               # 100 000 tasks, 5 pairs
    python -m bench.state_damage --tasks 1000000 --pairs 10
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Final

import grpc

from bench.catch_up import SETTINGS, BackgroundPuts, applied, fill, latency_line
from bench.percentiles import median_and_p99
from taskraft.v1 import task_service_pb2_grpc
from tools.local_cluster import LocalCluster
from tools.local_node import Node, NodeFailed

SCRUBS: Final = {"TASKRAFT_SCRUB_PERIOD_MS": "1000"}
"""Settings for frequent scrubs: a pass begins one second after the end of the previous pass."""
RESTS: Final = {"TASKRAFT_SCRUB_PERIOD_MS": str(24 * 3_600_000)}
"""Settings without scrubs: the first pass begins 60 s after the start of a node, after the end of
the measurement.
"""
WARM_UP_SECONDS: Final = 5.0
WINDOW_SECONDS: Final = 20.0
REPAIR_SECONDS_MAX: Final = 600.0
DETECTED: Final = ("the state is damaged and is rebuilt", "the state is lost; fetching")
T_95: Final = {2: 12.7, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 8: 2.36, 10: 2.26, 20: 2.09}
"""Factor of the 95 % interval of a mean, by the number of pairs."""


@dataclass(slots=True, frozen=True)
class Window:
    """Puts and CPU time of one window."""

    put_ms: Sequence[float]
    cores: float
    """CPU time of a node, as a share of one core; mean of the nodes."""

    @property
    def p99_ms(self) -> float:
        """The 99th percentile of the latency."""
        return median_and_p99(self.put_ms)[1]


def is_ready(node: Node) -> bool:
    """Return whether the node answers that it is ready."""
    try:
        with urllib.request.urlopen(f"http://{node.http_address}/readyz", timeout=5) as answer:
            return int(answer.status) == 200
    except (OSError, urllib.error.HTTPError):
        return False


def follower_of(cluster: LocalCluster) -> Node:
    """Return a running node that does not lead."""
    leader = cluster.wait_ready()
    return next(node for node in cluster.nodes if node is not leader)


def state_of(node: Node) -> Path:
    """Return the directory of the databases of a node."""
    return Path(node.environment["TASKRAFT_DATA_DIR"], "state")


def repair(cluster: LocalCluster, node: Node, said: int) -> float:
    """Wait until a node has detected damage, and return the seconds until it is ready again."""
    began = detected = time.monotonic()
    is_detected = False
    while True:
        if not is_detected:
            is_detected = any(text in node.log.read_text()[said:] for text in DETECTED)
            detected = time.monotonic()
        if not node.is_running or time.monotonic() - began > REPAIR_SECONDS_MAX:
            raise NodeFailed(f"{node.name} was not repaired{node.tail()}")
        if is_detected and is_ready(node):
            leader = cluster.leader()
            if leader is not None and applied(node) >= applied(leader) - 10:
                return time.monotonic() - detected
        time.sleep(0.02)


def repair_at_start(cluster: LocalCluster) -> float:
    """Damage the manifest of a stopped follower; return the seconds from its start until ready."""
    node = follower_of(cluster)
    node.stop()
    said = len(node.log.read_text())
    for manifest in state_of(node).glob("*/MANIFEST-*"):
        manifest.write_bytes(b"damaged")
    began = time.monotonic()
    node.start()
    repair(cluster, node, said)
    return time.monotonic() - began


def repair_of_scrub(cluster: LocalCluster) -> float:
    """Flip a bit in the largest table of a running follower; return the seconds until ready."""
    node = follower_of(cluster)
    node.stop()
    node.environment = {**node.environment, **SCRUBS}
    node.start()
    cluster.wait_until(lambda: is_ready(node), f"{node.name} is ready", 120_000)
    said = len(node.log.read_text())
    table = max(state_of(node).glob("*/*.sst"), key=lambda path: path.stat().st_size)
    with table.open("r+b", buffering=0) as file:
        (byte,) = file.read(1)
        file.seek(0)
        file.write(bytes((byte ^ 1,)))
    return repair(cluster, node, said)


def cpu_seconds(node: Node) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def window(cluster: LocalCluster, settings: dict[str, str]) -> Window:
    """Restart all nodes with settings, and measure puts for a while."""
    for node in cluster.nodes:
        node.stop()
        node.environment = {**node.environment, **settings}
        node.start()
        cluster.wait_ready(120_000)
    leader = cluster.wait_ready()
    with grpc.insecure_channel(leader.address) as channel:
        puts = BackgroundPuts(task_service_pb2_grpc.TaskServiceStub(channel))
        with puts.going_on():
            time.sleep(WARM_UP_SECONDS)
            puts.taken()
            before = [cpu_seconds(node) for node in cluster.nodes]
            time.sleep(WINDOW_SECONDS)
            after = [cpu_seconds(node) for node in cluster.nodes]
            taken = puts.taken()
    used = mean(late - early for early, late in zip(before, after, strict=True))
    return Window(taken, used / WINDOW_SECONDS)


def interval(values: Sequence[float]) -> str:
    """Return the mean of differences and its 95 % interval."""
    factor = T_95.get(len(values), 2.0)
    return f"{mean(values):+.2f} ± {factor * stdev(values) / sqrt(len(values)):.2f}"


def report_pairs(pairs: Sequence[tuple[Window, Window]]) -> None:
    """Print the cost of the scrubber, from pairs of windows with and without scrubs."""
    for name, place in (("scrubber reads", 0), ("scrubber rests", 1)):
        windows = [pair[place] for pair in pairs]
        print(f"{name}: put {latency_line([one for each in windows for one in each.put_ms])}")
        print(f"  CPU of a node {mean(each.cores for each in windows) * 100:.2f} % of a core")
        print(f"  maximum of each window {', '.join(f'{max(w.put_ms):.1f}' for w in windows)} ms")
    p99 = interval([one.p99_ms - other.p99_ms for one, other in pairs])
    most = interval([max(one.put_ms) - max(other.put_ms) for one, other in pairs])
    cores = interval([(one.cores - other.cores) * 100 for one, other in pairs])
    print(f"difference of p99 {p99} ms, of maxima {most} ms, of CPU {cores} % of a core")


def run(folder: Path, tasks: int, pairs: int) -> None:
    """Run the experiment in ``folder`` and print its results."""
    with LocalCluster(3, folder, settings={**SETTINGS, **RESTS}) as cluster:
        leader = cluster.wait_ready()
        fill(leader, tasks)
        with grpc.insecure_channel(leader.address) as channel:
            puts = BackgroundPuts(task_service_pb2_grpc.TaskServiceStub(channel))
            with puts.going_on():
                at_start = repair_at_start(cluster)
                of_scrub = repair_of_scrub(cluster)
                taken = puts.taken()
        size = sum(path.stat().st_size for path in state_of(leader).rglob("*.sst"))
        print(f"{tasks} tasks, {size / 1e6:.0f} MB of tables")
        print(f"damaged manifest: ready {at_start:.1f} s after the start", flush=True)
        print(f"flipped bit: ready {of_scrub:.1f} s after the scrubber found it", flush=True)
        print(f"put meanwhile: {latency_line(taken)}", flush=True)
        if pairs > 1:
            measured = []
            for number in range(pairs):
                order = (SCRUBS, RESTS) if number % 2 else (RESTS, SCRUBS)
                found = {id(each): window(cluster, each) for each in order}
                measured.append((found[id(SCRUBS)], found[id(RESTS)]))
            report_pairs(measured)


def main() -> int:
    """Measure the repair and the scrubber, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=5, help="0: measure the repairs only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taskraft-") as folder:
        run(Path(folder) / "damage", arguments.tasks, arguments.pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
