"""Malformed trace files are refused with the position of the error."""

import json
from pathlib import Path

import pytest

from tests.oracle.__main__ import main
from tests.oracle.renaming import renamed
from tests.oracle.stretching import stretched
from tests.oracle.trace import Outcome, Step, Trace, TraceUnreadable, read_trace, traces_below

PUT = {"i": 0, "session": "A", "op": "put", "args": {"tube": "q", "data": 1}, "result": None}


def written(folder, *steps, **header):
    content = {
        "format": 1, "name": "one", "config": {"ttr": 0}, "timed": False, "quirks": ["id_reuse"],
        "steps": list(steps), **header,
    }  # fmt: skip
    path = folder / "one.json"
    path.write_text(json.dumps(content))
    return path


def test_a_trace_is_read_with_all_fields_of_its_steps(tmp_path):
    events = [["put", "t1", "READY"]]
    later = {**PUT, "i": 1, "async": "w1", "quirk": "id_reuse", "events": events}
    failed = {**PUT, "i": 2}
    del failed["result"]
    failed["error"] = {"class": "NOT_FOUND", "message": "whatever"}
    trace = read_trace(written(tmp_path, PUT, later, failed))
    assert [step.operation for step in trace.steps] == ["put"] * 3
    assert trace.steps[1].handle == "w1"
    assert trace.steps[1].quirk == "id_reuse"
    assert trace.steps[1].outcome.events == (("put", "t1", "READY"),)
    assert trace.steps[2].outcome.error == "NOT_FOUND"


@pytest.mark.parametrize(
    ("steps", "header"),
    [
        ([PUT], {"format": 2}),
        ([{**PUT, "op": "fly"}], {}),
        ([{**PUT, "error": {"class": "NOT_FOUND"}}], {}),
        ([{**PUT, "quirk": "unheard_of"}], {}),
        ([{"i": 0}], {}),
    ],
)
def test_a_malformed_trace_is_refused(tmp_path, steps, header):
    with pytest.raises(TraceUnreadable, match="one"):
        read_trace(written(tmp_path, *steps, **header))


def test_tube_names_that_the_contract_does_not_allow_are_replaced_throughout(tmp_path):
    odd, fine = "a b", "a.b"
    steps = [
        {**PUT, "args": {"tube": odd, "data": odd}},
        {**PUT, "op": "tubes", "args": {}, "result": [fine, odd]},
        {**PUT, "op": "snapshot", "args": {"tubes": [odd]}, "result": {"tubes": {odd: {}}}},
        {**PUT, "op": "statistics", "args": {}, "result": {odd: {}, fine: {}}},
    ]
    put, tubes, snapshot, statistics = renamed(read_trace(written(tmp_path, *steps))).steps
    name = put.arguments["tube"]
    assert name not in (odd, fine)
    assert put.arguments["data"] == odd
    assert tubes.outcome.result == sorted([name, fine])
    assert snapshot.arguments["tubes"] == [name] == list(snapshot.outcome.result["tubes"])
    assert list(statistics.outcome.result) == [name, fine]


def test_a_file_that_is_not_json_is_refused(tmp_path):
    path = tmp_path / "one.json"
    path.write_text("{")
    with pytest.raises(TraceUnreadable):
        read_trace(path)


def test_traces_are_read_from_the_two_folders_only(tmp_path):
    for name in ("random", "scripted", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").touch()
    assert [path.parent.name for path in traces_below(tmp_path)] == ["scripted", "random"]


def test_the_command_skips_an_absent_folder_with_a_message(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["oracle", str(tmp_path / "nowhere")])
    assert main() == 0
    assert "skipped" in capsys.readouterr().out


def test_the_command_fails_if_the_folder_has_no_traces(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["oracle", str(tmp_path)])
    assert main() == 2


def test_a_stretched_trace_differs_only_in_its_durations():
    arguments = {"tube": "q", "options": {"ttl": 1.5, "pri": 3}, "timeout": 2}
    task = {"task": "t1", "id": 0, "ttl": 1.5, "ttr": None, "pri": 3}
    calls = {"statistics": {"calls": {"ttl": 7}}}
    snapshot = {"tubes": {"q": {**calls, "tasks": [task]}}, "sessions": []}
    steps = (
        Step(0, "A", "put", arguments, Outcome({"id": 0})),
        Step(1, "ctl", "snapshot", {"tubes": ["q"]}, Outcome(snapshot)),
    )
    put, seen = stretched(Trace(Path("x"), "x", {"ttr": 1}, True, steps), 4).steps
    assert put.arguments == {"tube": "q", "options": {"ttl": 6.0, "pri": 3}, "timeout": 8}
    tube = seen.outcome.result["tubes"]["q"]
    assert tube == {**calls, "tasks": [{**task, "ttl": 6.0}]}
