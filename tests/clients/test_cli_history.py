"""The commands `taskraft history` and `taskraft task history`."""

import json
import re

import pytest

from taskraft.cli.history import chart, chart_columns, squeezed


@pytest.fixture
def busy(run, taskraft):
    """Fill a tube in two minutes: puts, takes, a failure and an acknowledgement."""
    run("tube create mail")
    handle = taskraft.client.tube("mail")
    handle.put_many(["1", "2", "3"])
    sampled(taskraft, "20s")
    task = handle.take()
    task.release(0, reason="Timeout")
    sampled(taskraft, "1m")
    task = handle.take()
    task.ack()
    sampled(taskraft, "40s")
    return handle


def sampled(taskraft, duration):
    """Let time pass, and take a sample: the node in memory takes none by itself."""
    taskraft.advance(duration)
    for _ in taskraft._inner._backend.node.components.sampler.sample():
        pass


def test_the_history_of_a_tube_is_drawn(run, busy):
    done = run("history mail")
    assert done.exit_code == 0, done.output
    title, header, *lines = done.stdout.splitlines()
    assert re.match(r"mail on \S+: .* to .*, \d+ samples, 10s apart", title)
    assert header.split() == ["MAX", "LAST", "CHART"]
    shown = {line[:18].strip(): line[18:].split(maxsplit=2) for line in lines}
    assert shown["ready"][:2] == ["3", "2"]
    assert "▇" in shown["ready"][2] or "█" in shown["ready"][2]


def test_samples_are_objects_for_programs(run, busy):
    found = [json.loads(line) for line in run("history mail -o jsonl").stdout.splitlines()]
    assert {each["tube"] for each in found} == {"mail"}
    assert [each["at_ms"] for each in found] == sorted(each["at_ms"] for each in found)
    assert sum(each["ack"] or 0 for each in found) == 1
    assert found[-1]["ready"] == 2
    total = [json.loads(line) for line in run("history --since 30s -o jsonl").stdout.splitlines()]
    assert ([each["tube"] for each in total], total[-1]["ready"]) == ([""] * 3, 2)


def test_a_wrong_time_or_tube_is_refused(run):
    assert (run("history mail --since 25h").exit_code, run("history nope").exit_code) == (2, 3)
    assert "No samples yet" in run("history emails").stdout


@pytest.mark.parametrize(
    ("values", "columns", "expected"),
    [
        ([], 4, []),
        ([1, 2], 4, [1, 2]),
        ([1, None, 3, 2, None, None], 3, [1, 3, None]),
        ([5, 1, 1, 1, 9], 2, [5, 9]),
    ],
)
def test_neighbours_are_joined_by_their_largest_value(values, columns, expected):
    assert squeezed(values, columns) == expected


def test_a_chart_has_a_bar_for_each_value():
    assert chart([0, 1, None, 50, 100]) == "▁▂ ▅█"
    assert chart([0, 0]) == "▁▁"
    assert chart([]) == ""


def test_the_transitions_of_a_task_are_shown(run, busy):
    lines = run("task history mail/1").stdout.splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["PUT", "TAKE", "RELEASE", "TAKE", "ACK"]
    assert "Timeout" in lines[3]
    assert "20s" in lines[2]


def test_the_transitions_of_a_removed_task_are_found(run, busy):
    run("delete mail/2 --yes")
    found = [json.loads(each) for each in run("task history mail 2 -o jsonl").stdout.splitlines()]
    assert [each["kind"] for each in found] == ["PUT", "DELETE"]
    newest = run("task history mail 2 -n 1").stdout.splitlines()
    assert (newest[0][:10], newest[2].split()[2]) == ("The newest", "DELETE")
    assert run("task history mail 99").exit_code == 3


def test_the_search_for_a_removed_task_begins_at_a_time(run, busy):
    run("delete mail/2 --yes")
    assert run("task history mail 2 --before 1990-01-01").exit_code == 3
    assert run("task history mail 2 --before 2200-01-01").exit_code == 0


@pytest.mark.parametrize(("terminal", "expected"), [(200, 60), (80, 51), (20, 8)])
def test_a_chart_is_not_wider_than_its_terminal(monkeypatch, terminal, expected):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(terminal))
    assert chart_columns([("oldest ready", "1,000", "26s")]) == expected
