"""Patterns of names: their matches, and the cost of a match."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from taskraft_service.languages.patterns import PatternSet, is_pattern
from taskraft_service.limits import NAME_BYTES_MAX
from tests.service.counted_calls import counted_calls


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("*", "", True),
        ("*", "mail", True),
        ("mail", "mail", True),
        ("mail", "mails", False),
        ("mail:*", "mail:", True),
        ("mail:*", "mail", False),
        ("*:eu", "mail:eu", True),
        ("*:eu", "mail:eu:2", False),
        ("a*a", "a", False),
        ("a*b*c", "axbxc", True),
        ("a*b*c", "acb", False),
        ("a.c", "abc", False),
    ],
)
def test_a_star_matches_any_characters_or_none(pattern, name, is_match):
    assert PatternSet([pattern]).matches(name) is is_match


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_a_pattern_matches_like_its_regular_expression(pattern, name):
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert PatternSet([pattern]).matches(name) == bool(re.fullmatch(expression, name))


NAMES = st.text("ab", max_size=6)
PATTERNS = st.lists(st.text("ab*", max_size=6), max_size=8)


def fits(pattern, name):
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


@given(PATTERNS, st.lists(NAMES, unique=True, max_size=8).map(sorted))
def test_a_set_names_the_first_pattern_that_matches(patterns, names):
    compiled = PatternSet(patterns)
    places = [place for span in compiled.candidates(names) for place in span]
    assert places == sorted(set(places))
    for place, name in enumerate(names):
        first = next((rank for rank, one in enumerate(patterns) if fits(one, name)), None)
        assert compiled.rank_of(name) == first
        assert first is None or place in places


def searches(patterns, name) -> int:
    """Return the number of texts that a set compares with a name, or searches in a name."""
    compiled = PatternSet(patterns)
    with counted_calls({"find", "startswith", "endswith"}) as counted:
        assert not compiled.matches(name)
    return counted.calls


def test_a_name_is_compared_only_with_the_patterns_that_end_as_the_name_does():
    patterns = ["*a" * 60 + f"b{number:03}" for number in range(1_000)]
    assert searches(patterns, "a" * 50 + "b017") <= 70


def test_a_thousand_beginnings_cost_as_much_as_one():
    assert searches([f"x{number}.*" for number in range(1_000)], "y7.mail") <= 2


def test_names_that_begin_otherwise_are_no_candidates():
    names = [f"x{number:04}.a" for number in range(10_000)]
    patterns = PatternSet(["x0007.*", "x0007.b*", "x0009.a", "missing"])
    assert patterns.candidates(names) == [range(7, 8), range(9, 10)]


@given(PATTERNS, NAMES)
def test_the_steps_of_a_name_are_bounded(patterns, name):
    assume(not any(fits(pattern, name) for pattern in patterns))
    assert searches(patterns, name) <= 2 * PatternSet(patterns).steps_max


@pytest.mark.parametrize("part", ["*", "*a", "*aa", "a*"])
def test_a_match_searches_each_part_of_the_pattern_once(part):
    pattern = part * ((NAME_BYTES_MAX - 1) // len(part)) + "Z"
    assert searches([pattern], "a" * NAME_BYTES_MAX) <= pattern.count("*") + 4


def test_only_a_star_makes_a_pattern():
    assert is_pattern("a*")
    assert not is_pattern("a.b:c-d_e")
