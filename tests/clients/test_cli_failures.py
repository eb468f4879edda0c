"""The command `taskraft failures`, and `failures` of the clients."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from taskraft import Client
from taskraft.v1 import tube_service_pb2


@pytest.fixture
def failed(run, taskraft):
    """Let three attempts fail for one cause, and one task of another tube end for another."""
    run("tube create mail")
    mail = taskraft.client.tube("mail")
    mail.put_many(["1", "2", "3"])
    for task in taskraft.client.take_many(["mail"], 3, wait=0):
        task.release(0, reason=TimeoutError(f"no answer from {task.id}"))
    taskraft.advance("2h")
    emails = taskraft.client.tube("emails")
    emails.put("x")
    emails.take(wait=0).bury(reason=ValueError("\x1b[Jtitle"))


def test_failures_are_shown_by_cause(run, failed):
    done = run("failures")
    assert done.exit_code == 0, done.output
    header, first, second, last = done.stdout.splitlines()
    heads = ["TUBE", "COUNT", "LAST", "FIRST", "GIVEN_UP", "FAILURE", "EXAMPLE"]
    assert header.split() == heads
    assert first.split()[:2] == ["mail", "3"]
    assert " ".join(first.split()[6:]) == "0 TimeoutError: no answer from <number> mail/3"
    assert second.split()[:2] == ["emails", "1"]
    assert second.split()[6:] == ["1", "ValueError:", r"\u001b[Jtitle", "emails/1"]
    assert last.startswith("counted by memory since ")


def test_failures_of_some_tubes_and_of_the_last_time_are_shown(run, failed):
    assert len(run("failures mail").stdout.splitlines()) == 3
    lines = run("failures --since 1h").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["emails"]
    assert run("failures mail --since 1h").stdout.startswith("No failures, counted by ")
    run("tube create quiet")
    assert (run("failures quiet").exit_code, run("failures nope").exit_code) == (0, 3)


def test_failures_are_objects_for_programs(run, failed):
    found = [json.loads(line) for line in run("failures -o jsonl").stdout.splitlines()]
    assert [(each["tube"], each["count"]) for each in found] == [("mail", 3), ("emails", 1)]
    assert isinstance(found[0]["fingerprint"], str)
    assert sum(found[0]["hours"]) == 3
    assert run("failures mail -o name").stdout == "mail/3\n"


def test_further_failures_of_a_tube_are_others(run, monkeypatch):
    answer = tube_service_pb2.ListFailuresResponse(
        failures=[tube_service_pb2.CountedFailure(tube="mail", count=7, task_id=9)]
    )
    monkeypatch.setattr(Client, "failures", lambda *_: answer)
    assert run("failures").stdout.splitlines()[1].split()[-2:] == ["others", "mail/9"]


def test_a_client_reads_the_failures_since_an_instant(taskraft, failed):
    whole = taskraft.client.failures()
    newest = max(each.last_ms for each in whole.failures)
    since = datetime.fromtimestamp(newest / 1_000, UTC)
    assert [each.tube for each in taskraft.client.failures(since=since).failures] == ["emails"]
    assert [each.tube for each in taskraft.client.failures("mail").failures] == ["mail"]
    taskraft.advance("1h")
    emails = taskraft.client.tube("emails")
    emails.put("y")
    emails.take(wait=0).bury(reason=ValueError("another cause"))
    later = taskraft.client.failures(since=since + timedelta(minutes=30)).failures
    assert [each.message for each in later] == ["another cause"]
    with pytest.raises(ValueError, match="time zone"):
        taskraft.client.failures(since=datetime(2026, 1, 1))  # noqa: DTZ001 - the wrong value
