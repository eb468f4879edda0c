"""Fixtures: nodes in memory, with and without sockets, a real node, clients, and a tube."""

import shlex
import uuid

import click
import pytest
from click.testing import CliRunner

from taskraft import AsyncClient, Client
from taskraft.cli import main, output
from taskraft.cli.output_shape import names_of
from tests.clients.node_calls import NodeCalls
from tests.clients.served_cluster import ServedCluster
from tools.local_cluster import LocalCluster


@pytest.fixture
def emails(taskraft):
    """Create the tube `emails`, which keeps acknowledged tasks, on a node in memory."""
    taskraft.client.create_tube("emails", "fifottl", on_ack="keep")
    return taskraft.client.tube("emails")


@pytest.fixture
def calls(taskraft, emails):
    """Record the calls that reach the node in memory after the tube was created."""
    return recorded(taskraft._inner)


@pytest.fixture
def run(emails):
    """Return a function that runs a line of the command line against the node in memory."""
    return run_line


@pytest.fixture
def run_remote():
    """Return a function that runs a line of the command line, which connects to sockets."""
    return run_line


def run_line(line, **options):
    return CliRunner().invoke(main, shlex.split(line), **options)


def recorded(kit):
    """Record the calls that reach the node of a kit."""
    calls = NodeCalls()
    calls.record(kit._backend.node.handlers)
    return calls


@pytest.fixture
async def async_kit(ataskraft):
    """Return a kit for coroutines, with the tube `emails`, which keeps acknowledged tasks."""
    await ataskraft.client.create_tube("emails", "fifottl", on_ack="keep")
    return ataskraft


@pytest.fixture
def async_calls(async_kit):
    """Record the calls that reach the node in memory after the tube was created."""
    return recorded(async_kit)


@pytest.fixture
async def memory_client(async_kit):
    """Return a client of the node in memory."""
    async with AsyncClient() as one:
        yield one


@pytest.fixture
def cluster():
    with ServedCluster() as one:
        yield one


@pytest.fixture
def three():
    with ServedCluster(3) as nodes:
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


@pytest.fixture(autouse=True)
def declared_outputs(monkeypatch):
    """Fail if a command prints a field that it has not declared with its option --output."""
    write = output.write_values

    def checked(values, form):
        context = click.get_current_context(silent=True)
        if context is not None:
            shapes = [shape for shape in context.command.callback.shapes if shape is not None]
            declared = [names_of(shape) for shape in shapes]
            assert all(any(value.keys() <= names for names in declared) for value in values)
        return write(values, form)

    monkeypatch.setattr(output, "write_values", checked)
