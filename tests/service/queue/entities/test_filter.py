"""The parts of a text pattern match in order, with any text between the parts."""

import pytest

from taskraft_service.queue.entities.filter import (
    SCAN_STEPS,
    Conjunction,
    Disjunction,
    Negation,
    StateIs,
    TextField,
    TextIs,
    consists_of,
    filter_steps,
    scanned_tasks,
)
from taskraft_service.queue.entities.task_state import State


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["a"]),
        ("ab", ["ab"], ["a", "abc", "xab"]),
        ("*", ["", "a", "*"], []),
        ("a*", ["a", "ab"], ["", "ba"]),
        ("*b", ["b", "ab"], ["", "ba"]),
        ("a*a", ["aa", "aba"], ["a", "ab", "ba"]),
        ("*b*", ["b", "abc", "bb"], ["", "ac"]),
        ("a*b*c", ["abc", "axbxc", "abbc", "abcc"], ["ac", "acb", "axc", "abcd", "abxd"]),
        ("a*bc*cd", ["abccd", "abcxcd"], ["abcd", "acdbc"]),
        ("*x*x*", ["xx", "axbxc"], ["x", "axb"]),
        ("ab*ab*ab", ["ababab"], ["abab", "ababa"]),
        ("*a*b", ["ab", "aab", "xaxb"], ["ba", "b"]),
    ],
)
def test_a_pattern_matches_its_parts_in_order(pattern, matching, others):
    pieces = pattern.split("*")
    assert [text for text in matching if not consists_of(text, pieces)] == []
    assert [text for text in others if consists_of(text, pieces)] == []


def text(*pieces):
    return TextIs(TextField.TYPE, pieces)


@pytest.mark.parametrize(
    ("chosen", "steps"),
    [
        (None, 0),
        (StateIs(State.READY), 1),
        (text("a", "b", "c"), 4),
        (Negation(text("a")), 3),
        (Conjunction([StateIs(State.READY), text("a")]), 4),
        (Disjunction([text("a", "")] * 64), 1 + 64 * 3),
    ],
)
def test_the_steps_of_a_filter_count_comparisons_and_pieces(chosen, steps):
    assert filter_steps(chosen) == steps


@pytest.mark.parametrize("chosen", [None, StateIs(State.READY), Disjunction([text("a", "")] * 64)])
def test_a_filter_with_many_comparisons_scans_fewer_tasks_in_the_same_number_of_steps(chosen):
    tasks = scanned_tasks(5_000, chosen)
    assert tasks * (SCAN_STEPS + filter_steps(chosen)) <= 5_000 * SCAN_STEPS
    assert (tasks + 1) * (SCAN_STEPS + filter_steps(chosen)) > 5_000 * SCAN_STEPS
    assert scanned_tasks(1, chosen) == 1
