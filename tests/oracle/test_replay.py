"""A timed trace is repeated more slowly before it counts as different."""

import json

import pytest

from tests.oracle import replay
from tests.oracle.player import TooSlow


@pytest.fixture
def trace(tmp_path):
    def make(**fields):
        path = tmp_path / "t.json"
        sleep = {"i": 0, "session": "ctl", "op": "sleep", "args": {"seconds": 3}, "result": None}
        whole = {"format": 1, "config": {}, "timed": True, "steps": [sleep], **fields}
        path.write_text(json.dumps({"name": "t", "kind": "scripted", "quirks": [], **whole}))
        return path

    return make


def played(monkeypatch, path, *verdicts):
    """Return the differences of a trace whose runs end as given, and how long each run slept."""
    left, slept = list(verdicts), []

    def differences(trace, _host):
        slept.append(trace.steps[0].arguments["seconds"])
        verdict = left.pop(0)
        if verdict is TooSlow:
            raise TooSlow("late")
        return verdict

    monkeypatch.setattr(replay, "_differences", differences)
    return replay.replay(path, None), slept


def test_a_timed_trace_that_differs_is_repeated_more_slowly(monkeypatch, trace):
    assert played(monkeypatch, trace(), ["late"], ["late"], []) == ([], [3, 6, 12])
    assert played(monkeypatch, trace(), ["a"], ["b"], ["c"]) == (["c"], [3, 6, 12])


def test_an_untimed_trace_runs_once(monkeypatch, trace):
    assert played(monkeypatch, trace(timed=False), ["wrong"]) == (["wrong"], [3])


def test_a_run_that_missed_a_time_is_repeated_and_not_judged(monkeypatch, trace):
    found = played(monkeypatch, trace(), TooSlow, TooSlow, ["late"], [])
    assert found == ([], [3, 3, 6, 12])
    verdicts = [TooSlow] * len(replay.PACES)
    found, slept = played(monkeypatch, trace(), *verdicts)
    assert found == ["too slow at every pace: late"]
    assert slept == [3 * pace for pace in replay.PACES]
