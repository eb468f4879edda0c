"""Tube patterns: their matches, and the cost of a match."""

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.languages.patterns import TubePattern, is_pattern
from taskraft_service.limits import NAME_BYTES_MAX


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
    assert TubePattern(pattern).matches(name) is is_match


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_a_pattern_matches_like_its_regular_expression(pattern, name):
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert TubePattern(pattern).matches(name) == bool(re.fullmatch(expression, name))


def searches(pattern: str, name: str) -> int:
    """Return the number of searches for parts of the pattern."""
    calls = 0

    def count(_frame, event, called):
        nonlocal calls
        calls += event == "c_call" and called.__name__ == "find"

    compiled = TubePattern(pattern)
    sys.setprofile(count)
    try:
        assert not compiled.matches(name)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("part", ["*", "*a", "*aa", "a*"])
def test_a_match_searches_each_part_of_the_pattern_once(part):
    pattern = part * ((NAME_BYTES_MAX - 1) // len(part)) + "Z"
    assert searches(pattern, "a" * NAME_BYTES_MAX) <= pattern.count("*")


def test_only_a_star_makes_a_pattern():
    assert is_pattern("a*")
    assert not is_pattern("a.b:c-d_e")
