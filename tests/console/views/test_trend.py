"""Rates, the time to drain, and the small curve."""

import pytest

from taskraft.v1.tube_service_pb2 import TubeHistory
from taskraft_console.views.trend import NEVER_MS, Trend, spark_path


def history(put, ack, ready=()):
    return TubeHistory(put=put, ack=ack, ready=ready)


def test_rates_are_those_of_the_last_minute():
    trend = Trend.of(history([-1, 900, *[20] * 6], [-1] * 8), 10_000, 5)
    assert (trend.put_rate, trend.ack_rate, trend.drain_ms) == (2.0, None, None)


@pytest.mark.parametrize(
    ("put", "ack", "ready", "expected"),
    [(10, 20, 100, 100_000), (20, 10, 100, NEVER_MS), (10, 10, 1, NEVER_MS), (1, 2, 0, 0)],
)
def test_the_time_to_drain_is_the_backlog_by_the_surplus(put, ack, ready, expected):
    assert Trend.of(history([put] * 60, [ack] * 60), 10_000, ready).drain_ms == expected


@pytest.mark.parametrize(
    ("buried", "expected"),
    [([], None), ([-1, -1], None), ([5], 5), ([-1, 3, -1, 41, -1], 3), ([900, 7, *[8] * 59], 7)],
)
def test_the_buried_tasks_10_minutes_ago_are_the_oldest_known_number(buried, expected):
    assert Trend.of(TubeHistory(buried=buried), 10_000, 0).buried_before == expected


def test_a_tube_without_samples_has_an_unknown_trend():
    assert Trend.of(None, 10_000, 5) == Trend()


def test_a_curve_keeps_its_gaps():
    assert spark_path([0, 0]) == ""
    assert spark_path([1]) == ""
    assert spark_path([4, 2, -1, 4]) == "M0.0 1.0L40.0 11.0M120.0 1.0"
    assert spark_path(list(range(360))).count("L") == 59
