"""The command line: help, formats, exit codes, hints."""

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import grpc
import pytest
from click.testing import CliRunner

from taskraft import Client, cli
from taskraft.cli import COMMANDS, main
from taskraft.cli.output import show_duration, show_payload
from taskraft.v1 import cluster_service_pb2, task_pb2
from tests.turns import blocked_until


@pytest.fixture
def run(cluster, monkeypatch):
    monkeypatch.setenv("TASKRAFT_TARGET", cluster.target)

    def invoke(line, **options):
        return CliRunner().invoke(main, shlex.split(line), **options)

    return invoke


def commands(group=main, path=()):
    """Yield every command of this package with its path."""
    context = click.Context(group)
    for name in COMMANDS if group is main else group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = dict(commands())


def examples(command):
    lines = (command.epilog or "").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("taskraft ")]


# -------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_help_has_an_example_of_the_command_that_parses(path):
    found = examples(ALL[path])
    assert found
    for example in found:
        words = shlex.split(example.partition(" < ")[0])[1:]
        assert tuple(words[: len(path)]) == path, "an example of another command"
        command, rest = main, words
        context = click.Context(main)
        while isinstance(command, click.Group):
            command, rest = command.get_command(context, rest[0]), rest[1:]
        command.make_context(path[-1], rest)  # raises UsageError when it does not parse


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_no_help_text_is_cut_off(path):
    command = ALL[path]
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert [option.name for option in options if not option.help] == []
    if len(path) > 1:
        assert "..." not in command.get_short_help_str(64), (
            "longer than a list of commands can show"
        )


def test_a_mistyped_command_suggests_similar_commands(run):
    assert "Did you mean stats" in run("stat").output
    assert "Did you mean" not in run("xyzzy").output


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_that_asks_the_cluster_has_the_same_options(path):
    command = ALL[path]
    if isinstance(command, click.Group) or path == (
        "token",
    ):  # this command only writes a file and asks no cluster
        return
    options = {name for parameter in command.params for name in parameter.opts}
    assert "--output" in options
    if path != ("explain",):
        assert {"--target", "--timeout"} <= options


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_help_of_a_group_and_of_its_commands_is_shown(run, path):
    done = run(f"{' '.join(path)} --help")
    assert done.exit_code == 0
    assert "Example" in done.stdout


def test_the_command_list_has_the_help_of_each_command(run):
    done = run("--help")
    assert done.exit_code == 0
    for name, lazy in COMMANDS.items():
        assert name in done.stdout
        assert lazy.help in done.stdout
        assert ALL[(name,)].get_short_help_str(100).rstrip(".").split()[0] == lazy.help.split()[0]
    assert "Exit codes" in done.stdout


def test_the_version_is_shown(run):
    assert run("--version").stdout == "taskraft 0.1.0\n"


# --------------------------------------------------------------------------------------------- put


def test_a_task_is_put_with_its_options(cluster, run):
    done = run(
        """put emails '{"to": "a"}' --priority 5 --delay 10s --ttl 1h --header a=b=c --key k"""
    )
    assert (done.exit_code, done.stdout) == (0, "emails/1  DELAYED\n")
    (spec,) = cluster.requests("PutTasks")[0].tasks
    assert spec == task_pb2.TaskSpec(
        payload=b'{"to": "a"}',
        content_type="application/json",
        priority=5,
        delay_ms=10_000,
        ttl_ms=3_600_000,
        headers={"a": b"b=c"},
        unique_key=["k"],
    )


def test_a_payload_that_is_not_json_is_text(cluster, run):
    assert run("put emails hello").stdout == "emails/1  READY\n"
    assert cluster.requests("PutTasks")[0].tasks[0].content_type.startswith("text/plain")


def test_the_whole_input_is_one_payload_without_an_argument(cluster, run):
    assert run("put emails", input=b"\xff\xfe").exit_code == 0
    (spec,) = cluster.requests("PutTasks")[0].tasks
    assert (spec.payload, spec.content_type) == (b"\xff\xfe", "")


