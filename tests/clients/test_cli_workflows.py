"""The commands for operators, on a node in memory."""

import json
import shlex
import uuid

import pytest
from click.testing import CliRunner

from taskraft.cli import main


@pytest.fixture
def client(taskraft):
    return taskraft.client


@pytest.fixture
def tube(client):
    client.create_tube("work")
    return client.tube("work")


@pytest.fixture
def run(taskraft):
    def invoke(line, exit_code=0, **options):
        result = CliRunner().invoke(main, shlex.split(line), **options)
        assert result.exit_code == exit_code, result.output
        return result.output

    return invoke


def test_a_tube_is_changed_paused_and_emptied(run, tube):
    (shown,) = json.loads(run(f"tube update {tube.name} --ttr 2m --pause-takes -o json"))
    assert (shown["options"]["ttr_ms"], shown["options"]["take_paused"]) == (120_000, True)
    run(f"put {tube.name} x --type mail --position front")
    run(f"take {tube.name} --wait 0s --ack", exit_code=6)
    (shown,) = json.loads(run(f"tube update {tube.name} --resume-takes --reset ttr -o json"))
    assert "ttr_ms" not in shown["options"]
    assert "Give at least one option" in run(f"tube update {tube.name}", exit_code=2)
    assert "no option colour" in run(f"tube update {tube.name} --reset colour", exit_code=2)
    assert "give --yes" in run(f"tube truncate {tube.name}", exit_code=2)
    assert "1 tasks removed" in run(f"tube truncate {tube.name} --yes")


def test_a_tube_that_exists_is_accepted_with_a_warning_or_changed(run, tube):
    told = run(f"tube create {tube.name} --ttr 2m --if-not-exists")
    assert f"warning: the tube '{tube.name}' exists with another ttr" in told
    assert "2m" in run(f"tube create {tube.name} --ttr 2m --ensure")
    assert "warning" not in run(f"tube create {tube.name} --ttr 2m --if-not-exists")
    assert "another kind" in run(f"tube create {tube.name} --kind fifo --ensure", exit_code=4)


def test_tasks_are_waited_for_restarted_and_cancelled(run, client, tube):
    first, second = tube.put_many(["a", "b"])
    assert "TIMEOUT" in run(f"task wait {tube.name} {first} --wait 0s", exit_code=6)
    task = tube.take(wait=0)
    tube.bury(second)
    (ended,) = json.loads(run(f"task wait {tube.name} {second} -o json"))
    assert ended["outcome"] == "BURIED_OUT"
    assert "1 restarted" in run(f"task restart {tube.name} --where 'state = BURIED' --yes")
    output = run(f"task cancel {tube.name} {first} {second} --yes")
    assert "1 holders asked, 1 removed" in output
    task.touch()
    assert task.is_cancel_requested
    assert "Give either ids or a filter" in run(f"task cancel {tube.name}", exit_code=2)


def test_tasks_are_moved_and_dead_letters_are_redriven(run, client, tube):
    dead = f"dead-{uuid.uuid4()}"
    run(f"tube create {dead}")
    run(f"tube update {tube.name} --dead-letter-tube {dead}")
    tube.put_many(["a", "b"])
    for task in tube.take_many(2, wait=0):
        task.reject()
    assert "1 moved back" in run(f"task redrive {dead} 1 --delay 1h")
    assert "1 moved back" in run(f"task redrive {dead} --yes")
    assert [task.state for task in tube.list()] == ["DELAYED", "READY"]
    selected = f"{tube.name} --where 'state = DELAYED' --yes"
    line = f"task move {selected} --to {dead} --delay 0s --position front"
    (answer,) = json.loads(run(f"{line} --renew-times -o json"))
    assert answer["count"] == 1
    assert client.tube(dead).take(wait=0).text() == "a"
    assert "Give either ids or a filter" in run(f"task move {tube.name} --to {dead}", exit_code=2)


def test_a_put_with_a_key_says_what_a_conflict_does(run, tube):
    assert f"{tube.name}/1" in run(f"put {tube.name} x --key k")
    run(f"put {tube.name} x --key k", exit_code=4)
    assert f"{tube.name}/1" in run(f"put {tube.name} x --key k --on-conflict return_existing")


def test_a_schedule_is_made_paused_resumed_and_removed(run, tube):
    name = f"nightly-{uuid.uuid4()}"
    output = run(f"schedule create {name} '30 2 * * *' {tube.name} all --time-zone Europe/Vienna")
    assert "Europe/Vienna" in output
    assert "paused" in run(f"schedule pause {name}")
    assert name in run("schedule list")
    assert "paused" not in run(f"schedule resume {name}")
    assert "0 3 * * *" in run(f"schedule change {name} --cron '0 3 * * *' --overlap skip")
    (shown,) = json.loads(run(f"schedule show {name} -o json"))
    assert (shown["time_zone"], shown["overlap"]) == ("Europe/Vienna", "SKIP_OVERLAP")
    assert "at least one option" in run(f"schedule change {name}", exit_code=2)
    assert "deleted" in run(f"schedule delete {name} --yes")
    assert "SCHEDULE_NOT_FOUND" in run(f"schedule pause {name}", exit_code=3)
    output = run(f"schedule create {name} '0 61 * * *' {tube.name} all", exit_code=2)
    assert "schedule.cron: hour '61' is not a pattern of 0 to 23" in output


def test_a_group_is_shown_started_and_cancelled(run, client, tube):
    name = f"group-{uuid.uuid4()}"
    run(f"group create {name} --end {tube.name} bind --abort {tube.name} stop --only-if-processed")
    assert client.groups.get(name).end_task.spec.payload == b"bind"
    run(f"put {tube.name} x --group {name}")
    assert "HELD" in run(f"group show {name}")
    run(f"group set-end-task {name} --end {tube.name} staple")
    changed = client.groups.get(name)
    assert changed.end_task.spec.payload == b"staple"
    assert changed.abort_task is None
    assert [one.name for one in client.groups.list("group-*", states=["HELD"])].count(name) == 1
    assert name in run("group list 'group-*' --state held")
    assert name not in run("group list 'group-*' --state ended")
    assert "1" in run(f"stats {tube.name}")
    assert "STARTED" in run(f"group start {name}")
    assert "CANCELLED" in run(f"group cancel {name} --revoke --yes")
    assert "GROUP_NOT_FOUND" in run("group show nobody", exit_code=3)


def test_each_violation_is_one_line(run):
    output = run("put 'a b' x --ttl 5s", exit_code=2)
    assert output.count("not 1 to 128 characters") == 1


def test_a_task_is_shown_with_its_last_failures(run, client, tube):
    task_id = tube.put("a")
    tube.take(wait=0).release(0, reason=ValueError("no such page"))
    tube.take(wait=0).bury(reason="gave up")
    found = tube.peek(task_id)
    assert found.failed_attempts == 1
    assert [(one.attempt, str(one)) for one in found.failures] == [
        (1, "ValueError: no such page"),
        (2, "gave up"),
    ]
    assert found.created <= found.failures[0].at <= found.failures[1].at == found.since
    shown = run(f"task show {tube.name} {task_id}")
    assert "attempts         2, 1 failed" in shown
    assert "ValueError: no such page" in shown.splitlines()[-2]
    (row,) = [line for line in run(f"stats {tube.name}").splitlines() if tube.name in line]
    assert row.split()[6] == "1"
    (message,) = json.loads(run(f"task show {tube.name} {task_id} -o json"))
    assert message["failures"][0]["failure"]["type"] == "ValueError"
