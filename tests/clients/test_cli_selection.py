"""Changes of selected tasks, their preview, explanations and completion, on a node in memory."""

import json
import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from taskraft import Client, Where, errors
from taskraft.cli import main
from taskraft.cli.progress import WorkProgress
from taskraft.cli.selection import listed, selection_of
from tests.clients.conftest import recorded


@pytest.fixture
def own(taskraft):
    """Return a tube with sub-queues."""
    taskraft.client.create_tube("own", "utubettl")
    return taskraft.client.tube("own")


def explained(run, tube, task_id):
    (value,) = json.loads(run(f"task explain {tube.name} {task_id} -o json").stdout)
    return [cause["cause"] for cause in value["causes"]]


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
        (f"task bury {own.name} --where 'id > 6' --dry-run", 6),
        (f"task update {own.name} 1 4 --priority 3 --dry-run", 2),
        (f"task snatch {own.name} --where 'id > 0' --dry-run", 0),
        (f"task switch {own.name} --where 'id > 0' --to buried --dry-run", 9),
    ]:
        done = run(f"{line} -o json")
        assert done.exit_code == 0, done.output
        (value,) = json.loads(done.stdout)
        assert (value["dry_run"], value["count"]) == (True, count), line
        assert len(value["sample"]) == min(count, 10)
    assert [task.state for task in own.list()] == ["BURIED"] * 3 + ["READY"] * 9
    assert run(f"delete {own.name} 99 --dry-run").exit_code == 3


def test_tasks_are_kicked_and_deleted_by_a_filter(own, run):
    own.put_many([f"{n}" for n in range(4)])
    own.bury([1, 2])
    assert run(f"kick {own.name} --where 'id = 2'").stdout == "1 kicked, 1 left BURIED\n"
    refused = run(f"delete {own.name} --where 'id > 2'", input="")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert run(f"delete {own.name} --where 'id > 2' --yes").stdout == "2 deleted\n"
    assert [task.id for task in own.list()] == [1, 2]


def test_a_preview_of_a_truncation_and_of_a_drop_removes_nothing(own, run):
    own.put_many(["a", "b"])
    for verb in ("truncate", "drop"):
        done = run(f"tube {verb} {own.name} --dry-run")
        assert (done.exit_code, done.stdout) == (0, f"{own.name}  2 tasks would be removed\n")
        (value,) = json.loads(run(f"tube {verb} {own.name} --dry-run -o json").stdout)
        assert (value["dry_run"], value["count"]) == (True, 2)
    assert len([*own.list()]) == 2
    assert run("tube truncate missing --dry-run").exit_code == 3


def test_a_large_selection_reports_each_of_its_calls(own):
    own.put_many(range(2_500))
    reports = []
    assert own.bury(Where("id > 0", reports.append)) == 2_500
    assert len(reports) > 1
    assert sum(reports) == 2_500
    reports.clear()
    assert own.cancel(Where("id <= 3", reports.append)) == (0, 3)
    assert reports == [3]


def test_taken_payloads_are_printed_raw(own, run):
    own.put(b"a b", subqueue="1")
    own.put(b'{"n":1}', subqueue="2")
    assert run(f"take {own.name} --max 2 --ack --raw").stdout == 'a b\n{"n":1}\n'


def test_tasks_are_buried_changed_and_taken_away(own, run):
    own.put_many(["a", "b"])
    changed = run(
        f"task update {own.name} --where 'id > 0' --priority -5 --payload '{{\"n\": 1}}' --yes"
    )
    assert changed.stdout == "2 changed\n"
    first = own.peek(1)
    assert (first.priority, first.json()) == (-5, {"n": 1})
    assert run(f"task update {own.name} 1 --delay 1h").stdout == "1 changed\n"
    assert run(f"task bury {own.name} 1 --reason outage").stdout == "1 buried\n"
    assert (own.peek(1).state, own.peek(1).failure) == ("BURIED", "outage")
    task = own.take(wait=0)
    assert run(f"task snatch {own.name} {task.id}").stdout == "1 taken away\n"
    assert own.peek(task.id).state == "READY"
    with pytest.raises(errors.LeaseStale):
        task.ack()
    nothing = run(f"task update {own.name} 1")
    assert (nothing.exit_code, "at least one option" in nothing.stderr) == (2, True)


@pytest.mark.real_time
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


