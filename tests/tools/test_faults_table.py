"""The table of faults in docs/storage.md is the one that the tests give."""

import pytest

from tools import faults_table
from tools.faults_table import PAGE, PARTS, faults_in, page, table


def test_the_page_has_the_faults_that_the_tests_show():
    text = PAGE.read_text()
    assert page(text) == text, "run `python -m tools.faults_table`"
    assert all(f"| {part} |" in table() for part in PARTS)


@pytest.mark.parametrize(
    "arguments", ['"state", "a fault"', '"moon", "a fault", "a reaction"', '"state", FAULT, "x"']
)
def test_a_marker_with_other_arguments_is_refused(tmp_path, monkeypatch, arguments):
    monkeypatch.setattr(faults_table, "ROOT", tmp_path)
    path = tmp_path / "test_x.py"
    path.write_text(f"@pytest.mark.shows_fault({arguments})\ndef test_x(): ...\n")
    with pytest.raises(ValueError, match=r"test_x.py:1: shows_fault needs"):
        list(faults_in(path))
