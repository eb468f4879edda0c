"""Rings of samples: fixed size, gaps, coarse samples and percentiles."""

import pytest

from taskraft_service.machine.sample_rings import (
    NO_VALUE,
    SampleRing,
    TubeSample,
    percentile,
)


def sample(put, ready, wait=None):
    return TubeSample(put, 0, 0, 0, 0, ready, 0, 0, 0, wait, wait, None, None)


def column(ring, name, field, newest=100):
    return dict(ring.columns(name, ring.newest(newest)))[field]


def test_a_full_ring_keeps_the_newest_samples():
    ring = SampleRing(10, 3)
    for number in range(5):
        ring.add(number * 10, {"a": sample(number, 10 + number)})
    assert ring.instants(ring.newest(100)) == [20, 30, 40]
    assert column(ring, "a", "put") == [2, 3, 4]
    assert column(ring, "a", "ready", 2) == [13, 14]


def test_a_tube_has_gaps_where_it_has_no_sample():
    ring = SampleRing(10, 4)
    ring.add(10, {"a": sample(1, 1)})
    ring.add(20, {"a": sample(2, 1), "b": sample(7, 1, wait=2**40)})
    ring.add(30, {"b": sample(8, 1)})
    assert column(ring, "a", "put") == [1, 2, NO_VALUE]
    assert column(ring, "b", "put") == [NO_VALUE, 7, 8]
    assert column(ring, "b", "wait_p50_ms") == [NO_VALUE, 2**32 - 2, NO_VALUE]
    ring.forget("b")
    assert "b" not in ring


def test_a_sample_that_is_overwritten_during_a_read_is_a_gap():
    ring = SampleRing(10, 2)
    for number in range(2):
        ring.add(number, {"a": sample(number, 0)})
    samples = ring.newest(2)
    ring.add(2, {"a": sample(7, 0)})
    assert dict(ring.columns("a", samples))["put"] == [NO_VALUE, 1]


def test_samples_of_another_node_come_before_the_own_ones_until_they_are_overwritten():
    other = SampleRing(10, 4)
    for at_ms in (3, 13, 23, 33):
        other.add(at_ms, {"a": sample(at_ms, 1, wait=at_ms)})
    ring = SampleRing(10, 4)
    ring.add(30, {"a": sample(1, 5), "b": sample(2, 6)})
    told = other.newest(4)
    ring.begin_past(other.instants(told))
    ring.fill_past("a", other.instants(told), dict(other.columns("a", told)))
    assert ring.instants(ring.newest(10)) == [3, 13, 23, 30]
    assert column(ring, "a", "put") == [3, 13, 23, 1]
    assert column(ring, "a", "run_p50_ms") == [NO_VALUE] * 4
    assert column(ring, "b", "put") == [NO_VALUE] * 3 + [2]
    ring.add(40, {"a": sample(4, 5)})
    assert ring.instants(ring.newest(10)) == [13, 23, 30, 40]
    assert column(ring, "a", "put") == [13, 23, 1, 4]
    for at_ms in range(50, 100, 10):
        ring.add(at_ms, {"a": sample(at_ms, 5)})
    assert column(ring, "a", "put") == [60, 70, 80, 90]


def test_the_past_of_a_full_ring_has_no_room():
    ring = SampleRing(10, 2)
    for at_ms in (20, 30):
        ring.add(at_ms, {"a": sample(at_ms, 1)})
    ring.begin_past([1, 2])
    assert ring.instants(ring.newest(10)) == [20, 30]
    ring.fill_past("a", [1, 2], {field: [9, 9] for field in TubeSample._fields})
    assert column(ring, "a", "put") == [20, 30]


def test_the_past_of_a_second_node_replaces_the_past_of_the_first():
    ring = SampleRing(10, 4)
    ring.add(30, {"a": sample(1, 5)})
    for at_ms, number in (([3, 13, 23], 7), ([24], 8)):
        ring.begin_past(at_ms)
        ring.fill_past("a", at_ms, {field: [number] * 3 for field in TubeSample._fields})
    ring.begin_past([4, 14, 25])
    assert ring.instants(ring.newest(10)) == [4, 14, 25, 30]
    assert column(ring, "a", "put") == [NO_VALUE] * 3 + [1]


def test_numbers_that_another_node_does_not_send_are_gaps():
    ring = SampleRing(10, 4)
    ring.add(30, {"a": sample(1, 5)})
    ring.begin_past([10, 20])
    columns = {field: [7, -(2**31)] for field in TubeSample._fields} | {"put": [], "take": [9]}
    ring.fill_past("a", [10, 20], columns)
    assert column(ring, "a", "put") == [NO_VALUE, NO_VALUE, 1]
    assert column(ring, "a", "take") == [9, NO_VALUE, 0]
    assert column(ring, "a", "ready") == [7, NO_VALUE, 5]


def test_a_coarse_sample_adds_counts_and_keeps_the_last_gauge():
    ring = SampleRing(10, 4)
    for put, ready in ((1, 5), (2, 6), (4, 7)):
        ring.add(10, {"a": sample(put, ready)})
    summary = ring.summary("a", 2)
    assert (summary.put, summary.ready, summary.run_p50_ms) == (6, 7, None)


@pytest.mark.parametrize(
    ("numbers", "percent", "expected"),
    [([], 50, None), ([7], 95, 7), ([1, 2, 3, 4], 50, 2), (list(range(1, 101)), 95, 95)],
)
def test_a_percentile_is_one_of_the_numbers(numbers, percent, expected):
    assert percentile(numbers, percent) == expected