def test_the_delivery_of_a_task_is_explained(own, run, taskraft):
    first, second = own.put_many(["a", "b"], subqueue="s")
    delayed = own.put("c", delay="1h")
    held = own.put("d", depends_on=[f"{own.name}/{first}"])
    assert explained(run, own, first) == ["NO_CONSUMER"]
    assert explained(run, own, delayed) == ["DELAYED"]
    assert explained(run, own, held) == ["DEPENDENCIES"]
    task = own.take(wait=0)
    assert explained(run, own, first) == ["TAKEN"]
    assert explained(run, own, second) == ["SUBQUEUE_BUSY", "CONSUMERS_BUSY"]
    taskraft.client.update_tube(own.name, take_paused=True, concurrency=1, rate_per_second=5)
    assert explained(run, own, second) == [
        *("TAKES_PAUSED", "CONCURRENCY", "SUBQUEUE_BUSY", "CONSUMERS_BUSY", "RATE"),
    ]
    task.bury("broken")
    assert explained(run, own, first) == ["BURIED"]
    assert "taskraft kick" in run(f"task explain {own.name} {first}").stdout
    assert run(f"task explain {own.name} 99").exit_code == 3
    taskraft.client.groups.create(f"group-{own.name}")
    grouped = own.put("e", group=f"group-{own.name}")
    assert explained(run, own, grouped) == ["GROUP_HELD"]


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


def retry_of(run, line):
    (tube,) = json.loads(run(f"{line} -o json").stdout)
    policy = tube["options"]["retry"]
    return tuple(
        policy.get(name)
        for name in ("attempts_max", "backoff_ms", "backoff_ms_max", "jitter_percent", "exhausted")
    )


def test_an_option_of_the_retry_policy_leaves_the_others_unchanged(run, taskraft):
    default = (20, 1_000, 600_000, 20, "BURY")
    assert retry_of(run, "tube create plain") == default
    assert retry_of(run, "tube create few --attempts-max 3") == (3, *default[1:])
    assert retry_of(run, "tube create slow --backoff 9s") == (20, 9_000, *default[2:])
    assert retry_of(run, "tube update plain --attempts-max 7") == (7, *default[1:])
    changed = retry_of(run, "tube update plain --backoff-max 1h --jitter 0.5 --exhausted remove")
    assert changed == (7, 1_000, 3_600_000, 50, "REMOVE")
    assert retry_of(run, "tube create plain --ensure --backoff 2s") == (7, 2_000, *changed[2:])


@pytest.mark.parametrize("profile", ["", "tarantool", "xqueue", "t15", "rsqueue"])
@pytest.mark.parametrize("kind", ["fifo", "fifottl", "utube"])
def test_the_default_policy_is_that_of_the_server(run, profile, kind, taskraft):
    create = f"tube create {{}} --kind {kind} " + (f"--profile {profile}" if profile else "")
    changed = retry_of(run, f"{create.format('changed')} --attempts-max 3")
    assert changed == (3, *retry_of(run, create.format("default"))[1:])


def completed(words, incomplete):
    """Return the completions of a word."""
    found = ShellComplete(main, {}, "taskraft", "_TASKRAFT_COMPLETE")
    return [item.value for item in found.get_completions(words, incomplete)]


def test_names_of_tubes_are_completed_from_the_cluster(taskraft, run):
    assert completed(["tube", "show"], "em") == ["emails"]
    assert completed(["peek", "-t", "127.0.0.1:1"], "") == ["emails"]
    with taskraft.unreachable():
        assert completed(["put"], "em") == []
    assert completed(["stats", "-o"], "ya") == ["yaml"]
    assert "take" in completed([], "ta")


def test_names_of_members_sessions_and_groups_are_completed(taskraft, emails):
    for verb in ("remove", "promote", "admit", "transfer"):
        assert completed(["cluster", verb], "mem") == ["memory"]
        assert completed(["cluster", verb], "x") == []
    assert completed(["cluster", "add"], "") == []
    taskraft.client.groups.create("book-1")
    assert completed(["group", "show"], "b") == ["book-1"]
    assert completed(["group", "list"], "b") == ["book-1"]
    assert completed(["put", "emails", "x", "--group"], "b") == ["book-1"]
    emails.put("a")
    held = emails.take(wait=0)
    (session,) = taskraft.client.list_sessions()
    assert completed(["session", "show"], session.session_id[:3]) == [session.session_id]
    held.ack()


IDS = [str(number) for number in range(1, 51)]


@pytest.mark.parametrize(
    "words",
    [
        *(("delete", "emails"), ("peek", "emails", "1"), ("kick", "emails", "--id")),
        *(("task", verb, "emails") for verb in ("show", "explain", "move", "wait", "redrive")),
    ],
)
def test_the_ids_of_the_first_tasks_of_a_tube_are_completed(taskraft, emails, words):
    emails.put_many(["a"] * 60)
    calls = recorded(taskraft._inner)
    assert completed([*words], "") == IDS
    assert completed([*words], "4") == [each for each in IDS if each.startswith("4")]
    assert len(calls.calls) == 2, "a completion makes one call"
    assert all(request.payload_omit for request in calls.requests("ListTasks"))


