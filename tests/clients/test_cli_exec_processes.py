"""`taskraft take --exec` with real commands: pipes, signals and leases."""

import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from taskraft.v1 import task_pb2

pytestmark = pytest.mark.real_time
STARTED = "echo started >&2; "


@contextmanager
def running(cluster, options, script):
    """Start `taskraft take emails` with a script of the shell, and wait until the script runs."""
    line = ["take", "emails", "-t", cluster.target, *shlex.split(options), "--exec"]
    process = subprocess.Popen(
        [sys.executable, "-m", "taskraft", *line, "sh", "-c", STARTED + script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stderr.readline() == "started\n"
            yield process
        finally:
            process.kill()


def ended(process):
    """Return the exit code and the rest of both outputs."""
    output, errors = process.stdout.read(), process.stderr.read()
    return process.wait(60), output, errors


@pytest.fixture
def emails(blocking_client):
    return blocking_client.tube("emails")


def test_a_command_gets_the_payload_and_its_output_is_the_result(cluster, emails):
    task_id = emails.put("pay\nload", headers={"trace-id": "7"})
    script = 'cat; echo " $TASKRAFT_TUBE/$TASKRAFT_TASK_ID $TASKRAFT_HEADER_TRACE_ID"'
    with running(cluster, "--result", script) as process:
        assert ended(process) == (0, "", f"emails/{task_id}  acked\n")
    assert emails.peek(task_id).result == f"pay\nload emails/{task_id} 7\n".encode()


def test_the_output_of_a_command_is_that_of_take(cluster, emails):
    emails.put("x" * 1_000_000)
    with running(cluster, "", "echo out; exec echo err >&2") as process:
        code, output, errors = ended(process)
    assert (code, output, errors.splitlines()[0]) == (0, "out\n", "err")


def test_a_failing_command_fails_its_attempt(cluster, emails):
    task_id = emails.put("a")
    with running(cluster, "", "echo no such address >&2; exit 3") as process:
        assert ended(process)[0] == 1
    assert emails.peek(task_id).failure == "exit status 3: no such address"


@pytest.mark.parametrize(
    ("number", "options", "code"),
    [(signal.SIGINT, "", 130), (signal.SIGTERM, "", 143), (signal.SIGTERM, "--forever", 0)],
)
def test_a_signal_ends_the_command_and_releases_the_task(cluster, emails, number, options, code):
    task_id = emails.put("a")
    with running(cluster, options, "sleep 3600 | sleep 3600") as process:
        process.send_signal(number)
        assert ended(process)[0] == code
    task = emails.peek(task_id)
    assert (task.state, task.attempt, task.failed_attempts) == ("READY", 0, 0)


def test_a_command_that_ignores_the_signal_is_killed(cluster, emails):
    emails.put("a")
    script = "trap '' TERM; echo deaf >&2; while :; do sleep 3600; done"
    with running(cluster, "--grace 100ms", script) as process:
        assert process.stderr.readline() == "deaf\n"
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 143
    assert cluster.states() == [task_pb2.Task.READY]


def test_a_lost_lease_ends_the_command(cluster, emails):
    task_id = emails.put("a", ttr=2)
    with running(cluster, "", "exec sleep 3600") as process:
        emails.snatch(task_id)
        code, _, errors = ended(process)
    assert (code, "the lease has ended" in errors) == (1, True)


def test_the_lease_is_extended_while_the_command_runs(cluster, emails):
    task_id = emails.put("a", ttr=2)
    with running(cluster, "", "exec sleep 3600") as process:
        first = emails.peek(task_id).message
        while emails.peek(task_id).message.lease_until_ms < first.lease_until_ms + 1_000:
            pass
        assert emails.peek(task_id).message.token == first.token
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 143
