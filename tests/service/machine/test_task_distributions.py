"""Distributions of waits, runs and attempts: which events count, and a bounded number of tubes."""

import pytest

from taskraft_service.machine.task_distributions import OTHERS, TUBES_MAX, TaskDistributions
from taskraft_service.queue.entities.task_state import BURIED, DELAYED, GONE, READY, TAKEN
from taskraft_service.queue.feed.chunk import Event


def event(before, after, outcome=0, tube="mail", attempt=3):
    return Event(
        *(1, 0, 5_000, tube, 1, 0, before, after, attempt, 0, 1_000, 1_000),
        *("", "", "", "", 0, outcome),
    )


def counts(distributions, tube="mail"):
    found = dict(distributions)[tube]
    return [one.buckets()[-1][1] for one in (found.waits, found.runs, found.attempts)]


@pytest.mark.parametrize(
    ("before", "after", "outcome", "expected"),
    [
        (READY, TAKEN, 0, [1, 0, 0]),
        (READY, BURIED, 0, [0, 0, 0]),
        (TAKEN, TAKEN, 0, [0, 0, 0]),
        (TAKEN, DELAYED, 0, [0, 1, 0]),
        (TAKEN, BURIED, 0, [0, 1, 1]),
        (TAKEN, GONE, 1, [0, 1, 1]),
    ],
)
def test_an_event_counts_in_the_distributions_of_its_tube(before, after, outcome, expected):
    distributions = TaskDistributions()
    distributions.add(event(before, after, outcome))
    assert counts(distributions) == expected
    assert counts(distributions, OTHERS) == [0, 0, 0]


def test_times_are_in_seconds():
    distributions = TaskDistributions()
    distributions.add(event(READY, TAKEN))
    assert dict(distributions)["mail"].waits.total == 4


def test_tubes_above_the_limit_share_one_distribution():
    distributions = TaskDistributions()
    for number in range(TUBES_MAX + 2):
        distributions.add(event(READY, TAKEN, tube=f"t{number}"))
    assert len(dict(distributions)) == TUBES_MAX + 1
    assert counts(distributions, OTHERS) == [2, 0, 0]
    distributions.forget("t0")
    distributions.forget(OTHERS)
    distributions.add(event(READY, TAKEN, tube="new"))
    assert counts(distributions, "new") == [1, 0, 0]
    assert counts(distributions, OTHERS) == [2, 0, 0]
