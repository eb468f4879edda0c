"""The development cluster: addresses, and a real run from start to Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from taskraft import Client
from taskraft.v1 import task_pb2, task_service_pb2, task_service_pb2_grpc
from taskraft_service.process.dev import dev_nodes, run_dev
from tests.dev_ports import dev_port

pytestmark = pytest.mark.real_time


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
    port = dev_port(2)
    with socket.create_server(("127.0.0.1", port + 10)):
        assert run_dev(2, tmp_path, port) == 1
    assert f"127.0.0.1:{port + 10} is in use" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_the_data_of_another_number_of_nodes_is_refused(tmp_path, capsys):
    for name in ("dev-0", "dev-1", "dev-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "identity").touch()
    assert run_dev(2, tmp_path, 1) == 2
    assert "has the data of 3 nodes; use --nodes 3" in capsys.readouterr().out


def dev_arguments(port, data):
    return ["--nodes", "2", "--port", str(port), "--data", str(data)]


@pytest.fixture
def development(tmp_path, request):
    """Start ``taskraft dev`` with two nodes; return its process, first port and output."""
    port = dev_port(2)
    arguments = dev_arguments(port, tmp_path) + getattr(request, "param", [])
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


def killed_node(process, said):
    """Kill the process of the second node; return the lines that the cluster then prints."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGKILL)
    for line in process.stdout:
        said.append(line.strip())
        if line.startswith("dev-1") and ("ready again" in line or "nodes run" in line):
            return said
    raise AssertionError(said)


@pytest.mark.cluster
def test_a_killed_node_is_started_again_with_its_data(development, tmp_path):
    process, port, said = development
    before = (tmp_path / "dev-1").stat().st_ino
    lines = killed_node(process, said)
    assert any("exited with status -9; starting it again" in line for line in lines)
    assert lines[-1] == "dev-1 is ready again"
    assert (tmp_path / "dev-1").stat().st_ino == before
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert are_free(port)


@pytest.mark.cluster
@pytest.mark.parametrize("development", [["--no-restart"]], indirect=True)
def test_the_other_nodes_run_on_without_restarts(development):
    process, port, said = development
    assert killed_node(process, said)[-1].endswith("exited with status -9; 1 of 2 nodes run")
    assert process.poll() is None
    assert not is_free(f"127.0.0.1:{port}")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


@pytest.mark.cluster
def test_the_other_nodes_run_on_after_the_removal_of_a_member(development, tmp_path):
    process, port, said = development
    with Client(f"127.0.0.1:{port},127.0.0.1:{port + 10}") as client:
        client.remove_member("dev-1", timeout="20s")
    for line in process.stdout:
        said.append(line.strip())
        if "nodes run" in line:
            break
    assert said[-1].endswith("exited with status 1; 1 of 2 nodes run"), said
    assert process.poll() is None
    with Client(f"127.0.0.1:{port}") as client:
        assert client.tube("still").put(b"works") == 1
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    # The next start leaves the removed node out too.
    script = f"from taskraft_service.process.cli import dev; dev({dev_arguments(port, tmp_path)!r})"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as again:
        assert any(line.startswith("ready") for line in again.stdout)
        again.send_signal(signal.SIGINT)
        assert again.wait(30) == 0
