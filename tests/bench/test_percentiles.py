"""Percentiles of few values lie between the minimum and the maximum."""

import pytest

from bench.catch_up import latency_line
from bench.failover import in_words
from bench.percentiles import median_and_p99
from tests.drill.calm_phases import waits_of


@pytest.mark.parametrize(
    ("values", "median", "p99"),
    [([7], 7, 7), ([1, 2], 1.5, 1.99), ([1, 1, 4], 1, 3.94), (range(101), 50, 99)],
)
def test_percentiles_are_not_above_the_maximum(values, median, p99):
    assert median_and_p99(values) == pytest.approx((median, p99))


def test_no_values_have_no_percentiles():
    with pytest.raises(ValueError, match="measure at least 1 value"):
        median_and_p99([])


def test_the_reports_show_no_percentile_above_the_maximum():
    assert latency_line([1, 2]) == "median 1.5 ms, p99 2.0 ms, maximum 2.0 ms, 2 puts"
    assert in_words([1, 2]) == "p50 2 ms, p99 2 ms, maximum 2 ms"
    assert str(waits_of([1, 4])) == "median 2, p99 4, longest 4 ms of 2 puts"
