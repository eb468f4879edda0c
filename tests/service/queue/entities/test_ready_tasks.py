"""The age of the oldest READY task: exact for young tasks, approximate for old tasks."""

from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.queue.entities.ready_tasks import (
    FRESH_SLOTS_MAX,
    PRECISION,
    ReadyAgeHistogram,
)

HOUR_MS = 3_600_000
STEPS = st.lists(
    st.tuples(
        st.integers(1, 10**7),
        st.integers(1, 3),
        st.lists(st.floats(0, 1, exclude_max=True), max_size=4),
    ),
    max_size=30,
)


class Ready:
    """The reference for ``ReadyAgeHistogram``: each READY task is kept separately."""

    def __init__(self):
        self.ages = ReadyAgeHistogram()
        self.since = []
        self.now_ms = 1

    def came(self, later_ms, tasks=1):
        self.now_ms += later_ms
        self.ages.add(self.now_ms, tasks)
        self.since += [self.now_ms] * tasks

    def left(self, which):
        self.ages.remove_all([self.since.pop(which)])

    def error(self):
        """Return the error of the histogram's age, and the age."""
        return self.since[0] - self.ages.oldest_ms, self.now_ms - self.since[0]

    def slots(self):
        return len(self.ages.record()) // 16


@given(STEPS)
def test_ages_are_exact_while_no_slots_are_merged(steps):
    ready = Ready()
    for later_ms, tasks, leaving in steps:
        ready.came(later_ms, tasks)
        for share in leaving:
            if ready.since:
                ready.left(int(share * len(ready.since)))
    assert ready.ages.oldest_ms == min(ready.since, default=0)


def backlog(ready, tasks, later_ms):
    for _ in range(tasks):
        ready.came(later_ms)


def test_the_oldest_age_of_a_long_backlog_is_approximated_for_any_task():
    ready = Ready()
    backlog(ready, 4_000, 500)
    inexact = 0
    while ready.since:
        error_ms, age_ms = ready.error()
        assert 0 <= error_ms * PRECISION <= age_ms
        inexact += error_ms > 0
        ready.left(0)
        if len(ready.since) % 3 == 0 and ready.since:
            ready.left(-1)
    assert inexact
    assert ready.ages.oldest_ms == 0


def test_a_backlog_of_days_takes_few_slots():
    ready = Ready()
    backlog(ready, 5_000, 80)
    backlog(ready, 5_000, HOUR_MS // 25)
    assert ready.slots() < 3 * FRESH_SLOTS_MAX


def test_ages_are_decoded_as_they_were_encoded():
    ready = Ready()
    backlog(ready, 1_000, 7)
    record = b"head" + ready.ages.record() + b"tail"
    ages, end = ReadyAgeHistogram.read(record, 4)
    assert record[end:] == b"tail"
    for one in (ready.ages, ages):
        one.add(10**9)
        for number in range(FRESH_SLOTS_MAX):
            one.add(10**9 + HOUR_MS * (number + 1))
    assert ages.record() == ready.ages.record()
