"""The command line: calls, formats, exit codes, hints."""

import json
import os
import pkgutil
import pty
import re
import shlex
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from taskraft import Client, Statistics, TubeStatistics, v1
from taskraft.cli.output import STRING_FIELDS, show_duration, show_payload, to_value
from taskraft.v1 import cluster_service_pb2, feed_service_pb2, task_pb2, tube_service_pb2
from tests.turns import blocked_until

# --------------------------------------------------------------------------------------------- put


def test_a_task_is_put_with_its_options(calls, run):
    done = run(
        """put emails '{"to": "a"}' --priority 5 --delay 10s --ttl 1h --header a=b=c --key k"""
    )
    assert (done.exit_code, done.stdout) == (0, "emails/1  DELAYED\n")
    (spec,) = calls.requests("PutTasks")[0].tasks
    assert spec == task_pb2.TaskSpec(
        payload=b'{"to": "a"}',
        content_type="application/json",
        priority=5,
        delay_ms=10_000,
        ttl_ms=3_600_000,
        headers={"a": b"b=c"},
        unique_key=["k"],
    )


def test_a_put_with_a_request_id_is_repeated_without_a_second_effect(calls, run):
    line = "put emails a --request-id order-4711 --client-id"
    first, again, other = [run(f"{line} {client_id}") for client_id in ("shop", "shop", "mail")]
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert first.output == again.output != other.output
    request = calls.requests("PutTasks")[0]
    assert (request.client_id, request.request_id) == ("shop", "order-4711")


def test_lines_with_one_request_id_are_a_usage_error(calls, run):
    result = run("put emails - --request-id order-4711", input="1\n2\n")
    assert result.exit_code == 2
    assert "--request-id" in result.output
    assert calls.requests("PutTasks") == []


def test_a_payload_that_is_not_json_is_text(calls, run):
    assert run("put emails hello").stdout == "emails/1  READY\n"
    assert calls.requests("PutTasks")[0].tasks[0].content_type.startswith("text/plain")


def test_the_whole_input_is_one_payload_without_an_argument(calls, run):
    assert run("put emails", input=b"\xff\xfe").exit_code == 0
    (spec,) = calls.requests("PutTasks")[0].tasks
    assert (spec.payload, spec.content_type) == (b"\xff\xfe", "")