def test_lines_of_json_become_one_task_each(cluster, run):
    done = run("put emails -", input='{"n": 1}\n\n{"n": 2}\n')
    assert done.stdout == "emails/1  READY\nemails/2  READY\n"
    assert [spec.payload for spec in cluster.requests("PutTasks")[0].tasks] == [
        b'{"n": 1}',
        b'{"n": 2}',
    ]


def test_many_lines_are_summed_up(run):
    done = run("put emails -", input="1\n" * 20)
    assert done.stdout == "emails/1 to emails/20: 20 tasks\n"


def test_a_line_that_is_not_json_is_a_usage_error_with_its_number(run):
    done = run("put emails -", input='{"n": 1}\nno\n')
    assert done.exit_code == 2
    assert "line 2" in done.stderr


@pytest.mark.parametrize("line", ["put", "put emails a --delay soon", "put emails a --header x"])
def test_wrong_usage_exits_with_2(run, line):
    assert run(line).exit_code == 2


def test_json_output_uses_the_field_names_of_the_api(run):
    (task,) = json.loads(run("put emails a -o json").stdout)
    assert task == {"tube": "emails", "id": "1", "state": "READY"}
    assert json.loads(run("put emails a --group g -o jsonl").stdout) == {
        "tube": "emails",
        "id": "2",
    }


# -------------------------------------------------------------------------------- take and settle


def test_a_task_is_taken_and_acknowledged(cluster, run):
    run("put emails hello")
    done = run("take emails --wait 0s --ack")
    assert (done.exit_code, done.stdout) == (0, "emails/1  hello   lease without TTR   token 1\n")
    assert cluster.state.tasks["emails"][1].state == task_pb2.Task.DONE


def test_a_kept_task_is_settled_by_its_token(cluster, run):
    run("put emails -", input="1\n2\n3\n")
    assert run("take emails --max 3 --keep -o jsonl").stdout.count("\n") == 3
    assert run("ack 1 --result done").stdout == "token 1  acked\n"
    assert run("release 2 --delay 30s --reason 'not now'").stdout == "token 2  released\n"
    assert run("bury 3 --reason broken").stdout == "token 3  buried\n"
    assert cluster.states() == [task_pb2.Task.DONE, task_pb2.Task.READY, task_pb2.Task.BURIED]


def test_no_task_in_time_exits_with_6(run):
    done = run("take emails --wait 0s --ack")
    assert (done.exit_code, done.stdout, done.stderr) == (6, "", "no task in emails within 0s\n")


def test_take_without_a_terminal_needs_ack_or_keep(cluster, run):
    done = run("take emails", input="")
    assert done.exit_code == 2
    assert "--ack or --keep" in done.stderr
    assert not cluster.calls, "nothing is taken"


@pytest.mark.parametrize(
    ("answer", "told", "state"),
    [
        ("", "acked", task_pb2.Task.DONE),
        ("y", "acked", task_pb2.Task.DONE),
        ("r", "released", task_pb2.Task.READY),
        ("b", "buried", task_pb2.Task.BURIED),
        ("n", "taskraft ack 1", task_pb2.Task.TAKEN),
    ],
)
def test_take_asks_on_a_terminal(cluster, blocking_client, answer, told, state):
    blocking_client.tube("emails").put("hello")
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "taskraft", "take", "emails", "-t", cluster.target]
    child = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    seen = b""
    while b"Ack it?" not in seen:
        seen += os.read(controller, 1_000)
    os.write(controller, answer.encode() + b"\n")
    while told.encode() not in seen:
        seen += os.read(controller, 1_000)
    assert child.wait(20) == 0
    os.close(controller)
    assert b"emails/1  hello" in seen
    assert cluster.state.tasks["emails"][1].state == state


# ---------------------------------------------------------------------------------- other commands


def test_tasks_are_shown_kicked_and_deleted(blocking_client, run):
    blocking_client.tube("emails").put_many(["a", "b", "c"])
    blocking_client.tube("emails").take(wait=0).bury("broken")
    peeked = run("peek emails 1")
    assert peeked.stdout.splitlines()[0].split() == [
        "ID",
        "STATE",
        "ATTEMPT",
        "PRIORITY",
        "PAYLOAD",
        "ERROR",
    ]
    assert peeked.stdout.splitlines()[1].split() == ["emails/1", "BURIED", "1", "0", "a", "broken"]
    assert json.loads(run("peek emails 1 2 -o json").stdout)[1]["id"] == "2"
    assert run("kick emails 10").stdout == "1 kicked\n"
    assert len(run("task list emails --limit 2 -o jsonl").stdout.splitlines()) == 2
    assert run("delete emails 2 3").stdout == "2 deleted\n"
    missing = run("delete emails 2 3")
    assert missing.exit_code == 3
    assert "item 0: TASK_NOT_FOUND" in missing.stderr


