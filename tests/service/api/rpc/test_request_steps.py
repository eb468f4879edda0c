"""The steps of a request are bounded, counted before they are done, and done in slices."""

import pytest

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.request_steps import SLICE_STEPS, RequestSteps
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.languages.patterns import PatternSet
from taskraft_service.limits import REQUEST_STEPS_MAX
from tests.service.counted_calls import runs_of


def allowed(_name):
    return True


def test_too_many_steps_are_refused_with_count_and_limit_before_they_are_done():
    steps, called = RequestSteps(), []
    steps.count(REQUEST_STEPS_MAX - 3)
    with pytest.raises(CallRefused) as refused:
        runs_of(steps.in_slices(["a", "b"], called.append, 2))
    assert refused.value.reason == error_pb2.Error.TOO_MANY_STEPS
    assert refused.value.metadata == {
        "steps": str(REQUEST_STEPS_MAX + 1),
        "limit": str(REQUEST_STEPS_MAX),
    }
    assert str(REQUEST_STEPS_MAX + 1) in refused.value.message
    assert called == []


def test_the_steps_of_all_parts_of_a_request_are_added():
    steps = RequestSteps()
    runs_of(steps.select(list(range(10)), bool, 3))
    runs_of(steps.in_slices(list(range(10)), abs, 2))
    assert steps.taken == 50


def test_other_calls_have_turns_between_slices():
    runs, kept = runs_of(RequestSteps().select(list(range(3 * SLICE_STEPS)), bool, 1))
    assert kept == list(range(1, 3 * SLICE_STEPS))
    assert len(runs) == 1 + 3  # the first slice waits for its turn, too
    runs, _ = runs_of(RequestSteps().in_slices(["a"] * 30, str, SLICE_STEPS // 10))
    assert len(runs) == 1 + 3


def test_names_that_the_caller_may_not_see_are_not_compared():
    patterns = PatternSet(["*a*"])
    compared = []
    patterns.rank_of = compared.append
    runs_of(RequestSteps().matching(["a1", "a2", "b"], patterns, lambda name: name == "a2"))
    assert compared == ["a2"]


def test_names_that_begin_otherwise_take_no_steps():
    names = [f"x{number:04}.mail" for number in range(10_000)]
    steps = RequestSteps()
    _, found = runs_of(steps.matching(names, PatternSet(["x0007.*", "x0008.mail"]), allowed))
    assert found == ["x0007.mail", "x0008.mail"]
    assert steps.taken <= 10


def test_a_page_of_nothing_takes_no_steps():
    steps = RequestSteps()
    _, found = runs_of(steps.matching((), PatternSet(["*"]), allowed))
    assert (found, steps.taken) == ([], 0)
