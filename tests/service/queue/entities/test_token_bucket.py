"""A token bucket lets through what its rate says, and never more at once than its burst."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.queue.entities.token_bucket import TokenBucket


def test_full_bucket_lets_a_burst_through_and_then_waits():
    bucket = TokenBucket(2, 3, 1_000)
    assert bucket.left(1_000) == 3
    assert bucket.due_ms() is None
    bucket.use(3, 1_000)
    assert bucket.left(1_000) == 0
    assert bucket.due_ms() == 1_500
    assert bucket.left(1_499) == 0
    assert bucket.left(1_500) == 1


def test_bucket_does_not_fill_over_its_burst():
    bucket = TokenBucket(10, 2, 0)
    bucket.use(2, 0)
    assert bucket.left(3_600_000) == 2


def test_changed_rate_goes_on_with_what_is_left():
    bucket = TokenBucket(10, 10, 0)
    bucket.use(4, 0)
    bucket.change(1, 3, 0)
    assert bucket.left(0) == 3
    bucket.use(3, 0)
    bucket.change(1_000, 5, 0)
    assert bucket.left(0) == 0
    assert bucket.left(5) == 5


@given(
    st.integers(1, 5_000),
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 60)), max_size=40),
)
def test_bucket_keeps_its_rate(per_second, burst, steps):
    """In any span no more than the burst and what came meanwhile; and it is due when it says."""
    bucket = TokenBucket(per_second, burst, 0)
    now = taken = 0
    for passed, wanted in steps:
        now += passed
        times = min(wanted, bucket.left(now))
        bucket.use(times, now)
        taken += times
        assert taken <= burst + now * per_second // 1_000
        due = bucket.due_ms()
        if due is None:
            assert bucket.left(now) > 0
        else:
            assert bucket.left(now) == 0
            assert bucket.left(due) >= 1
            assert bucket.left(due - 1) == 0
