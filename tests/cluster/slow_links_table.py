"""Put tasks of all sizes over links of all rates and delays: ``make slow-links`` prints the table.

Each put whose time on the links fits its deadline must be acknowledged, and no member may start an
election meanwhile or before the last member has the put. For each rate the table also has calls
with TLS to a follower, whose forwarded calls share the links with the log.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from taskraft.v1 import task_pb2, task_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from tests.drill.drill_access import DrillAccess
from tools.local_cluster import LocalCluster
from tools.local_node import Node
from tools.peer_links import PeerLinks, Quality

KIB, MIB = 1 << 10, 1 << 20
RATES_MBIT = (1, 4, 16, 46, 100, 300, 1000)
DELAYS_MS = (1, 50, 200)
SIZES = (1 * KIB, 64 * KIB, 256 * KIB, 1 * MIB, 4 * MIB, 16 * MIB, 30 * MIB)
"""Largest payload of a put in bytes, close to the limit of a message."""
TASK_BYTES_MAX = 16 * MIB
DEADLINE_SECONDS = 30.0
ROUND_TRIPS = 6
"""Number of round trips of a put in addition to its time on the link: TCP may have to open its
window."""
TUBE = "work"
SETTINGS = {
    "TASKRAFT_AUTO_CREATE_TUBES": "true",
    "TASKRAFT_PAYLOAD_BYTES_MAX": str(TASK_BYTES_MAX),
}


@dataclass(frozen=True)
class Way:
    """The way of a put to the leader."""

    name: str
    through_follower: bool
    is_secured: bool
    """Whether the connections of clients and nodes have TLS."""

    @property
    def crossings(self) -> int:
        """Return how often the content of a put crosses a link, one time after the other."""
        return 2 if self.through_follower else 1


DIRECT = Way("leader", through_follower=False, is_secured=False)
FORWARDED = Way("follower, TLS", through_follower=True, is_secured=True)


@dataclass(frozen=True)
class Put:
    """One put over links with one rate and one delay."""

    way: Way
    megabits: float
    delay_ms: float
    size: int
    seconds: float
    """Duration of the call in seconds; negative without an acknowledgement."""
    terms: tuple[int, int]
    """The highest term on any node, before the put and when all members have the put."""

    @property
    def is_right(self) -> bool:
        """Return whether the put was acknowledged without an election."""
        return self.seconds >= 0 and self.terms[0] == self.terms[1]

    def __str__(self) -> str:
        """Return one line of the table."""
        outcome = f"{self.seconds:6.2f} s" if self.seconds >= 0 else "no answer"
        verdict = "" if self.is_right else "  WRONG"
        return (
            f"{self.megabits:5g} Mbit/s {self.delay_ms:4g} ms {self.size // KIB:6d} KiB "
            f"{outcome}  terms {self.terms[0]}-{self.terms[1]}  {self.way.name}{verdict}"
        )


def sizes_within(megabits: float, delay_ms: float, sizes: Sequence[int], way: Way) -> Iterator[int]:
    """Yield the sizes whose time on the links fits the deadline."""
    for size in sizes:
        crossing = size * 8 / (megabits * 1e6) + ROUND_TRIPS * 2 * delay_ms / 1e3
        if crossing * way.crossings < DEADLINE_SECONDS * 0.9:
            yield size


def puts_over(
    folder: Path, megabits: float, delay_ms: float, way: Way, sizes: Sequence[int] = SIZES
) -> Iterator[Put]:
    """Start a cluster on such links, put a task of each size that fits, and yield the outcomes."""
    access = DrillAccess(folder / "access", (TUBE,)) if way.is_secured else None
    settings = SETTINGS | (access.settings if access is not None else {})
    cluster = LocalCluster(3, folder / "c", settings, access)
    with PeerLinks(cluster, Quality(megabits * 1e6, delay_ms / 1e3)), cluster:
        leader = cluster.wait_ready()
        called = _follower(cluster, leader) if way.through_follower else leader
        with called.connect(called.address) as channel:
            stub = task_service_pb2_grpc.TaskServiceStub(channel)
            _put(stub, 1)  # The first put creates the tube.
            cluster.wait_ready()
            term = _term(cluster)
            for size in sizes_within(megabits, delay_ms, sizes, way):
                seconds = _put(stub, size)
                cluster.wait_until(lambda: _is_level(cluster), "all members have the put")
                before, term = term, _term(cluster)
                yield Put(way, megabits, delay_ms, size, seconds, (before, term))


def _follower(cluster: LocalCluster, leader: Node) -> Node:
    return next(node for node in cluster.nodes if node is not leader)


def _put(stub: task_service_pb2_grpc.TaskServiceStub, size: int) -> float:
    """Put tasks of ``size`` bytes in total; return the duration in seconds, -1 after an error."""
    sizes = [min(TASK_BYTES_MAX, size - offset) for offset in range(0, size, TASK_BYTES_MAX)]
    tasks = [task_pb2.TaskSpec(payload=bytes(each)) for each in sizes]
    request = pb.PutTasksRequest(request_id=str(uuid.uuid4()), tube=TUBE, tasks=tasks)
    begun = time.monotonic()
    try:
        stub.PutTasks(request, timeout=DEADLINE_SECONDS)
    except grpc.RpcError as error:
        print(f"    {error.code()}: {error.details()}", file=sys.stderr)
        return -1
    return time.monotonic() - begun


def _is_level(cluster: LocalCluster) -> bool:
    """Return whether all nodes have applied the same entries."""
    states = [node.state() for node in cluster.nodes]
    return len({state.state.applied_index if state else None for state in states}) == 1


def _term(cluster: LocalCluster) -> int:
    """Return the highest term on any node."""
    states = [node.state() for node in cluster.nodes]
    return max(state.state.term for state in states if state is not None)


def main() -> int:
    """Print the table; return 1 if a put was not acknowledged or cost an election."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES_MBIT, metavar="MBIT")
    parser.add_argument("--delays", type=float, nargs="+", default=DELAYS_MS, metavar="MS")
    options = parser.parse_args()
    wrong = 0
    for megabits in options.rates:
        cells = [(delay_ms, DIRECT) for delay_ms in options.delays]
        for delay_ms, way in (*cells, (options.delays[0], FORWARDED)):
            with tempfile.TemporaryDirectory() as folder:
                for put in puts_over(Path(folder), megabits, delay_ms, way):
                    print(put, flush=True)
                    wrong += not put.is_right
    print(f"{wrong} puts were not acknowledged or cost an election")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