def test_lines_of_json_become_one_task_each(calls, run):
    done = run("put emails -", input='{"n": 1}\n\n{"n": 2}\n')
    assert done.stdout == "emails/1  READY\nemails/2  READY\n"
    assert [spec.payload for spec in calls.requests("PutTasks")[0].tasks] == [
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
    assert run("group create g").exit_code == 0
    assert json.loads(run("put emails a --group g -o jsonl").stdout) == {
        "tube": "emails",
        "id": "2",
    }


# -------------------------------------------------------------------------------- take and settle


def test_a_task_is_taken_and_acknowledged(emails, run):
    run("put emails hello")
    done = run("take emails --wait 0s --ack")
    assert (done.exit_code, done.stdout) == (0, "emails/1  hello   lease 1m   token 1\n")
    assert emails.peek(1).state == "DONE"


def test_a_yielding_consumer_says_so(emails, run, calls):
    run("put emails hello")
    assert run("take emails --wait 0s --ack --yielding --ttr 5s").exit_code == 0
    assert run("take emails --wait 0s --ack").exit_code == 6
    takes = [call.request for call in calls.calls if call.method == "TakeTasks"]
    sources = [take.sources[0].yielding for take in takes]
    assert sources == [True, False]


def test_a_kept_task_is_settled_by_its_token(emails, run):
    run("put emails -", input="1\n2\n3\n")
    assert run("take emails --max 3 --keep -o jsonl").stdout.count("\n") == 3
    assert run("ack 1 --result done --payload new").stdout == "token 1  acked\n"
    assert emails.peek(1).payload == b"new"
    assert run("release 2 --delay 30s --reason 'not now'").stdout == "token 2  released\n"
    assert run("bury 3 --reason broken").stdout == "token 3  buried\n"
    assert [task.state for task in emails.list()] == ["DONE", "DELAYED", "BURIED"]


def test_no_task_in_time_exits_with_6(run):
    done = run("take emails --wait 0s --ack")
    assert (done.exit_code, done.stdout, done.stderr) == (6, "", "no task in emails within 0s\n")


def test_take_without_a_terminal_needs_ack_or_keep(calls, run):
    done = run("take emails", input="")
    assert done.exit_code == 2
    assert "--ack or --keep" in done.stderr
    assert not calls.calls, "nothing is taken"


@pytest.mark.real_time
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
    assert cluster.states() == [state]


# ---------------------------------------------------------------------------------- other commands


def test_tasks_are_shown_kicked_and_deleted(emails, run):
    emails.put_many(["a", "b", "c"])
    emails.take(wait=0).bury("broken")
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
    assert run("delete emails 2 3 --yes").stdout == "2 deleted\n"
    missing = run("delete emails 2 3 --yes")
    assert missing.exit_code == 3
    assert "item 0: TASK_NOT_FOUND" in missing.stderr


def test_tubes_are_created_listed_counted_and_dropped(emails, taskraft, run):
    emails.put_many(["a", "b", "c"])
    line = "tube create orders --kind fifottl --ttr 1m --on-ack keep --if-not-exists"
    assert (run(line).exit_code, run(line).exit_code) == (0, 0)
    assert run("tube create scratch --durability temporary").exit_code == 0
    orders, scratch = taskraft.client.list_tubes(["orders", "scratch"])
    assert (orders.kind, orders.options.ttr_ms, orders.options.on_ack) == (
        "fifottl",
        60_000,
        "keep",
    )
    assert scratch.options.durability == "temporary"
    assert run("tube list emails").stdout.splitlines()[1].split()[:2] == ["emails", "FIFOTTL"]
    assert run("stats emails").stdout.splitlines()[1].split()[:2] == ["emails", "3"]
    assert run("stats emails").stdout.splitlines()[1].endswith("20 attempts, 1s to 10m")
    assert run("tube list emails").stdout.splitlines()[1].endswith("20 attempts, 1s to 10m")
    assert json.loads(run("stats emails -o jsonl").stdout)["tasks"]["buried"] == 0
    assert run("stats nope").exit_code == 3
    assert run("tube drop emails", input="").exit_code == 2
    assert run("tube drop emails --yes").stdout == "emails  dropped with 3 tasks\n"
    assert taskraft.client.list_tubes(["emails"]) == []


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("feed tail --from-start --no-follow", 3),
        ("feed tail --from-start -n 2", 2),
        ("feed tail --from-start -n 2 -o table", 2),
    ],
)
def test_the_feed_is_printed_line_by_line(emails, run, line, lines):
    emails.put_many(["a", "b", "c"])
    done = run(line)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == lines


@pytest.mark.taskraft(start="2027-01-01T00:00:00Z")
def test_a_feed_is_followed_until_its_next_event(emails, run):
    emails.put("a", delay="1h")
    (event,) = run("feed tail emails -n 1").stdout.splitlines()
    assert json.loads(event)["kind"] == "DELAY_DUE"


@pytest.mark.taskraft(start="2027-01-01T00:00:00Z")
def test_a_table_of_the_feed_shows_times(emails, run):
    emails.put("a")
    done = run("feed tail -n 1 --from-start -o table")
    assert done.stdout.startswith("2027-01-01 00:00:00Z  emails/1  PUT ")


@pytest.mark.parametrize("name", ["typo", "mail*"])
def test_the_feed_of_a_tube_that_does_not_exist_is_not_found(calls, emails, run, name):
    emails.put("a")
    assert run("feed tail emails -n 1 --from-start").exit_code == 0
    asked = len(calls.requests("ReadChanges"))
    done = run(f"feed tail emails {name} -n 1")
    assert (done.exit_code, done.stdout) == (3, "")
    assert f"no tube is called '{name}'" in done.stderr
    assert len(calls.requests("ReadChanges")) == asked


