"""`taskraft take --exec`: options, environment and settlements, on a node in memory."""

import signal
import sys

import pytest

from taskraft import Retry, Task
from taskraft._settlement import RESULT_BYTES_MAX
from taskraft.cli import task_process
from taskraft.cli.stop_signals import StopSignals
from taskraft.cli.task_process import CommandEnd, environment_of, last_line, stop_cause
from taskraft.v1 import task_pb2

PROGRAM = sys.executable
"""A program that exists; the tests of this file do not start it."""


@pytest.fixture
def ends(monkeypatch):
    """Return the ends of the next commands, which do not run, and record the commands."""
    ends, ran = [], []

    def run_command(command, task, stop, **options):
        ran.append((command, str(task), task.payload, options))
        end = ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        if end.cause:
            signal.raise_signal(signal.SIGINT)
        return end

    monkeypatch.setattr(task_process, "run_command", run_command)
    return ends, ran


def states_of(emails):
    return [(task.state, task.attempt, task.failure) for task in emails.list()]


def test_status_0_acknowledges_and_the_output_is_stored_only_on_request(run, emails, ends):
    emails.put_many(["a", "b"])
    ends[0].extend([CommandEnd(0, output=b"x"), CommandEnd(0, output=b"y")])
    assert run(f"take emails --exec {PROGRAM} -c pass").stderr == "emails/1  acked\n"
    assert run(f"take emails --result --grace 3s --exec {PROGRAM}").exit_code == 0
    assert [(task.state, task.result) for task in emails.list()] == [("DONE", b""), ("DONE", b"y")]
    (command, task, payload, options), (_, _, _, others) = ends[1]
    assert (command, task, payload) == ((PROGRAM, "-c", "pass"), "emails/1", b"a")
    assert options == {"captures_output": False, "grace_seconds": 10}
    assert others == {"captures_output": True, "grace_seconds": 3}


def test_another_status_is_a_failed_attempt_with_the_last_line(run, taskraft, emails, ends):
    taskraft.client.update_tube("emails", retry=Retry(attempts_max=2, backoff="1m"))
    emails.put("a")
    ends[0].append(CommandEnd(3, "no such address"))
    done = run(f"take emails --exec {PROGRAM}")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "emails/1  failed: exit status 3: no such address\n"
    assert states_of(emails) == [("DELAYED", 1, "exit status 3: no such address")]


def test_a_temporary_failure_does_not_count(run, emails, ends):
    emails.put("a")
    ends[0].append(CommandEnd(75, "busy"))
    assert run(f"take emails --exec {PROGRAM}").exit_code == 1
    assert states_of(emails) == [("DELAYED", 0, "")]


def test_a_result_that_cannot_be_stored_is_rejected(run, emails, ends):
    emails.put("a")
    ends[0].append(CommandEnd(0, output=b"x" * (RESULT_BYTES_MAX + 1)))
    assert run(f"take emails --result --exec {PROGRAM}").exit_code == 1
    ((state, _, failure),) = states_of(emails)
    assert (state, failure) == ("BURIED", "the output has more than 1048576 bytes")


def test_a_signal_releases_the_task_uncounted_and_takes_no_further_task(run, emails, ends):
    emails.put_many(["a", "b"])
    before = signal.getsignal(signal.SIGINT)
    ends[0].append(CommandEnd(-15, cause="stopped by SIGINT"))
    done = run(f"take emails -n 2 --exec {PROGRAM}")
    assert (done.exit_code, done.stderr) == (130, "emails/1  released: stopped by SIGINT\n")
    assert states_of(emails) == [("READY", 0, ""), ("READY", 0, "")]
    ends[0].append(CommandEnd(-15, cause="stopped by SIGINT"))
    assert run(f"take emails --forever --exec {PROGRAM}").exit_code == 0
    assert states_of(emails) == [("READY", 0, ""), ("READY", 0, "")]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_command_that_does_not_start_leaves_its_task(run, emails, ends):
    emails.put("a")
    ends[0].append(PermissionError(13, "Permission denied"))
    done = run(f"take emails --exec {PROGRAM}")
    assert (done.exit_code, done.stderr) == (1, "error: Permission denied\n")
    assert states_of(emails) == [("READY", 0, "")]


def test_the_run_ends_after_the_maximum_or_without_a_task_in_time(run, emails, ends):
    emails.put_many(["a", "b", "c"])
    ends[0].extend([CommandEnd(0)] * 3)
    assert run(f"take emails -n 2 --exec {PROGRAM}").exit_code == 0
    assert [task.state for task in emails.list()] == ["DONE", "DONE", "READY"]
    assert run(f"take emails -n 2000 --wait 0s --exec {PROGRAM}").exit_code == 0
    done = run(f"take emails --wait 0s --exec {PROGRAM}")
    assert (done.exit_code, done.stderr) == (6, "no task in emails within 0s\n")


