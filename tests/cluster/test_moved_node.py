"""Restart real nodes at another address behind the same host name, as pods of Kubernetes do."""

from __future__ import annotations

import uuid

import grpc
import pytest

from taskraft import Client
from taskraft.v1 import task_pb2, task_service_pb2, task_service_pb2_grpc
from tools.host_names import HostNames, missing
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

FOLLOW_MS = 15_000
"""Maximum time for the nodes to follow, less than the 20 to 30 s after which a gRPC channel
resolves a name again by default."""
TUBE = "work"


class NamedCluster:
    """Three nodes that reach each other by host names."""

    def __init__(self, folder) -> None:
        self.names = HostNames(folder / "hosts")
        self.cluster = LocalCluster(3, folder / "c", {"TASKRAFT_AUTO_CREATE_TUBES": "true"})
        members = self.cluster.nodes[0].environment["TASKRAFT_PEERS"]
        for node in self.cluster.nodes:
            self.names.set(self.name(node), "127.0.0.1")
            for address in (node.address, node.peer_address):
                port = address.rpartition(":")[2]
                members = members.replace(address, f"{self.name(node)}:{port}")
            node.command_prefix = self.names.command()
        for node in self.cluster.nodes:
            node.environment = {**node.environment, "TASKRAFT_PEERS": members}

    def name(self, node) -> str:
        return f"{node.name}.moved.test"

    def move(self, node, host) -> None:
        """Start a killed node at another address."""
        for setting in ("TASKRAFT_LISTEN", "TASKRAFT_PEER_LISTEN"):
            port = node.environment[setting].rpartition(":")[2]
            node.environment = {**node.environment, setting: f"{host}:{port}"}
        node.close()
        node.address = node.environment["TASKRAFT_LISTEN"]
        self.names.set(self.name(node), host)
        node.start()


@pytest.fixture
def named(tmp_path):
    if reason := missing(tmp_path / "hosts"):
        pytest.skip(f"the machine allows no mount namespace: {reason}")
    named = NamedCluster(tmp_path)
    with named.cluster:
        yield named


def put(stub, timeout):
    spec = task_pb2.TaskSpec(payload=b"x")
    request = task_service_pb2.PutTasksRequest(request_id=uuid.uuid4().hex, tube=TUBE, tasks=[spec])
    stub.PutTasks(request, timeout=timeout)


def test_nodes_follow_a_node_to_its_new_address(named):
    """The other nodes send log entries to the moved node, and forward calls to it."""
    cluster = named.cluster
    moved = cluster.wait_ready()
    other = next(node for node in cluster.nodes if node is not moved)
    with grpc.insecure_channel(other.address) as channel:
        stub = task_service_pb2_grpc.TaskServiceStub(channel)
        put(stub, 10)  # The put opens the channel from this node to the leader.
        moved.kill()
        cluster.wait_ready()
        named.move(moved, "127.0.0.9")
        cluster.wait_ready(FOLLOW_MS)
        with Client(other.address) as client:
            client.transfer_leadership(moved.name, timeout="10s")
        assert cluster.wait_ready(FOLLOW_MS) is moved
        put(stub, FOLLOW_MS / 1000)
