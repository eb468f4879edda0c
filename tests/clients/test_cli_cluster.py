"""`taskraft cluster status`: members, leader and wall clocks."""

import json
import re

import pytest

from taskraft import Client
from taskraft.v1 import cluster_service_pb2


def test_the_cluster_is_shown(run):
    done = run("cluster status")
    assert done.stdout.splitlines()[0].split()[:3] == ["ID", "NODE", "ROLE"]
    assert "memory:7401" in done.stdout
    assert "tolerates 0 down" in done.stdout
    assert json.loads(run("cluster status -o json").stdout)[0]["leader"] == "memory"


@pytest.mark.real_time
@pytest.mark.parametrize(
    "line",
    [
        "--target {} cluster status",
        "-t {} cluster status",
        "-t 127.0.0.1:1 cluster status --target {}",
        "--timeout 20s -t {} stats",
    ],
)
def test_the_target_may_stand_before_the_command(cluster, run_remote, monkeypatch, line):
    monkeypatch.setenv("TASKRAFT_TARGET", "127.0.0.1:1")
    assert run_remote(line.format(cluster.target)).exit_code == 0
    assert cluster.calls


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("worker shop:app", "worker"),
        ("app list shop:app", "app"),
        ("outbox ddl", "outbox"),
        ("task put nightly --app shop:app", "task put"),
        ("dev", "dev"),
        ("pipeline", "pipeline"),
    ],
)
def test_an_option_that_a_command_would_ignore_is_refused(run, command, named):
    done = run(f"-t 127.0.0.1:1 {command}")
    assert done.exit_code == 2
    assert f"--target cannot stand before '{named}'" in done.stderr


def test_the_timeout_may_stand_before_the_command(calls, run):
    calls.hold("PutTasks")
    done = run("--timeout 100ms put emails a")
    assert done.exit_code == 6


def test_credentials_before_the_command_override_the_environment(run, monkeypatch):
    monkeypatch.setenv("TASKRAFT_CA", "of-the-environment.pem")
    assert "of-the-root.pem" in run("--ca of-the-root.pem cluster status").stderr
    both = run("--ca of-the-root.pem cluster status --ca of-the-command.pem").stderr
    assert "of-the-command.pem" in both


def test_a_cluster_without_a_leader_says_how_many_voters_it_needs(run, monkeypatch):
    state = cluster_service_pb2.GetClusterStateResponse(node="n1")
    for name in ("n1", "n2", "n3"):
        state.members.add(name=name, suffrage=cluster_service_pb2.Member.VOTER, joined=True)
    monkeypatch.setattr(Client, "cluster_state", lambda _: state)
    assert "no leader: 2 of 3 voters must be up; answered by n1" in run("cluster status").stdout


def test_the_disk_and_the_last_snapshot_of_each_node_are_shown(run, taskraft, monkeypatch):
    assert re.search(r" [\d,.]+ GiB +none\n", run("cluster status").stdout)
    (told,) = taskraft.client.node_states().values()
    told.state.disk_free_bytes, told.state.disk_low = 3 << 29, True
    told.state.snapshot_ms = told.now_ms - 7_200_000
    monkeypatch.setattr(Client, "node_states", lambda _: {"memory": told})
    assert " 1.5 GiB, low  2h\n" in run("cluster status").stdout
    told.state.ClearField("disk_free_bytes")
    assert run("cluster status").stdout.splitlines()[1].split()[-2:] == ["?", "?"]


def test_the_wall_clock_of_each_member_is_shown(run, monkeypatch):
    problem = "the wall clock is 5000 ms ahead of those of a majority"
    state = cluster_service_pb2.GetClusterStateResponse(
        node="n1", leader="n1", clock_problem=problem
    )
    for name, deviation_ms in (("n1", 5_000), ("n2", -3), ("n3", 0), ("n4", None)):
        state.members.add(name=name, joined=True, wall_deviation_ms=deviation_ms)
    monkeypatch.setattr(Client, "cluster_state", lambda _: state)
    lines = run("cluster status").stdout.splitlines()
    assert "CLOCK" in lines[0]
    place = lines[0].index("CLOCK")
    assert [line[place:].split("  ")[0].strip() for line in lines[1:5]] == [
        "+5000 ms",
        "-3 ms",
        "+0 ms",
        "?",
    ]
    assert lines[-1] == f"clock problem of n1: {problem}"
