"""The Python calls and the files of one request in a node stay within their budgets."""

import asyncio

import pytest

from tools.trace import VERBS, Step, Trace, trace

pytestmark = pytest.mark.real_time

BUDGETS = {"put": (224, 72), "take": (264, 78), "ack": (220, 68)}
"""Maximum numbers of Python calls and of files that one request runs through."""

MORE_ROUNDS = 300
"""Further rounds on a busy machine, where the log thread wakes the event loop too late for the
shortest way.
"""


@pytest.fixture(scope="module")
def traces():
    return asyncio.run(trace(rounds=30))


@pytest.mark.parametrize("verb", VERBS)
def test_a_request_stays_within_its_budget(traces, verb):
    calls_max, files_max = BUDGETS[verb]
    found = traces[verb]
    if found.size[0] > calls_max:
        found = asyncio.run(trace(rounds=MORE_ROUNDS))[verb]
    calls, files, _moves = found.size
    assert calls <= calls_max
    assert files <= files_max


def test_every_verb_is_followed_from_the_endpoint_to_the_log_thread(traces):
    for verb in VERBS:
        way = list(traces[verb].way())
        assert way[0].startswith("taskraft_service/api/")
        assert any(line.endswith("[raft]") and "/storage/" in line for line in way)


def test_calls_files_and_moves_are_counted():
    steps = [
        Step(0, "a.py", "receive", "", "MainThread"),
        Step(1, "a.py", "check", "a.py", "MainThread"),
        Step(1, "b.py", "submit", "a.py", "MainThread"),
        Step(0, "c.py", "write", "", "raft"),
    ]
    assert str(Trace(steps)) == "3 files, 4 calls, 1 moves"
    assert list(Trace(steps).way()) == [
        "a.py:receive",
        "  a.py:check",
        "  b.py:submit",
        "c.py:write  [raft]",
    ]
