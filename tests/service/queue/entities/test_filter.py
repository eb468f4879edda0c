"""The parts of a text pattern match in order, with any text between the parts."""

import pytest

from taskraft_service.queue.entities.filter import consists_of


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
