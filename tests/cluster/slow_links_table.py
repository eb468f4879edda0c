"""Put tasks of all sizes over links of all rates and delays: ``make slow-links`` prints the table.

Each put whose time on the links fits its deadline must be acknowledged, and no member may start an
election meanwhile.
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
from tools.local_cluster import LocalCluster
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
SETTINGS = {
    "TASKRAFT_AUTO_CREATE_TUBES": "true",
    "TASKRAFT_PAYLOAD_BYTES_MAX": str(TASK_BYTES_MAX),
}


@dataclass(frozen=True)
class Put:
    """One put over links with one rate and one delay."""

    megabits: float
    delay_ms: float
    size: int
    seconds: float
    """Duration of the call in seconds; negative without an acknowledgement."""
    terms: tuple[int, int]
    """The highest term on any node, before and after the put."""

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
            f"{outcome}  terms {self.terms[0]}-{self.terms[1]}{verdict}"
        )


def sizes_within(megabits: float, delay_ms: float, sizes: Sequence[int]) -> Iterator[int]:
    """Yield the sizes whose time on the link fits the deadline."""
    for size in sizes:
        if size * 8 / (megabits * 1e6) + ROUND_TRIPS * 2 * delay_ms / 1e3 < DEADLINE_SECONDS * 0.9:
            yield size


def puts_over(
    folder: Path, megabits: float, delay_ms: float, sizes: Sequence[int] = SIZES
) -> Iterator[Put]:
    """Start a cluster on such links, put a task of each size that fits, and yield the outcomes."""
    cluster = LocalCluster(3, folder, SETTINGS)
    with PeerLinks(cluster, Quality(megabits * 1e6, delay_ms / 1e3)), cluster:
        leader = cluster.wait_ready()
        with grpc.insecure_channel(leader.address) as channel:
            stub = task_service_pb2_grpc.TaskServiceStub(channel)
            _put(stub, 1)  # The first put creates the tube.
            cluster.wait_ready()
            for size in sizes_within(megabits, delay_ms, sizes):
                before = _term(cluster)
                seconds = _put(stub, size)
                yield Put(megabits, delay_ms, size, seconds, (before, _term(cluster)))


def _put(stub: task_service_pb2_grpc.TaskServiceStub, size: int) -> float:
    """Put tasks of ``size`` bytes in total; return the duration in seconds, -1 after an error."""
    sizes = [min(TASK_BYTES_MAX, size - offset) for offset in range(0, size, TASK_BYTES_MAX)]
    tasks = [task_pb2.TaskSpec(payload=bytes(each)) for each in sizes]
    request = pb.PutTasksRequest(request_id=str(uuid.uuid4()), tube="work", tasks=tasks)
    begun = time.monotonic()
    try:
        stub.PutTasks(request, timeout=DEADLINE_SECONDS)
    except grpc.RpcError as error:
        print(f"    {error.code()}: {error.details()}", file=sys.stderr)
        return -1
    return time.monotonic() - begun


def _term(cluster: LocalCluster) -> int:
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
        for delay_ms in options.delays:
            with tempfile.TemporaryDirectory() as folder:
                for put in puts_over(Path(folder) / "c", megabits, delay_ms):
                    print(put, flush=True)
                    wrong += not put.is_right
    print(f"{wrong} puts were not acknowledged or cost an election")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
