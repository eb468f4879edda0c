"""Changes of selected tasks, their preview, explanations and completion, on a node in memory."""

import json
import subprocess
import uuid

import pytest
from click.shell_completion import ShellComplete

from taskraft.cli import main


@pytest.fixture
def own(node, run, monkeypatch, real_client):
    """Return a new tube of the real node, to which the command line talks."""
    monkeypatch.setenv("TASKRAFT_TARGET", node.target)
    name = f"tube-{uuid.uuid4().hex}"
    real_client.create_tube(name, "utubettl")
    return real_client.tube(name)


def explained(run, tube, task_id):
    (value,) = json.loads(run(f"task explain {tube.name} {task_id} -o json").stdout)
    return [cause["cause"] for cause in value["causes"]]


@pytest.mark.cluster
def test_a_preview_counts_and_changes_nothing(own, run):
    own.put_many([f"{n}" for n in range(12)])
    own.bury([1, 2, 3])
    for line, count in [
        (f"kick {own.name} 2 --dry-run", 2),
        (f"kick {own.name} --where 'id > 1' --dry-run", 2),
        (f"delete {own.name} --where 'id > 2' --dry-run", 10),
        (f"delete {own.name} 1 2 --dry-run", 2),
        (f"task restart {own.name} --where 'id > 0' --dry-run", 3),
        (f"task cancel {own.name} --where 'id > 0' --dry-run", 12),
        (f"task move {own.name} 1 --to x --dry-run", 1),
        (f"task redrive {own.name} --dry-run", 0),
    ]:
        done = run(f"{line} -o json")
        assert done.exit_code == 0, done.output
        (value,) = json.loads(done.stdout)
        assert (value["dry_run"], value["count"]) == (True, count), line
        assert len(value["sample"]) == min(count, 10)
    assert [task.state for task in own.list()] == ["BURIED"] * 3 + ["READY"] * 9
    assert run(f"delete {own.name} 99 --dry-run").exit_code == 3


@pytest.mark.cluster
def test_tasks_are_kicked_and_deleted_by_a_filter(own, run):
    own.put_many([f"{n}" for n in range(4)])
    own.bury([1, 2])
    assert run(f"kick {own.name} --where 'id = 2'").stdout == "1 kicked\n"
    refused = run(f"delete {own.name} --where 'id > 2'", input="")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert run(f"delete {own.name} --where 'id > 2' --yes").stdout == "2 deleted\n"
    assert [task.id for task in own.list()] == [1, 2]


@pytest.mark.parametrize(
    "line",
    [
        "kick emails 2 --id 1",
        "kick emails --id 1 --where 'id = 1'",
        "delete emails",
        "delete emails 1 --where 'id = 1'",
        "task restart emails",
        "task move emails --to other",
    ],
)
def test_a_contradictory_selection_is_a_usage_error_without_a_call(cluster, run, line):
    done = run(line)
    assert (done.exit_code, done.stdout) == (2, "")
    assert not cluster.calls


@pytest.mark.cluster
def test_the_delivery_of_a_task_is_explained(own, run, real_client):
    first, second = own.put_many(["a", "b"], subqueue="s")
    delayed = own.put("c", delay="1h")
    held = own.put("d", depends_on=[f"{own.name}/{first}"])
    assert explained(run, own, first) == ["NO_CONSUMER"]
    assert explained(run, own, delayed) == ["DELAYED"]
    assert explained(run, own, held) == ["DEPENDENCIES"]
    task = own.take(wait=0)
    assert explained(run, own, first) == ["TAKEN"]
    assert explained(run, own, second) == ["SUBQUEUE_BUSY", "CONSUMERS_BUSY"]
    real_client.update_tube(own.name, take_paused=True, concurrency=1, rate_per_second=5)
    assert explained(run, own, second) == [
        *("TAKES_PAUSED", "CONCURRENCY", "SUBQUEUE_BUSY", "CONSUMERS_BUSY", "RATE"),
    ]
    task.bury("broken")
    assert explained(run, own, first) == ["BURIED"]
    assert "taskraft kick" in run(f"task explain {own.name} {first}").stdout
    assert run(f"task explain {own.name} 99").exit_code == 3
    real_client.groups.create(f"group-{own.name}")
    grouped = own.put("e", group=f"group-{own.name}")
    assert explained(run, own, grouped) == ["GROUP_HELD"]


@pytest.mark.cluster
def test_a_tube_is_shown_with_its_counts(own, run):
    own.put("a")
    (value,) = json.loads(run(f"tube show {own.name} -o json").stdout)
    assert (value["name"], value["statistics"]["tasks"]["ready"]) == (own.name, 1)
    lines = dict(
        line.split(maxsplit=1) for line in run(f"tube show {own.name}").stdout.splitlines()
    )
    assert (lines["kind"], lines["subqueue_concurrency"]) == ("utubettl", "1")
    assert run("tube show missing").exit_code == 3
    assert run("tube show 'tube-*'").exit_code == 3


def completed(words, incomplete):
    """Return the completions of a word."""
    found = ShellComplete(main, {}, "taskraft", "_TASKRAFT_COMPLETE")
    return [item.value for item in found.get_completions(words, incomplete)]


def test_names_of_tubes_are_completed_from_the_cluster(cluster, run, blocking_client):
    blocking_client.tube("emails").put("a")
    assert completed(["tube", "show"], "em") == ["emails"]
    assert completed(["put", "-t", "127.0.0.1:1"], "em") == []
    assert completed(["peek", "-t", cluster.target], "") == ["emails"]
    assert completed(["stats", "-o"], "ya") == ["yaml"]
    assert "take" in completed([], "ta")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(run, shell):
    script = run(f"completion {shell}").stdout
    assert "_TASKRAFT_COMPLETE" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
