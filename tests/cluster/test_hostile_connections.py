"""Thousands of connections without credentials take neither descriptors nor memory from a node."""

import os
import socket
import subprocess
import sys
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from taskraft.v1 import task_pb2, task_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

MIB = 1 << 20
CONNECTIONS = 1000
"""Number of connections to each port."""
GROWTH_BYTES_MAX = 256 * MIB
DESCRIPTORS = 512
SETTINGS = {
    "TASKRAFT_AUTO_CREATE_TUBES": "true",
    "TASKRAFT_LOG_SEGMENT_BYTES": "65536",
    "TASKRAFT_LOG_FLUSH_BYTES": str(MIB),
}
OPENINGS = (b"", b"P", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"TASKRAFT", b"TASKRAFT+", b"GET / HT")


def put(stub, size=20_000):
    tasks = [task_pb2.TaskSpec(payload=bytes(size))]
    request = pb.PutTasksRequest(request_id=str(uuid.uuid4()), tube="work", tasks=tasks)
    stub.PutTasks(request, timeout=20)


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident_bytes(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def hostile_connections(node):
    """Open idle and half-sent connections to all ports of a node."""
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            for address in (node.address, node.peer_address, node.http_address):
                host, _, port = address.rpartition(":")
                try:
                    one = stack.enter_context(socket.create_connection((host, int(port)), 20))
                    one.sendall(OPENINGS[number % len(OPENINGS)])
                except OSError:
                    pass  # The node has closed this connection, or accepts no more.
        yield


def test_a_cluster_keeps_its_leader_under_thousands_of_connections_without_credentials(tmp_path):
    with LocalCluster(3, tmp_path / "c", SETTINGS) as cluster:
        leader = cluster.wait_ready()
        term = leader.state().state.term
        with grpc.insecure_channel(leader.address) as channel:
            stub = task_service_pb2_grpc.TaskServiceStub(channel)
            put(stub)
            before = resident_bytes(leader.pid)
            with hostile_connections(leader):
                for _ in range(50):
                    put(stub)
                assert resident_bytes(leader.pid) - before < GROWTH_BYTES_MAX
        assert [node.state().state.term for node in cluster.nodes] == [term] * 3


def test_a_node_with_few_descriptors_opens_its_files_under_thousands_of_connections(tmp_path):
    (node,) = LocalCluster(1, tmp_path / "c", SETTINGS).nodes
    node.folder.mkdir(parents=True)
    limited = f"ulimit -n {DESCRIPTORS}; exec {sys.executable} -m taskraft_service.process"
    with node.log.open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", limited], env={**os.environ, **node.environment}, stdout=log, stderr=log
        )
    try:
        with grpc.insecure_channel(node.address) as channel:
            grpc.channel_ready_future(channel).result(20)
            stub = task_service_pb2_grpc.TaskServiceStub(channel)
            put(stub)
            with hostile_connections(node):
                assert descriptors(process.pid) < DESCRIPTORS - 16
                for _ in range(200):  # Every third put begins a new segment of the log.
                    put(stub)
            put(stub)
        assert process.poll() is None, node.tail()
        lines = node.log.read_text().splitlines()
        assert not [line for line in lines if "Too many open files" in line][:3]
    finally:
        process.kill()
        process.wait()
