"""Say at the end of the demo what happened."""

import dataclasses

import pytest

from demo.feed import judge_feed
from demo.records import judge_records
from demo.results import ResultsJudgement
from demo.verdict import Verdict
from tests.demo.test_feed import ACK, PUT, TAKE, life
from tests.demo.test_records import delivery


def verdict(**changes):
    clean = Verdict(
        put=1,
        records=judge_records([1], [delivery(1)]),
        feed=judge_feed("files", life(1, PUT, TAKE, ACK)),
        results=ResultsJudgement(1, [], []),
        failover_ms=620,
        duration_ms=500,
        report="here",
    )
    return dataclasses.replace(clean, **changes)


def test_a_clean_run_is_told_with_its_numbers():
    text = "\n".join(verdict().lines())
    assert "all is well" in text
    assert "0.62 s" in text
    assert "2 (put, taken, acknowledged)" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"put": 2},
        {"records": judge_records([1], [])},
        {"feed": judge_feed("files", life(1, PUT, TAKE))},
        {"feed": judge_feed("files", life(1, PUT, TAKE, TAKE, ACK))},
        {"results": ResultsJudgement(0, [], ["os.py"])},
        {"results": ResultsJudgement(0, ["os.py"], [])},
        {"is_report_missing": True},
    ],
)
def test_anything_lost_held_twice_or_wrong_fails_the_demo(changes):
    failed = verdict(**changes)
    assert not failed.is_clean
    assert "FAILED" in "\n".join(failed.lines())
