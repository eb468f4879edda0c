"""Check that a mutant gets the tests that reach its line, the fastest first, within a budget."""

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.reach import BUDGET_SECONDS, QUICK_SECONDS, Reach

TEXT = """def cut(index):
    if (
        index > 3
    ):
        first()
    second(
        index,
        4,
    )
"""
TESTS = ["slow", "quick", "long", "other", "longer"]
SECONDS = [1.0, 0.1, QUICK_SECONDS, 0.2, BUDGET_SECONDS]


def reach(**lines):
    reached = {number.removeprefix("line"): tests for number, tests in lines.items()}
    return Reach(TESTS, SECONDS, {"a.py": reached})


def mutant(old, new):
    return Mutant("m", "a.py", "why", old, new, "core")


@pytest.mark.parametrize(
    ("old", "new", "chosen"),
    [
        ("index > 3", "index < 3", ["quick", "slow"]),
        ("first()", "pass", ["other"]),
        ("        4,", "        5,", ["quick"]),
    ],
)
def test_a_mutant_gets_the_tests_of_its_statement_without_those_of_the_body(old, new, chosen):
    known = reach(line2=[0], line3=[1], line5=[3], line6=[1])
    assert known.groups_for(mutant(old, new), TEXT) == [chosen]


def test_slow_tests_are_a_second_group_and_tests_above_the_budget_run_only_alone():
    change = mutant("first()", "pass")
    groups = reach(line5=[0, 1, 2, 4]).groups_for(change, TEXT)
    assert groups == [["quick", "slow"], ["long"]]
    assert reach(line5=[4]).groups_for(change, TEXT) == [["longer"]]


def test_a_line_that_no_test_reaches_gets_no_tests():
    assert reach(line2=[0]).groups_for(mutant("first()", "pass"), TEXT) == []