def test_tubes_are_created_listed_counted_and_dropped(cluster, blocking_client, run):
    blocking_client.tube("emails").put("a")
    assert (
        run("tube create emails --kind fifo --ttr 1m --on-ack keep --if-not-exists").exit_code == 0
    )
    request = cluster.requests("CreateTube")[0]
    assert (request.tube.kind, request.tube.options.ttr_ms, request.if_not_exists) == (
        1,
        60_000,
        True,
    )
    assert run("tube create scratch --durability temporary").exit_code == 0
    assert cluster.requests("CreateTube")[1].tube.options.durability == 2
    assert run("tube list").stdout.splitlines()[1].split()[:2] == ["emails", "FIFOTTL"]
    assert run("stats").stdout.splitlines()[1].split()[:2] == ["emails", "1"]
    assert json.loads(run("stats emails -o jsonl").stdout)["tasks"]["buried"] == "0"
    assert run("stats nope").exit_code == 3
    assert run("tube drop emails", input="").exit_code == 2
    assert run("tube drop emails --yes").stdout == "emails  dropped with 3 tasks\n"


def test_the_cluster_is_shown(run):
    done = run("cluster status")
    assert done.stdout.splitlines()[0].split()[:3] == ["ID", "NODE", "ROLE"]
    assert "n1" in done.stdout
    assert "tolerates 0 down" in done.stdout
    assert json.loads(run("cluster status -o json").stdout)[0]["cluster_id"] == "c1"


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("feed tail --from-start --no-follow", 3),
        ("feed tail -n 2", 2),
        ("feed tail -n 2 -o table", 2),
    ],
)
def test_the_feed_is_followed_line_by_line(run, line, lines):
    done = run(line)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == lines


def test_a_cluster_without_a_leader_says_how_many_voters_it_needs(run, monkeypatch):
    state = cluster_service_pb2.GetClusterStateResponse(node="n1")
    for name in ("n1", "n2", "n3"):
        state.members.add(name=name, suffrage=cluster_service_pb2.Member.VOTER, joined=True)
    monkeypatch.setattr(Client, "cluster_state", lambda _: state)
    assert "no leader: 2 of 3 voters must be up; answered by n1" in run("cluster status").stdout


def test_an_error_is_explained(run):
    assert "do not retry" in run("explain lease_stale").stdout
    assert "LEASE_STALE" in run("explain").stdout
    assert json.loads(run("explain LEASE_STALE -o json").stdout)["code"] == "FAILED_PRECONDITION"
    assert len(run("explain -o jsonl").stdout.splitlines()) == len(
        json.loads(run("explain -o json").stdout)
    )
    assert run("explain NONSENSE").exit_code == 3


# ---------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("reason", "code", "exit_code"),
    [
        ("INTERNAL_ERROR", grpc.StatusCode.INTERNAL, 1),
        ("INVALID_FIELD", grpc.StatusCode.INVALID_ARGUMENT, 2),
        ("TUBE_NOT_FOUND", grpc.StatusCode.NOT_FOUND, 3),
        ("KEY_TAKEN", grpc.StatusCode.ALREADY_EXISTS, 4),
        ("WRONG_STATE", grpc.StatusCode.FAILED_PRECONDITION, 4),
        ("TUBE_PAUSED", grpc.StatusCode.UNAVAILABLE, 5),
        ("TUBE_FULL", grpc.StatusCode.RESOURCE_EXHAUSTED, 5),
    ],
)
def test_a_refusal_is_one_line_with_a_hint_and_an_exit_code(cluster, run, reason, code, exit_code):
    wrong = [("tube", "is malformed"), ("tasks", "are missing")]
    violations = wrong if reason == "INVALID_FIELD" else ()
    cluster.refuse("PutTasks", reason, code, violations=violations)
    done = run("put emails a")
    assert done.exit_code == exit_code
    *told, last = done.stderr.splitlines()
    whole = [f"error: {reason}: refused: {reason}"]
    assert told == [f"error: {reason}: {f}: {text}" for f, text in violations] or told == whole
    assert last.startswith("hint:  ")


