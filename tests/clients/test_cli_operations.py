"""Commands for operators: export, import, check, doctor, support bundle, top, bench."""

import json
import stat
import tarfile

import pytest

from taskraft import Statistics, TubeStatistics
from taskraft.cli.bench import Measurement
from taskraft.cli.doctor import REDACTED, redacted
from taskraft.cli.health import Level, Threshold, of_cluster, of_tube, worst
from taskraft.cli.progress import shown
from taskraft.cli.top_view import rows_of
from taskraft.v1 import cluster_service_pb2, tube_service_pb2


@pytest.fixture
def own(taskraft):
    """Return a tube of the kind that tubes have by default."""
    taskraft.client.create_tube("own")
    return taskraft.client.tube("own")


@pytest.fixture
def run_at_node(node, run_remote, monkeypatch):
    """Return a function that runs a line of the command line against a real node."""
    monkeypatch.setenv("TASKRAFT_TARGET", node.target)
    return run_remote


def test_progress_passes_all_items_on():
    assert list(shown(range(3), "counting", 3)) == [0, 1, 2]


# ------------------------------------------------------------------------------- check and doctor


def state_of(*active, leader="n0", lag=0, clock=0):
    """Return a state of one leader and of voters that are active or not."""
    state = cluster_service_pb2.GetClusterStateResponse(leader=leader, node="n0")
    state.state.last_index = 1_000
    for number, is_active in enumerate(active):
        member = state.members.add(name=f"n{number}", active=is_active, leader=number == 0)
        member.suffrage = cluster_service_pb2.Member.VOTER
        member.match_index = 1_000 - lag
        member.wall_deviation_ms = clock
    return state


@pytest.mark.parametrize(
    ("state", "level"),
    [
        (state_of(True, True, True), Level.OK),
        (state_of(True, True, False), Level.CRITICAL),
        (state_of(True, True, True, True, False), Level.WARNING),
        (state_of(True, True, True, leader=""), Level.CRITICAL),
        (state_of(True, True, True, lag=60), Level.WARNING),
        (state_of(True, True, True, lag=600), Level.CRITICAL),
        (state_of(True, True, True, clock=-300), Level.WARNING),
        (state_of(True, True, True, clock=3_000), Level.CRITICAL),
        (state_of(True, True, True, leader="n1"), Level.UNKNOWN),
    ],
)
def test_the_level_of_a_cluster_is_that_of_its_worst_finding(state, level):
    assert worst(list(of_cluster(state, lag=Threshold(50, 500)))) == level


def test_the_level_of_a_tube_follows_its_limits():
    tasks = tube_service_pb2.TubeStatistics.Tasks(ready=10, buried=1)
    counts = TubeStatistics.of(
        tube_service_pb2.TubeStatistics(tube="t", tasks=tasks, oldest_ready_ms=1_000)
    )
    none = Threshold(None, None)

    def level(**limits):
        every = {"backlog": none, "age_seconds": none, "buried": none, **limits}
        return worst(list(of_tube(counts, 61_000, **every)))

    assert level() == Level.OK
    assert level(backlog=Threshold(10, 20)) == Level.OK
    assert level(backlog=Threshold(9, 20)) == Level.WARNING
    assert level(backlog=Threshold(1, 9)) == Level.CRITICAL
    assert level(age_seconds=Threshold(59, None)) == Level.WARNING
    assert level(buried=Threshold(None, 0)) == Level.CRITICAL


def test_a_check_ends_with_the_exit_code_of_monitoring(own, run, taskraft):
    assert run("check cluster").exit_code == 0
    with taskraft.unreachable():
        assert run("check cluster --timeout 500ms").exit_code == 2
    own.put_many(["a", "b"])
    assert run(f"check tube {own.name}").exit_code == 0
    assert run(f"check tube {own.name} --backlog-warning 1").exit_code == 1
    done = run(f"check tube {own.name} --backlog-critical 1")
    text, _, data = done.stdout.partition(" | ")
    assert (done.exit_code, text) == (2, "CRITICAL: backlog: 2 tasks READY")
    assert data.startswith("'backlog'=2;;1;0 ")
    assert run("check tube missing").exit_code == 3
    (value,) = json.loads(run(f"check tube {own.name} -o json").stdout)
    assert value["name"] == "OK"


