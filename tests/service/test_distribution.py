"""A distribution counts numbers as a Prometheus histogram does."""

from taskraft_service.distribution import Distribution


def test_bounds_are_inclusive_and_buckets_cumulative():
    counted = Distribution((0.5, 1, 1800.0))
    assert counted.is_empty
    for number in (0.25, 0.5, 0.75, 1800, 1800.5):
        counted.add(number)
    assert not counted.is_empty
    assert counted.buckets() == [("0.5", 2), ("1", 3), ("1800", 4), ("+Inf", 5)]
    assert counted.total == 0.25 + 0.5 + 0.75 + 1800 + 1800.5
