"""The sum of faults in docs/reliability.md is that of the tracked results of drills."""

import json
from dataclasses import asdict
from datetime import UTC, datetime

import pytest

from tests.drill.__main__ import record_of
from tests.drill.drill_run import Result
from tests.drill.judge import Evidence, Verdict
from tools.drill_records import DrillRecord, RecordMalformed, read_record, records, write_record
from tools.reliability_table import PAGE, page, table, tracked_files

FAULTS_MIN = 2_000
RECORD = DrillRecord(
    date="2026-11-29",
    source="`make drill`",
    seed=7,
    drills=2,
    faults=1_200,
    operations=None,
    puts=3,
    violations=1,
    failed=("pause",),
)


@pytest.mark.real_time
def test_the_page_has_the_sum_of_the_tracked_files():
    found = [*records(tracked_files())]
    text = PAGE.read_text()
    assert page(text, found) == text, "run `python -m tools.reliability_table`"
    assert sum(one.faults for one in found) >= FAULTS_MIN


def test_a_record_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "new" / "one.json"
    write_record(RECORD, path)
    assert read_record(path) == RECORD


@pytest.mark.parametrize(
    "harm", [{"faults": -1}, {"faults": "9"}, {"extra": 1}, {"violations": None}]
)
def test_a_record_with_other_values_is_refused(tmp_path, harm):
    path = tmp_path / "one.json"
    path.write_text(json.dumps(asdict(RECORD) | harm))
    with pytest.raises(RecordMalformed, match=r"one\.json"):
        read_record(path)


def test_a_table_has_each_run_and_the_sum():
    lines = table([RECORD, RECORD]).splitlines()
    assert lines[2] == lines[3] == "| 2026-11-29 | `make drill` | 7 | 1 200 | 1 | pause |"
    assert lines[4] == "| | **sum** | | **2 400** | **2** | |"


def test_a_page_without_a_place_is_refused():
    with pytest.raises(ValueError, match="no comments around the table"):
        page("text", [])


def test_a_drill_that_did_not_end_is_recorded_as_failed():
    evidence = Evidence(operations=50, unknown=0, puts=9, holds=0, empty=0)
    ended = Result("kill", 4, 0.5, Verdict((), evidence), 3.0, breaches=("n1 has ended",))
    found = record_of([ended], ["kill", "pause"], 7, datetime(2026, 11, 29, tzinfo=UTC))
    assert found == DrillRecord(
        date="2026-11-29",
        source='`make drill ONLY="kill pause" SEED=7`',
        seed=7,
        drills=2,
        faults=4,
        operations=50,
        puts=9,
        violations=1,
        failed=("kill", "pause"),
    )