@pytest.mark.parametrize("tube", ["nowhere", "emails/1", "-"])
def test_ids_of_a_tube_that_is_not_named_are_not_completed(emails, tube):
    emails.put("a")
    assert completed(["task", "show", tube], "") == []


def test_contexts_are_completed_for_the_option_too(tmp_path, monkeypatch, run):
    monkeypatch.setenv("TASKRAFT_CONTEXT_FILE", str(tmp_path / "contexts.json"))
    run("context add local 127.0.0.1:7401")
    run("context add other 127.0.0.1:7402")
    for words in (["--context"], ["stats", "--context"], ["context", "use"]):
        assert completed(words, "lo") == ["local"]


@pytest.mark.parametrize(
    "words",
    [
        *(["tube", "show"], ["schedule", "show"], ["group", "show"], ["cluster", "remove"]),
        *(["session", "show"], ["task", "show", "emails"]),
    ],
)
@pytest.mark.parametrize("options", [[], ["--timeout", "1h"]])
def test_a_completion_has_500_ms_and_prints_no_error(
    taskraft, emails, words, options, monkeypatch, capsys
):
    given = []

    class Timed(Client):
        def __init__(self, *args, timeout, **more):
            given.append(timeout)
            super().__init__(*args, timeout=timeout, **more)

    monkeypatch.setattr("taskraft.Client", Timed)
    with taskraft.unreachable():
        assert completed([*options, *words], "") == []
        assert completed([*words, *options], "") == []
    assert given == [0.5, 0.5]
    assert capsys.readouterr() == ("", "")


@pytest.mark.real_time
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(run, shell):
    script = run(f"completion {shell}").stdout
    assert "_TASKRAFT_COMPLETE" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("shell", "line", "found"),
    [
        ("bash", {"COMP_WORDS": "taskraft tube show em", "COMP_CWORD": "3"}, "plain,emails"),
        ("zsh", {"COMP_WORDS": "taskraft tube show em", "COMP_CWORD": "3"}, "plain\nemails\n_"),
        ("fish", {"COMP_WORDS": "taskraft tube show em", "COMP_CWORD": "em"}, "plain"),
    ],
)
def test_each_shell_gets_the_names_of_the_cluster(cluster, blocking_client, shell, line, found):
    blocking_client.tube("emails").put("a")
    done = subprocess.run(
        [sys.executable, "-m", "taskraft"],
        env={
            **os.environ,
            **line,
            "TASKRAFT_TARGET": cluster.target,
            "_TASKRAFT_COMPLETE": f"{shell}_complete",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert found in done.stdout
    assert "emails" in done.stdout
    assert done.stderr == ""


@pytest.mark.real_time
def test_the_script_for_bash_registers_the_completion(run):
    script = run("completion bash").stdout
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\ncomplete -p taskraft"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().endswith("taskraft")


def test_a_change_by_filter_reports_the_examined_ids(own, monkeypatch):
    seen = []
    monkeypatch.setattr(WorkProgress, "is_possible", True)
    monkeypatch.setattr(WorkProgress, "examined", lambda _self, part: seen.append(part))
    own.put_many(["x"] * 2_500)
    with selection_of(own, (), "id > 0", "deleting") as selection:
        assert own.delete(selection) >= 2_500
    assert seen == sorted(seen)
    assert len(seen) >= 2
    assert all(0 < part < 1 for part in seen)


def test_a_list_by_filter_reports_the_examined_ids(own, monkeypatch):
    seen = []
    monkeypatch.setattr(WorkProgress, "is_possible", True)
    monkeypatch.setattr(WorkProgress, "examined", lambda _self, part: seen.append(part))
    own.put_many(["x"] * 4)
    assert len(list(listed(own, "id > 1", "counting"))) == 3
    assert seen == [0.5, 0.75]


def test_tasks_are_counted_without_being_read(run, emails, calls):
    emails.put_many(["1", "2", "3"], type="mail")
    emails.put("4", type="sms")
    assert run("task count emails").stdout == "4\n"
    done = run("task count emails --where 'type = mail' -o json")
    assert json.loads(done.stdout) == [{"tube": "emails", "count": 3}]
    assert run("task count emails --where 'type ='").exit_code == 2
    assert not calls.requests("ListTasks")


def test_the_graph_of_a_task_shows_both_directions(run, emails):
    first = emails.put("1", type="mail")
    second = emails.put("2", depends_on=[first])
    done = run(f"task graph emails {first}")
    assert done.stdout.splitlines() == [
        f"emails/{first}  READY  mail",
        "waits for no task",
        "is awaited by:",
        f"  emails/{second}  HELD",
    ]
