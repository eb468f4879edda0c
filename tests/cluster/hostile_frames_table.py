"""Attack a secured cluster with hostile frames while a producer puts tasks.

``make hostile-frames`` prints the figures. The leader is attacked on all ports, while connections
without credentials fill these ports.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from taskraft.v1 import task_pb2, task_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from tests.authority import Authority
from tests.cluster.hostile_frames import Target, attack, connect_with_tls, half_send
from tests.cluster.test_hostile_connections import hostile_connections, resident_bytes
from tools.local_cluster import LocalCluster
from tools.local_node import Node

TOKEN = "a-token-of-the-producer"
ATTACKERS = 2
PUT_SECONDS_MAX = 20.0
WARM_UP_PUTS = 200
MIB = 1 << 20
HALF_SENT, ANNOUNCED, SENT_MAX = 16, 63 * MIB, 60 * MIB
"""Half-sent messages: connections, and the announced and the sent length of each message."""
ACCESS = """
[principals.producer]
tokens = ["sha256:{digest}"]
[[principals.producer.grants]]
role = "admin"
tubes = ["*"]
"""


@dataclass(frozen=True)
class Result:
    """Effects of an attack."""

    frames: Counter[str]
    seconds: float
    quiet_ms: Sequence[float]
    """Durations of the puts before the attack, ascending."""
    put_ms: Sequence[float]
    """Durations of the puts during the attack, ascending."""
    grown_bytes: int
    """Growth of the leader's resident memory."""
    terms: tuple[int, int]
    ended: Sequence[str]
    """Names of the nodes that have ended."""

    @property
    def is_right(self) -> bool:
        """Return whether all nodes run, in the same term."""
        return not self.ended and self.terms[0] == self.terms[1]


def percentile(durations: Sequence[float], percent: float) -> float:
    """Return a percentile of ascending durations."""
    return durations[min(len(durations) - 1, int(percent / 100 * len(durations)))]


@contextmanager
def secured_cluster(folder: Path, edge: str = "auto") -> Iterator[LocalCluster]:
    """Run three nodes with certificates and an access file; ``edge`` is the setting."""
    authority = Authority(folder, "clients")
    nodes_authority = Authority(folder, "nodes")
    served = authority.sign("localhost", "localhost")
    access = folder / "access.toml"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    access.touch(mode=0o600)
    access.write_text(ACCESS.format(digest=digest))
    cluster = LocalCluster(
        3, folder / "secured", {"TASKRAFT_AUTO_CREATE_TUBES": "true", "TASKRAFT_EDGE": edge}
    )
    for node in cluster.nodes:
        own = nodes_authority.node(node.name, "secured")
        node.environment = {
            **node.environment,
            "TASKRAFT_TLS_CERT": str(served.certificate),
            "TASKRAFT_TLS_KEY": str(served.key),
            "TASKRAFT_ACCESS_FILE": str(access),
            "TASKRAFT_PEER_TLS_CERT": str(own.certificate),
            "TASKRAFT_PEER_TLS_KEY": str(own.key),
            "TASKRAFT_PEER_TLS_CA": str(own.authority),
        }
        credentials = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(authority.certificate),
            grpc.access_token_call_credentials(TOKEN),
        )
        name = (("grpc.ssl_target_name_override", "localhost"),)
        node._channel = grpc.secure_channel(node.address, credentials, name)
    with cluster:
        yield cluster


def put(stub: task_service_pb2_grpc.TaskServiceStub) -> float:
    """Put one task; return the duration in ms."""
    tasks = [task_pb2.TaskSpec(payload=bytes(100))]
    request = pb.PutTasksRequest(request_id=str(uuid.uuid4()), tube="work", tasks=tasks)
    began = time.monotonic()
    stub.PutTasks(request, timeout=PUT_SECONDS_MAX)
    return 1000 * (time.monotonic() - began)


def attacked(cluster: LocalCluster, frames: int, seed: int) -> Result:
    """Attack the leader with a number of frames, and put tasks until the attackers are done."""
    processes = multiprocessing.get_context("spawn")  # a fork would copy gRPC's threads
    with ProcessPoolExecutor(ATTACKERS, processes) as attackers:
        leader = cluster.wait_ready()
        term = leader.state().state.term
        stub = task_service_pb2_grpc.TaskServiceStub(leader._channel)
        quiet = sorted(put(stub) for _ in range(WARM_UP_PUTS))
        before = resident_bytes(leader.pid)
        target = Target(leader.address, leader.peer_address, leader.http_address, TOKEN)
        began = time.monotonic()
        with hostile_connections(leader):
            running: list[Future[Counter[str]]] = [
                attackers.submit(attack, target, seed + number, frames // ATTACKERS)
                for number in range(ATTACKERS)
            ]
            durations = [put(stub)]
            while not all(one.done() for one in running):
                durations.append(put(stub))
        seconds = time.monotonic() - began
        grown = resident_bytes(leader.pid) - before
        cluster.wait_ready()
        ended = [node.name for node in cluster.nodes if not node.is_running]
        terms = [node.state().state.term for node in cluster.nodes if node.is_running]
        written = sum((one.result() for one in running), Counter[str]())
    return Result(written, seconds, quiet, sorted(durations), grown, (term, max(terms)), ended)


def held_by_half_sent(leader: Node, token: str) -> tuple[int, int]:
    """Send the beginning of a message on some connections to a node.

    Returns:
        Number of sent bytes, and growth of the node's resident memory in bytes.
    """
    before = resident_bytes(leader.pid)
    with ExitStack() as stack, ThreadPoolExecutor(HALF_SENT) as senders:
        links = [stack.enter_context(connect_with_tls(leader.address)) for _ in range(HALF_SENT)]
        sent = senders.map(lambda link: half_send(link, token, ANNOUNCED, SENT_MAX), links)
        return sum(sent), resident_bytes(leader.pid) - before


def show(result: Result) -> str:
    """Return the figures of an attack as text."""
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(result.frames.items()))
    quiet = " / ".join(f"{percentile(result.quiet_ms, share):.1f}" for share in (50, 99))
    ended = ", ".join(result.ended) or "none"
    attacked = " / ".join(f"{percentile(result.put_ms, share):.1f}" for share in (50, 99, 100))
    return f"""\
{result.seconds:.0f} s: {kinds}
puts before: {len(result.quiet_ms)}, p50 / p99 {quiet} ms
puts meanwhile: {len(result.put_ms)}, p50 / p99 / max {attacked} ms
leader: {result.grown_bytes / MIB:+.0f} MiB; terms {result.terms}; ended nodes: {ended}"""


def main() -> int:
    """Parse the arguments, attack, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="taskraft-hostile-") as folder,
        secured_cluster(Path(folder)) as cluster,
    ):
        result = attacked(cluster, arguments.frames, arguments.seed)
        print(show(result), flush=True)
        leader = cluster.wait_ready()
        for caller, token in (("without a token", ""), ("with a token", TOKEN)):
            sent, grown = held_by_half_sent(leader, token)
            print(
                f"{HALF_SENT} half-sent messages {caller}: "
                f"{sent / MIB:.0f} MiB sent, leader {grown / MIB:+.0f} MiB"
            )
    return 0 if result.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
