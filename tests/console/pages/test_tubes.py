"""Names and patterns in the list of tubes."""

import pytest

from taskraft_console.pages.tubes import matches


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("mail.bulk", "mail.*", True),
        ("mail", "mail.*", False),
        ("mail.bulk", "BULK", True),
        ("mail.bulk", "*bulk", True),
        ("mail[1]", "mail[*", True),
        ("mailx1", "mail[x]*", False),
    ],
)
def test_a_pattern_selects_names(name, pattern, expected):
    assert matches(name, pattern) is expected
