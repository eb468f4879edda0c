"""Failures of the same cause have the same fingerprint."""

import pytest

from taskraft_console.views.failure_text import fingerprint_of, normalised


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("read timed out after 30 s from 10.0.3.17", "read timed out after <n> s from <address>"),
        ("not an address: 'user77@'", "not an address: <text>"),
        ("id 00deadbeef closed\n again", "id <hex> closed again"),
        ("task 6f1e6f0a-1111-4222-8333-444455556666 failed", "task <id> failed"),
        ("", ""),
    ],
)
def test_changing_parts_become_placeholders(text, expected):
    assert normalised(text) == expected


def test_the_class_is_part_of_the_cause():
    assert fingerprint_of("A", "x 1") == fingerprint_of("A", "x 2")
    assert fingerprint_of("A", "x 1") != fingerprint_of("B", "x 1")