def test_limits_in_the_wrong_order_are_a_usage_error(calls, run):
    assert run("check tube a --backlog-warning 2 --backlog-critical 1").exit_code == 2
    assert not calls.calls


@pytest.mark.cluster
def test_the_doctor_finds_a_healthy_cluster_and_an_unreachable_one(run_at_node):
    findings = json.loads(run_at_node("doctor -o json").stdout)
    assert {each["level"] for each in findings} == {"OK"}
    done = run_at_node("doctor -t 127.0.0.1:1 --timeout 500ms -o json")
    assert done.exit_code == 1
    (only,) = json.loads(done.stdout)
    assert only["level"] == "CRITICAL"
    assert only["advice"]


def test_a_support_bundle_has_no_payloads_and_one_reader(own, run, taskraft, tmp_path):
    path = tmp_path / "support.tar.gz"
    task = own.task("very-secret", key="very-secret-key", headers={"a": "secret"})
    taskraft.client.schedules.create(own.name, "0 0 1 1 *", task)
    assert run(f"support-bundle {path}").exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        texts = {one.name: archive.extractfile(one).read().decode() for one in archive}
    assert "taskraft-support/cluster_state.json" in texts
    assert own.name in texts["taskraft-support/schedules.json"]
    assert "dmVyeS1zZWNyZXQ" not in "".join(texts.values())  # base64, as JSON has bytes
    assert "very-secret-key" not in "".join(texts.values())
    before = path.read_bytes()
    again = run(f"support-bundle {path}")
    assert (again.exit_code, path.read_bytes()) == (2, before)


def test_redaction_reaches_nested_values():
    assert redacted([{"spec": {"payload": "x", "type": "t", "headers": {}}}]) == [
        {"spec": {"payload": REDACTED, "type": "t", "headers": {}}}
    ]


# ----------------------------------------------------------------------------------- top and bench


def statistics(now_ms, **counts):
    tubes = [
        TubeStatistics.of(
            tube_service_pb2.TubeStatistics(
                tube=name, calls=tube_service_pb2.TubeStatistics.Calls(put=put)
            )
        )
        for name, put in counts.items()
    ]
    return Statistics(tubes=tuple(tubes), total=tubes[0], now_ms=now_ms, revision=1, tube_count=1)


def test_rates_are_differences_per_second_of_the_cluster():
    rows = rows_of(statistics(1_000, a=10, b=5), statistics(3_000, a=30, b=105, c=7))
    assert [(row.name, row.put) for row in rows] == [("a", 10.0), ("b", 50.0), ("c", 0.0)]
    assert [row.put for row in rows_of(None, statistics(1, b=1, a=2))] == [0.0, 0.0]


def test_top_shows_the_tubes_a_number_of_times(own, run):
    done = run("top --count 2 --interval 10ms")
    assert done.exit_code == 0
    assert done.stdout.count("PUT/S") == 2
    assert own.name[:20] in done.stdout


def test_top_without_a_terminal_needs_a_count(calls, run):
    assert run("top").exit_code == 2
    assert run("top --count 1 --interval 0s").exit_code == 2
    assert not calls.calls


def test_percentiles_and_histogram_of_latencies():
    measured = Measurement("put", 100, 2.0, [float(n) for n in range(1, 101)])
    value = measured.value()
    assert (value["p50_ms"], value["p99_ms"], value["max_ms"]) == (50.0, 99.0, 100.0)
    assert value["tasks_per_second"] == 50.0
    assert value["histogram"] == {
        "1": 1,
        "2": 1,
        "4": 2,
        "8": 4,
        "16": 8,
        "32": 16,
        "64": 32,
        "128": 36,
    }
    assert Measurement("put").value()["max_ms"] == 0.0


def test_a_benchmark_counts_every_task_and_leaves_no_tube(taskraft, run):
    done = run("bench --tasks 250 --batch 100 --clients 2 -o json")
    assert done.exit_code == 0, done.output
    assert [(each["name"], each["tasks"]) for each in json.loads(done.stdout)] == [
        ("put", 250),
        ("take", 250),
        ("ack", 250),
    ]
    assert taskraft.client.list_tubes(["bench-*"]) == []
