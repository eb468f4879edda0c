"""The comparison with brokers: rows, and ratios of medians."""

import pytest

from bench.brokers.rows import ROWS, Measurement, ratio
from bench.cells import ALL


def measured(per_second=1.0, p50_ms=1.0, p99_ms=1.0):
    return Measurement(per_second, p50_ms, p99_ms, 0.0, 0.0, is_doubtful=False)


def test_each_row_measures_a_cell_of_the_benchmark_and_has_a_title_of_its_own():
    assert all(row.cell in ALL for row in ROWS)
    assert len({row.title for row in ROWS}) == len(ROWS)


def test_rates_are_compared_by_medians():
    ours = [measured(per_second=number) for number in (10, 90, 30)]
    theirs = [measured(per_second=number) for number in (60, 60, 1)]
    (row,) = [row for row in ROWS if row.title == "(b) put"]
    assert ratio(row, ours, theirs, 50) == pytest.approx(0.5)
    assert ratio(row, ours, [measured(per_second=0)], 50) == 0.0


def test_the_row_with_a_fixed_rate_compares_latencies():
    (row,) = [row for row in ROWS if row.is_latency]
    ours, theirs = [measured(1, 6.0, 8.0)], [measured(9, 2.0, 2.0)]
    assert ratio(row, ours, theirs, 50) == pytest.approx(3.0)
    assert ratio(row, ours, theirs, 99) == pytest.approx(4.0)