def test_a_lease_that_has_ended_is_told(run, emails, monkeypatch):
    def run_command(command, task, stop, **options):
        emails.snatch(task.id)
        return CommandEnd(0)

    monkeypatch.setattr(task_process, "run_command", run_command)
    emails.put("a")
    done = run(f"take emails --exec {PROGRAM}")
    assert (done.exit_code, "the lease has ended" in done.stderr) == (1, True)
    assert [task.state for task in emails.list()] == ["READY"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--exec", "Give the command"),
        ("--exec --", "Give the command"),
        ("--exec ./missing", "no program ./missing"),
        (f"--ack --exec {PROGRAM}", "--ack or --keep has no meaning"),
        (f"--keep --exec {PROGRAM}", "--ack or --keep has no meaning"),
        (f"--raw --exec {PROGRAM}", "--raw has no meaning"),
        (f"-o json --exec {PROGRAM}", "--output has no meaning"),
        (f"--forever -n 2 --exec {PROGRAM}", "--max has no meaning with --forever"),
        (f"--forever --wait 1s --exec {PROGRAM}", "--wait has no meaning with --forever"),
        ("--ack --forever", "--forever needs --exec"),
        ("--ack --result", "--result needs --exec"),
        ("--ack --grace 1s", "--grace needs --exec"),
        ("--ack ./send", "COMMAND needs --exec"),
        ("--ack -n 1001", "at most 1000 tasks"),
        (f"--exec --frobnicate -- {PROGRAM}", "No such option"),
    ],
)
def test_wrong_options_take_nothing(run, calls, words, why):
    done = run(f"take emails {words}")
    assert (done.exit_code, done.stdout, why in done.stderr) == (2, "", True), done.stderr
    assert not calls.calls


@pytest.mark.parametrize("form", ["--exec {} -n -x", "--exec -- {} -n -x", "-n 1 --exec {} -n -x"])
def test_the_words_after_the_program_belong_to_the_command(run, emails, ends, form):
    emails.put("a")
    ends[0].append(CommandEnd(0))
    assert run(f"take emails {form.format(PROGRAM)}").exit_code == 0
    assert ends[1][0][0] == (PROGRAM, "-n", "-x")


def test_the_environment_names_the_task_and_its_headers():
    spec = task_pb2.TaskSpec(headers={"trace-id": b"7", "a=b c": b"\xff", "zero": b"a\0b"})
    task = Task(task_pb2.Task(tube="emails", id=17, attempt=3, spec=spec))
    found = environment_of(task, {"HOME": "/root", "TASKRAFT_TUBE": "other"})
    assert found == {
        "HOME": "/root",
        "TASKRAFT_TUBE": "emails",
        "TASKRAFT_TASK_ID": "17",
        "TASKRAFT_ATTEMPT": "3",
        "TASKRAFT_HEADER_TRACE_ID": "7",
        "TASKRAFT_HEADER_A_B_C": "\udcff",
    }


def test_the_reason_has_the_status_and_a_bounded_line():
    assert CommandEnd(3).reason == "exit status 3"
    assert CommandEnd(-9, "oops").reason == "ended by SIGKILL: oops"
    assert CommandEnd(-34).reason in ("exit status -34", "ended by SIGRTMIN")
    assert last_line(b"first\n  second \n\n \xff\n \n") == "\ufffd"
    assert last_line(b"") == ""
    assert len(last_line(b"x" * 1_000)) == 500


def test_the_command_ends_with_the_lease_a_request_or_a_signal(emails):
    emails.put("a", ttr=60)
    task = emails.take(wait=0)
    stop = StopSignals()
    assert not stop_cause(task, stop)
    task.lease.cancel_requested()
    assert "cancellation" in stop_cause(task, stop)
    task.lease.lost()
    assert "lease" in stop_cause(task, stop)
    with stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert (stop_cause(task, stop), stop.count) == ("stopped by SIGTERM", 2)
    with pytest.raises(KeyboardInterrupt), stop.interrupting():
        pytest.fail("a signal before the block was forgotten")


@pytest.mark.parametrize("options", ["-n 2", "--wait=1s -n 2", "-n 2 --"])
def test_words_after_the_program_belong_to_the_command(run, emails, ends, options):
    emails.put_many(["a", "b", "c"])
    ends[0].extend([CommandEnd(0)] * 3)
    done = run(f"take emails --exec {options} {PROGRAM} -n 1 --result")
    assert done.exit_code == 0, done.output
    assert [command for command, *_ in ends[1]] == [(PROGRAM, "-n", "1", "--result")] * 2
