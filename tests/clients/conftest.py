"""Give tests a fake cluster of one node or of three, or a real node with a client and a tube."""

import uuid

import pytest

from taskraft import Client
from tests.clients.fake_cluster import FakeCluster
from tools.local_cluster import LocalCluster


@pytest.fixture
def cluster():
    with FakeCluster() as one:
        yield one


@pytest.fixture
def three():
    with FakeCluster(3) as nodes:
        yield nodes


@pytest.fixture(scope="session", name="node")
def real_node(tmp_path_factory):
    """One real node for all tests of a process: each uses tubes of its own."""
    with LocalCluster(1, tmp_path_factory.mktemp("single")) as one:
        yield one


@pytest.fixture
def client(node):
    with Client(node.target, name="test") as one:
        yield one


@pytest.fixture
def tube(client):
    name = f"tube-{uuid.uuid4()}"
    client.create_tube(name)
    return client.tube(name)


@pytest.fixture(autouse=True)
def no_target(monkeypatch):
    monkeypatch.delenv("TASKRAFT_TARGET", raising=False)
