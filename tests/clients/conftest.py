"""Fixtures: a fake cluster of one or three nodes, a real node, clients, and a tube."""

import shlex
import uuid

import pytest
from click.testing import CliRunner

from taskraft import AsyncClient, Client
from taskraft.cli import main
from tests.clients.fake_cluster import FakeCluster
from tools.local_cluster import LocalCluster


@pytest.fixture
def run(cluster, monkeypatch):
    """Run a line of the command line against the fake cluster."""
    monkeypatch.setenv("TASKRAFT_TARGET", cluster.target)

    def invoke(line, **options):
        return CliRunner().invoke(main, shlex.split(line), **options)

    return invoke


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
    """Run one real node for all tests of a process; each test uses its own tubes."""
    with LocalCluster(1, tmp_path_factory.mktemp("single")) as one:
        yield one


@pytest.fixture
async def client(cluster):
    async with AsyncClient(cluster.target) as one:
        yield one


@pytest.fixture
def blocking_client(cluster):
    with Client(cluster.target) as one:
        yield one


@pytest.fixture
def real_client(node):
    with Client(node.target, name="test") as one:
        yield one


@pytest.fixture
def tube(real_client):
    name = f"tube-{uuid.uuid4()}"
    real_client.create_tube(name)
    return real_client.tube(name)


@pytest.fixture(autouse=True)
def no_target(monkeypatch):
    monkeypatch.delenv("TASKRAFT_TARGET", raising=False)
    monkeypatch.setenv("TASKRAFT_CONTEXT_FILE", "/nonexistent/contexts.json")
    monkeypatch.delenv("TASKRAFT_CONTEXT", raising=False)
