"""The judge of the drill of the export finds each kind of wrong journal; a short drill is right."""

from collections import Counter

import pytest

from taskraft_pipeline import java
from tests.drill.spark_deaths import TUBE, judge, run

PUT, ACK, OTHER = (0, 0, TUBE, 7, "put"), (0, 1, TUBE, 7, "ack"), (1, 0, TUBE, 8, "put")


def codes(stored, put=(), acknowledged=()):
    sent = Counter([PUT, ACK, OTHER])
    return [one.code for one in judge(Counter(stored), sent, set(put), set(acknowledged))]


def test_a_journal_with_each_event_once_breaks_no_promise():
    assert codes([PUT, ACK, OTHER], put=[7, 8], acknowledged=[7]) == []


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([PUT, ACK], ["LOST_EVENT"]),
        ([PUT, ACK, OTHER, OTHER], ["REPEATED_EVENT"]),
        ([PUT, ACK, OTHER, (2, 0, TUBE, 9, "put")], ["INVENTED_EVENT"]),
        # As many events as were sent, but not the same events.
        ([PUT, ACK, (1, 0, TUBE, 9, "put")], ["LOST_EVENT", "INVENTED_EVENT"]),
    ],
)
def test_a_wrong_event_is_found_by_its_id(stored, expected):
    assert codes(stored) == expected


def test_a_task_that_a_client_knows_must_be_in_the_journal():
    assert codes([PUT, ACK, OTHER], put=[7, 8, 9], acknowledged=[7, 8]) == ["WRONG_TASK"] * 2


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.nightly
def test_a_short_drill_of_the_export_loses_no_event(tmp_path):
    if not java.is_sufficient():
        pytest.skip(java.HINT)
    result = run(tmp_path, seed=1, kills=2)
    assert result.verdict.violations == ()
    assert result.is_right
    assert result.verdict.evidence.puts > 1_000