def test_statistics_count_done_and_zombie_tasks_apart(run, monkeypatch):
    tasks = tube_service_pb2.TubeStatistics.Tasks(done=3, zombie=5, total=8)
    of_tube = TubeStatistics.of(tube_service_pb2.TubeStatistics(tube="emails", tasks=tasks))
    answer = Statistics(tubes=(of_tube,), total=of_tube, now_ms=1, revision=1, tube_count=1)
    monkeypatch.setattr(Client, "stats", lambda *_: answer)
    header, row = (line.split() for line in run("stats").stdout.splitlines())
    shown = dict(zip(header, row, strict=False))
    assert (shown["DONE"], shown["ZOMBIE"], shown["TOTAL"]) == ("3", "5", "8")


# -------------------------------------------------------------------------------------------- JSON


def test_counts_sizes_and_times_are_numbers_in_json(emails, run):
    task_id = emails.put("a", priority=0)
    (task,) = json.loads(run(f"peek emails {task_id} -o json").stdout)
    assert (task["id"], task["spec"]["priority"]) == ("1", "0")
    assert isinstance(task["created_ms"], int)
    assert json.loads(run("feed tail -n 1 --from-start").stdout)["seq"] == "0"


def test_numbers_inside_of_lists_and_maps_follow_the_same_rule():
    state = cluster_service_pb2.GetClusterStateResponse()
    state.members.add(id=2**60, match_index=7, wall_deviation_ms=-3)
    (member,) = to_value(state)["members"]
    assert (member["match_index"], member["wall_deviation_ms"]) == ("7", -3)
    info = cluster_service_pb2.GetServerInfoResponse(limits={"call_bytes": 2**40})
    assert to_value(info)["limits"] == {"call_bytes": 2**40}
    cursor = feed_service_pb2.FeedCursor(next_seq={0: 2**60})
    assert to_value(cursor)["next_seq"] == {"0": str(2**60)}


def test_every_id_and_position_of_the_contract_is_a_string_in_json():
    wide = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
    messages = [
        kind
        for each in pkgutil.iter_modules(v1.__path__, "taskraft.v1.")
        if each.name.endswith("_pb2")
        for kind in import_module(each.name).DESCRIPTOR.message_types_by_name.values()
    ]
    for message in messages:
        messages.extend(message.nested_types)
    names = {field.name for one in messages for field in one.fields if field.cpp_type in wide}
    positions = {
        name for name in names if re.search(r"(^|_)(ids?|tokens?|revision|seq|index)$", name)
    }
    assert positions <= STRING_FIELDS
    assert not [name for name in STRING_FIELDS if name.endswith(("_ms", "bytes", "count"))]
    assert names >= STRING_FIELDS - {"next_seq"}


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
def test_a_refusal_is_one_line_with_a_hint_and_an_exit_code(calls, run, reason, code, exit_code):
    wrong = [("tube", "is malformed"), ("tasks", "are missing")]
    violations = wrong if reason == "INVALID_FIELD" else ()
    calls.refuse("PutTasks", reason, code, violations=violations)
    done = run("put emails a")
    assert done.exit_code == exit_code
    *told, last = done.stderr.splitlines()
    whole = [f"error: {reason}: refused: {reason}"]
    assert told == [f"error: {reason}: {f}: {text}" for f, text in violations] or told == whole
    assert last.startswith("hint:  ")


@pytest.mark.real_time
def test_an_unreachable_cluster_exits_with_5_and_a_hint(run_remote):
    done = run_remote("put emails a -t 127.0.0.1:1 --timeout 1s")
    assert done.exit_code == 5
    assert "taskraft dev" in done.stderr


def test_a_call_that_takes_too_long_exits_with_6(calls, run):
    calls.hold("PutTasks")
    done = run("put emails a --timeout 100ms")
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


@pytest.mark.real_time
def test_ctrl_c_exits_with_130_and_without_output(cluster):
    with started(cluster, "take emails --wait 1h --ack") as taking:
        blocked_until(lambda: cluster.asked("TakeTasks"))
        taking.send_signal(signal.SIGINT)
        assert taking.wait(30) == 130
        assert taking.stderr.read() == "\n"


@pytest.mark.real_time
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_for_the_output_is_reported_in_one_line(cluster, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with (
        Path("/dev/full").open("w") as full,
        started(cluster, "put emails a", stdout=full, env=environment) as put,
    ):
        assert put.wait(30) == 1
        assert put.stderr.read() == "error: No space left on device\n"


@pytest.mark.real_time
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
