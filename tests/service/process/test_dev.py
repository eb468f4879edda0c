"""The development cluster: addresses, and a real run from start to Ctrl-C."""

import signal
import socket
import subprocess
import sys

import grpc
import pytest

from taskraft.v1 import task_pb2, task_service_pb2, task_service_pb2_grpc
from taskraft_service.process.dev import dev_nodes, run_dev


def test_the_nodes_listen_on_the_documented_addresses():
    nodes = dev_nodes(3, 7401)
    assert [node.client for node in nodes] == [f"127.0.0.1:{port}" for port in (7401, 7411, 7421)]
    assert [node.http for node in nodes] == [f"127.0.0.1:{port}" for port in (7480, 7490, 7500)]


def test_no_two_nodes_of_the_largest_cluster_share_a_port():
    addresses = [
        address for node in dev_nodes(7, 7401) for address in (node.client, node.peer, node.http)
    ]
    assert len(set(addresses)) == len(addresses)


def is_free(address):
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True


def are_free(port):
    return all(
        is_free(address)
        for node in dev_nodes(2, port)
        for address in (node.client, node.peer, node.http)
    )


def test_a_port_in_use_stops_the_start(tmp_path, capsys):
    """The other listener of the port would answer like a ready node."""
    port = next(base for base in range(20_000, 30_000, 200) if are_free(base))
    with socket.create_server(("127.0.0.1", port + 10)):
        assert run_dev(2, tmp_path, port) == 1
    assert f"127.0.0.1:{port + 10} is in use" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.fixture
def development(tmp_path):
    """Start ``taskraft dev`` with two nodes; return its process, first port and output."""
    # The port is below the ephemeral ports of the kernel, which may be taken at any moment.
    port = next(base for base in range(20_000, 30_000, 200) if are_free(base))
    arguments = ["--nodes", "2", "--port", str(port), "--data", str(tmp_path)]
    script = f"from taskraft_service.process.cli import dev; dev({arguments!r})"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        said = []
        for line in process.stdout:
            said.append(line.strip())
            if line.startswith("ready"):
                break
        yield process, port, said
        process.kill()


@pytest.mark.cluster
@pytest.mark.parametrize(
    "numbers", [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGTERM, signal.SIGTERM)], ids=str
)
def test_a_development_cluster_runs_until_it_is_stopped(development, tmp_path, numbers):
    process, port, said = development
    address = f"127.0.0.1:{port}"
    assert f"TASKRAFT_TARGET={address},127.0.0.1:{port + 10}" in said
    with grpc.insecure_channel(address) as channel:
        stub = task_service_pb2_grpc.TaskServiceStub(channel)
        answer = stub.PutTasks(
            task_service_pb2.PutTasksRequest(tube="hello", tasks=[task_pb2.TaskSpec()]),
            timeout=10,
        )
    assert list(answer.task_ids) == [1]
    for number in numbers:
        process.send_signal(number)
    assert process.wait(30) == 0
    assert are_free(port)
    assert (tmp_path / "dev-0").is_dir()


@pytest.mark.cluster
def test_no_node_survives_a_killed_development_cluster(development):
    process, port, _ = development
    process.kill()
    process.stdout.read()  # The nodes inherit the pipe, so the pipe ends with the last node.
    assert are_free(port)
