"""The verdict on the outcomes of a run."""

from tests.gate.outcomes import Outcome
from tests.gate.verdict import UNSTABLE_MAX, costs_of_files, judge, summary


def passed(test):
    return Outcome(test, failed=False, skipped=False, seconds=1.0)


def failed(test):
    return Outcome(test, failed=True, skipped=False, seconds=2.0, reason=f"{test} is late")


def skipped(test):
    return Outcome(test, failed=False, skipped=True, seconds=0.0)


def test_a_run_without_failures_passes():
    verdict = judge([passed("a")], [passed("b"), skipped("c")], [])
    assert verdict.passed
    assert summary(verdict, [("stage 1", [passed("a")], 3.0)])[0] == (
        "stage 1: 1 tests in 3 s (in sum 1 s)"
    )


def test_some_unstable_tests_pass_and_one_more_does_not():
    names = [str(number) for number in range(UNSTABLE_MAX + 1)]
    some, more = names[:-1], names
    first = [passed("a")]
    verdict = judge(first, [failed(each) for each in some], [passed(each) for each in some])
    assert verdict.passed
    assert [each.test for each in verdict.unstable] == some
    verdict = judge(first, [failed(each) for each in more], [passed(each) for each in more])
    assert not verdict.passed
    lines = summary(verdict, [("stage 2", [failed(each) for each in more], 1.0)])
    assert lines[-2:] == [
        f"a run may have {UNSTABLE_MAX} unstable tests, and this run has more",
        f"0 passed, {UNSTABLE_MAX + 1} failed, 0 skipped",
    ]


def test_a_skip_or_no_second_run_does_not_excuse_a_failure():
    assert not judge([], [failed("a")], [skipped("a")]).passed
    assert not judge([], [failed("a")], []).passed
    assert not judge([], [failed("a")], [failed("a")]).passed


def test_a_failure_of_stage_1_fails_the_run():
    verdict = judge([failed("a")], [], [passed("a")])
    assert not verdict.passed
    assert [each.test for each in verdict.wrong] == ["a"]


def test_the_costs_of_a_file_are_those_of_its_tests():
    outcomes = [passed("short.py::a"), passed("long.py::a"), failed("long.py::b[x::y]")]
    assert costs_of_files(outcomes) == [(3.0, "long.py"), (1.0, "short.py")]
    lines = summary(judge([], outcomes, []), [("stage 2", outcomes, 4.0)])
    assert lines[lines.index("costliest files:") + 1] == "     3.0 s  long.py"
