"""The verdict at the end of the demo."""

import dataclasses

import pytest

from demo.delivery_records import check_records
from demo.feed_check import check_feed
from demo.results_check import ResultsCheck
from demo.verdict import Verdict
from tests.demo.test_delivery_records import delivery
from tests.demo.test_feed_check import ACK, PUT, TAKE, life


def verdict(**changes):
    clean = Verdict(
        put=1,
        records=check_records([1], [delivery(1)]),
        feed=check_feed("files", life(1, PUT, TAKE, ACK)),
        results=ResultsCheck(1, [], []),
        failover_ms=620,
        duration_ms=500,
        report="here",
    )
    return dataclasses.replace(clean, **changes)


def test_the_verdict_of_a_clean_run_shows_its_numbers():
    text = "\n".join(verdict().lines())
    assert "OK" in text
    assert "0.62 s" in text
    assert "2 (put, taken, acknowledged)" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"put": 2},
        {"records": check_records([1], [])},
        {"feed": check_feed("files", life(1, PUT, TAKE))},
        {"feed": check_feed("files", life(1, PUT, TAKE, TAKE, ACK))},
        {"results": ResultsCheck(0, [], ["os.py"])},
        {"results": ResultsCheck(0, ["os.py"], [])},
    ],
)
def test_any_lost_doubly_held_or_wrong_task_fails_the_demo(changes):
    failed = verdict(**changes)
    assert not failed.is_clean
    assert "FAILED" in "\n".join(failed.lines())


def test_a_missing_report_is_told_beside_the_verdict_of_the_queue():
    told = verdict(is_report_missing=True, report="missing: Spark ended with status 1")
    assert told.is_clean
    text = "\n".join(told.lines())
    assert "OK" in text
    assert "missing: Spark ended" in text
