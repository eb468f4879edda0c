"""A token bucket keeps its rate and burst; buckets of sub-queues are kept until they are full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.rates import SubqueueRates, TokenBucket
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, TruncateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.store.keys import SUBQUEUE_RATE
from tests.service.queue.memory_store import MemoryStore


def test_a_full_bucket_allows_a_burst_and_then_waits():
    bucket = TokenBucket(2, 3, 1_000)
    assert bucket.left(1_000) == 3
    assert bucket.due_ms() is None
    bucket.use(3, 1_000)
    assert bucket.left(1_000) == 0
    assert bucket.due_ms() == 1_500
    assert bucket.left(1_499) == 0
    assert bucket.left(1_500) == 1


def test_a_bucket_fills_up_to_its_burst_only():
    bucket = TokenBucket(10, 2, 0)
    bucket.use(2, 0)
    assert bucket.left(3_600_000) == 2


def test_a_changed_rate_keeps_the_remaining_tokens():
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
def test_a_bucket_never_exceeds_its_rate(per_second, burst, steps):
    """A span allows at most the burst plus the refilled tokens, and the due time is exact."""
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


NUMBER = 7
OPTIONS = TubeOptions(subqueue_rate_per_second=10, subqueue_rate_burst=2)


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def rates(store):
    return SubqueueRates(NUMBER, store, OPTIONS)


def collected(store, rates):
    writes = []
    rates.collect(writes)
    store.write(writes)
    return len(writes)


def test_a_sub_queue_is_barred_until_it_is_readmitted_even_if_late(rates):
    rates.use("a", 1_000)
    assert rates.allows("a")
    assert rates.due_ms() is None
    rates.use("a", 1_000)
    assert not rates.allows("a")
    assert rates.due_ms() == 1_100
    assert rates.due(1_099, 9) == []
    assert rates.due(5_000, 9) == ["a"]
    assert not rates.allows("a"), "the time has come, but the sub-queue was not readmitted"
    rates.readmit("a", 5_000)
    assert rates.allows("a")


def test_sub_queues_are_due_in_order_of_time(rates):
    for at_ms, name in ((0, "late"), (0, "a"), (0, "b"), (10, "late")):
        rates.use(name, at_ms)
    rates.use("b", 5)
    rates.use("a", 5)
    assert rates.due(10_000, 2) == ["a", "b"]
    assert rates.due(10_000, 2) == ["late"]


def test_full_buckets_are_removed_from_memory_and_store(store, rates):
    for number in range(100):
        rates.use(f"s{number}", 1_000)
    collected(store, rates)
    assert len(store.pairs) == 100
    for number in range(50):
        rates.use("steady", 2_000 + number * 1_000)
    collected(store, rates)
    assert [key[:1] for key in store.pairs] == [SUBQUEUE_RATE]
    assert len(rates._buckets) == 1


def test_a_barred_bucket_is_never_removed(store):
    """By the clock the bucket is full again, but the sub-queue was not readmitted yet."""
    options = TubeOptions(subqueue_rate_per_second=1, subqueue_rate_burst=1)
    rates = SubqueueRates(NUMBER, store, options)
    rates.use("a", 0)
    rates.use("b", 60_000)
    assert not rates.allows("a")


def test_nothing_is_written_twice(store, rates):
    rates.use("a", 0)
    assert collected(store, rates) == 1
    assert collected(store, rates) == 0


def test_stored_buckets_are_loaded(store, rates):
    for name, at_ms in (("b", 0), ("a", 30), ("a", 40), ("", 50)):
        rates.use(name, at_ms)
    collected(store, rates)
    again = SubqueueRates(NUMBER, store, OPTIONS)
    again.restore()
    assert list(again.digest_parts(60)) == list(rates.digest_parts(60))
    assert again.due_ms() == rates.due_ms() == 130
    assert list(again._buckets) == ["b", "a", ""], "the least recently used one comes first"


def test_a_full_bucket_equals_a_missing_one(rates):
    rates.use("a", 0)
    assert list(rates.digest_parts(99)) != []
    assert list(rates.digest_parts(100)) == []


def test_tubes_in_the_same_store_are_separate(store, rates):
    rates.use("a", 0)
    collected(store, rates)
    other = SubqueueRates(NUMBER + 1, store, OPTIONS)
    other.restore()
    assert list(other.digest_parts(0)) == []


def test_readmitted_sub_queues_are_returned_in_steps_without_a_scan():
    """Many sub-queues are barred until the same time; each entry readmits some of them."""
    queue = Queue(
        MemoryStore(), Limits(steps_alone_max=1_000, steps_beside_max=1_000, steps_max=1_000)
    )
    options = TubeOptions(subqueue_rate_per_second=1, subqueue_rate_burst=1)
    tasks = [NewTask(b"", 0, subqueue=str(number % 2_500)) for number in range(5_000)]
    queue.apply(1, 0, [CreateTube("t", TubeKind.UTUBE, options), Put("t", tasks)])
    (taken,) = queue.apply(2, 0, [Take(["t"], tasks_max=5_000)])
    assert len(taken.tasks) == 2_500
    queue.apply(3, 0, [Settle([Ack([task.token for task in taken.tasks])])])
    assert not queue.has_ready("t")
    ready = []
    for index in range(4, 8):
        assert queue.next_deadline_ms() == 1_000
        queue.apply(index, 1_000, [])
        ready.append(queue.ready_count("t"))
        if ready[-1] == 2_500:
            break
    assert ready == [1_000, 2_000, 2_500]
    assert queue.next_deadline_ms() is None


def test_a_truncated_tube_keeps_its_rates_and_moves_their_records():
    store = MemoryStore()
    queue = Queue(store, Limits())
    options = TubeOptions(subqueue_rate_per_second=1, subqueue_rate_burst=1)
    task = NewTask(b"", 0, subqueue="a")
    queue.apply(1, 0, [CreateTube("t", TubeKind.UTUBE, options), Put("t", [task]), Take(["t"])])
    store.write(queue.collect_writes())
    queue.apply(2, 0, [TruncateTube("t"), Put("t", [task])])
    queue.apply(3, 0, [])
    store.write(queue.collect_writes())
    rates = [key for key in store.pairs if key[:1] == SUBQUEUE_RATE]
    assert rates == [SUBQUEUE_RATE + (2).to_bytes(4, "big") + b"a"]
    queue = Queue(store, Limits())
    assert not queue.has_ready("t")
    assert queue.next_deadline_ms() == 1_000
    queue.apply(4, 1_000, [])
    assert queue.has_ready("t")


def test_a_sub_queue_barred_before_a_restart_is_readmitted_at_its_time():
    """The first task of the sub-queue is read only with the next batch of writes.

    Until then the sub-queue must not count as empty.
    """
    store = MemoryStore()
    queue = Queue(store, Limits())
    options = TubeOptions(subqueue_rate_per_second=1, subqueue_rate_burst=1)
    task = NewTask(b"", 0, subqueue="a", ttr_ms=10)
    queue.apply(1, 0, [CreateTube("t", TubeKind.UTUBETTL, options), Put("t", [task]), Take(["t"])])
    store.write(queue.collect_writes())
    queue = Queue(store, Limits())
    queue.apply(2, 10, [])
    store.write(queue.collect_writes())
    queue.apply(3, 1_000, [])
    assert queue.has_ready("t")
    (taken,) = queue.apply(4, 1_000, [Take(["t"])])
    assert [task.attempt for task in taken.tasks] == [2]


def test_a_full_bucket_behaves_like_a_removed_one_when_the_rates_change(store, rates):
    """Replicas remove full buckets at different times; their states must stay equal."""
    rates.use("known", 0)
    other = SubqueueRates(NUMBER, store, OPTIONS)  # The other replica has removed the full bucket.
    larger = TubeOptions(subqueue_rate_per_second=10, subqueue_rate_burst=5)
    for each in (rates, other):
        each.configure(larger, 10_000)
    for _ in range(5):
        for each in (rates, other):
            assert each.allows("known")
            each.use("known", 10_000)
    assert not rates.allows("known")
    assert not other.allows("known")
    assert list(rates.digest_parts(10_000)) == list(other.digest_parts(10_000))
