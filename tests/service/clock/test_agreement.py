"""Clocks that agree determine the time if they are a majority."""

import pytest

from taskraft_service.clock.agreement import (
    WALL_TOLERANCE_MS,
    agreed_value,
    least_plausible,
)

HOUR_MS = 3_600_000


def majority_of(voters):
    return lambda members: 2 * len({*members} & {*range(1, voters + 1)}) > voters


@pytest.mark.parametrize(
    ("values", "agreed"),
    [
        ((0, 10, 20), 10),
        ((0, 10, HOUR_MS), 0),
        ((0, 10, -HOUR_MS), 0),
        ((0, HOUR_MS, -HOUR_MS), None),
        ((0, HOUR_MS, HOUR_MS + 9), HOUR_MS),
        ((0, WALL_TOLERANCE_MS), 0),
        ((0, WALL_TOLERANCE_MS + 1), None),
        ((5,), 5),
        ((), None),
        ((0, 1, 2, HOUR_MS, HOUR_MS), 1),
        ((0, 600, 1_200, 1_800, 2_400), None),
        ((0, 500, 1_000, 1_500, 2_400), 500),
        ((0, 500, 1_000, 1_100, 1_200), 1_000),
    ],
)
def test_the_median_of_an_agreeing_majority_is_used(values, agreed):
    numbered = dict(enumerate(values, 1))
    assert agreed_value(numbered, majority_of(len(values))) == agreed


def test_only_voters_count_towards_the_majority():
    values = {1: 0, 2: HOUR_MS, 8: 0, 9: 0}
    assert agreed_value(values, majority_of(3)) is None
    assert agreed_value({**values, 3: 5}, majority_of(3)) == 0


@pytest.mark.parametrize(
    ("guesses", "chosen"),
    [
        ((HOUR_MS + 500, HOUR_MS + 300), HOUR_MS + 300),
        ((HOUR_MS + 5000, 50), HOUR_MS + 5000),
        ((50, 60), HOUR_MS),
        ((HOUR_MS, HOUR_MS + 100), HOUR_MS),
        ((), HOUR_MS),
    ],
)
def test_of_different_estimates_the_lowest_above_the_floor_is_used(guesses, chosen):
    assert least_plausible(guesses, HOUR_MS) == chosen


@pytest.mark.parametrize(("behind_ms", "late_ms"), [(1000, 0), (1001, 5000)])
def test_a_right_clock_just_behind_the_log_counts_before_a_clock_that_is_ahead(behind_ms, late_ms):
    """Two voters have stopped briefly, and one of their clocks is 5 s ahead."""
    guesses = (HOUR_MS + 5000, HOUR_MS - behind_ms)
    assert least_plausible(guesses, HOUR_MS) == HOUR_MS + late_ms
