"""Check that the page of the guarantees names tests and drills that exist."""

import re

from tests.docs.documents import ROOT
from tests.drill.drill_table import DRILLS
from tests.drill.judge import __doc__ as judged

PAGE = (ROOT / "docs" / "guarantees.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ")
][2:]


def test_each_promise_is_one_sentence_with_evidence_and_faults():
    assert len(ROWS) >= len(re.findall(r"^- G\d+: ", judged, re.MULTILINE))
    for promise, evidence, faults in ROWS:
        assert promise.endswith(".")
        assert ". " not in promise
        assert re.search(r"`[\w/.-]+`|simulation", evidence)
        assert faults


def test_each_drill_and_each_test_of_a_promise_exists():
    names = {drill.name for drill in DRILLS}
    for _, evidence, _ in ROWS:
        for name in re.findall(r"`([^`]+)`", evidence):
            assert name in names or (ROOT / name).is_file(), name