def test_an_unreachable_cluster_exits_with_5_and_a_hint(run):
    done = run("put emails a -t 127.0.0.1:1 --timeout 1s")
    assert done.exit_code == 5
    assert "taskraft dev" in done.stderr


def test_a_call_that_takes_too_long_exits_with_6(cluster, run):
    cluster.hold_puts()
    done = run("put emails a --timeout 100ms")
    cluster.let_puts_go()
    assert done.exit_code == 6


MAIN = """
import signal
from taskraft.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
main(prog_name="taskraft")
"""


def started(cluster, line, **options):
    """Start the command in its own process."""
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *shlex.split(line), "-t", cluster.target],
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_ctrl_c_exits_with_130_and_without_output(cluster):
    with started(cluster, "take emails --wait 1h --ack") as taking:
        blocked_until(lambda: cluster.asked("TakeTasks"))
        taking.send_signal(signal.SIGINT)
        assert taking.wait(30) == 130
        assert taking.stderr.read() == "\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_for_the_output_is_reported_in_one_line(cluster, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with (
        Path("/dev/full").open("w") as full,
        started(cluster, "put emails a", stdout=full, env=environment) as put,
    ):
        assert put.wait(30) == 1
        assert put.stderr.read() == "error: No space left on device\n"


def test_a_closed_pipe_prints_no_error(cluster, blocking_client):
    blocking_client.tube("emails").put_many("x" * 500 for _ in range(1_000))
    with started(cluster, "take emails --max 1000 --keep", stdout=subprocess.PIPE) as taking:
        assert taking.stdout.readline().startswith("emails/1 ")
        taking.stdout.close()
        taking.wait(30)
        assert taking.stderr.read() == ""


def test_lines_of_a_table_end_with_their_last_word(run):
    run("put emails a")
    lines = run("stats").stdout.splitlines()
    assert lines
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_mistyped_command_of_a_group_suggests_similar_commands(run):
    assert "Did you mean list" in run("task lst").output


def test_a_malformed_target_is_a_usage_error(run):
    done = run("put emails a -t nowhere")
    assert done.exit_code == 2
    assert "host:port" in done.stderr


# ------------------------------------------------------------------ commands of other packages


def test_a_command_of_another_distribution_is_found_by_its_entry_point(run, monkeypatch):
    entry = EntryPoint("greet", "tests.clients.greeting:greet", cli.ENTRY_POINTS)
    monkeypatch.setattr(
        cli,
        "entry_points",
        lambda *, group, name: [entry] if (group, name) == (cli.ENTRY_POINTS, "greet") else [],
    )
    assert run("greet --name you").stdout == "hello you\n"


@pytest.mark.parametrize(
    ("name", "distribution"),
    [("serve", "taskraft-server"), ("dev", "taskraft-server"), ("pipeline", "taskraft-pipeline")],
)
def test_a_command_that_is_not_installed_says_what_to_install(run, monkeypatch, name, distribution):
    monkeypatch.setattr(cli, "entry_points", lambda **_: [])
    done = run(name)
    assert done.exit_code == 2
    assert f"pip install '{distribution}'" in done.stderr


def test_an_unknown_command_is_a_usage_error(run):
    assert run("frobnicate").exit_code == 2


# -------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (61_000, "1m1s"),
        (3_600_000, "1h"),
        (90_061_000, "1d1h"),
    ],
)
def test_a_duration_is_shown_with_two_units_at_most(duration_ms, text):
    assert show_duration(duration_ms) == text


def test_any_payload_is_shown_on_one_line():
    assert show_payload(b"a\nb\x1b[31m") == "a b [31m"
    assert show_payload(b"\xff\x00") == "ff00"
    assert show_payload(b"x" * 100, 10) == "x" * 9 + "…"
