"""The comparison finds differences in meaning and no other differences."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracle.comparison import event_differences, outcome_differences
from tests.oracle.trace import Outcome, Step


def step(index, operation, *events, quirk=None):
    return Step(index, "A", operation, {}, Outcome(None, None, events), None, quirk)


@pytest.mark.parametrize(
    ("want", "got"),
    [
        ({"task": "t1", "id": 0, "state": "READY"}, {"task": "t1", "id": 7, "state": "READY"}),
        ({"waiters": 1, "next_event_in": 0.5}, {}),
        ({"calls": {"delay": 0, "delayed": 2, "touch": 4}}, {"calls": {"delay": 2, "touch": 2}}),
        ({"ttl": 1}, {"ttl": 1.0}),
        ([1, 2], [1, 2]),
    ],
)
def test_facts_that_implementations_cannot_share_are_not_compared(want, got):
    assert outcome_differences(Outcome(want), Outcome(got)) == []


@pytest.mark.parametrize(
    ("want", "got"),
    [
        ({"task": "t1"}, {"task": "t2"}),
        ({"task": "t1"}, None),
        ({"ttr": None}, {"ttr": 60}),
        ({"pri": 1}, {}),
        ({"calls": {"take": 1, "delay": 0}}, {"calls": {"take": 2, "delay": 0}}),
        ({"calls": {"delay": 0, "delayed": 2}}, {"calls": {"delay": 1}}),
        ({"data": {"id": 1}}, {"data": {"id": 2}}),
        ({"data": [1]}, {"data": [True]}),
        (True, 1),
        ([1, 2], [1]),
    ],
)
def test_a_difference_is_found(want, got):
    if want == {"data": [1]}:
        want, got = {"x": [1]}, {"x": [True]}
    assert outcome_differences(Outcome(want), Outcome(got)) != []


def test_errors_are_compared_by_their_class():
    assert outcome_differences(Outcome(error="NOT_FOUND"), Outcome(error="NOT_FOUND")) == []
    assert outcome_differences(Outcome(error="NOT_FOUND"), Outcome(error="INVALID_ARGUMENT"))
    assert outcome_differences(Outcome(error="NOT_FOUND"), Outcome(None))
    assert outcome_differences(Outcome(None), Outcome(error="NOT_FOUND"))


def events_differ(steps, *events_by_step, diverges=()):
    got = [Outcome(None, None, events) for events in events_by_step]
    return event_differences(steps, got, diverges)


def test_a_step_and_the_sleeps_after_it_are_one_window():
    put, ready = ("put", "t1", "DELAYED"), ("delay", "t1", "READY")
    steps = [step(0, "put", put), step(1, "sleep", ready), step(2, "peek")]
    assert events_differ(steps, [put, ready], [], []) == []
    assert events_differ(steps, [put], [], [ready]) != []


def test_events_are_ordered_only_within_a_task():
    one, other = ("put", "t1", "READY"), ("put", "t2", "READY")
    taken = ("take", "t1", "TAKEN")
    steps = [step(0, "put", one, other, taken)]
    assert events_differ(steps, [other, one, taken]) == []
    assert events_differ(steps, [taken, one, other]) != []
    assert events_differ(steps, [one, other]) != []


def test_event_names_with_the_same_meaning_are_equal():
    steps = [step(0, "sleep", ("delayed", "t1", "READY"), ("", "t2", "READY"), ("ttl", "t3", None))]
    assert events_differ(steps, [("delay", "t1", "READY"), ("ttl", "t3", "DONE")]) == []


def test_events_of_a_quirk_of_the_oracle_are_ignored():
    odd = step(0, "kick", ("kick", "t1", "READY"), quirk="kick_returns_argument")
    assert events_differ([odd], [], diverges={"kick_returns_argument"}) == []
    assert events_differ([replace(odd, quirk=None)], []) != []


def test_our_own_traces_are_in_the_folders_of_the_format():
    folders = {path.name for path in (Path(__file__).parent / "traces").iterdir()}
    assert folders <= {"scripted", "random"}
