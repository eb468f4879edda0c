"""The delay before the next attempt grows up to a limit, equally on all replicas."""

from __future__ import annotations

from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.retry_policy import (
    ATTEMPTS_MAX,
    BACKOFF_MS_MAX,
    FACTOR_PERCENT_MAX,
    Exhausted,
    RetryPolicy,
)
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.entities.tube_profiles import OWN
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.releasing import backoff_ms
from taskraft_service.queue.operations.settlements import Release, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore


class Tube:
    number = 7


class Extras:
    def __init__(self, failed_attempts):
        self.failed_attempts = failed_attempts


class Task:
    """A task whose attempts all failed."""

    tube = Tube()

    def __init__(self, task_id, attempt):
        self.id = task_id
        self.attempt = attempt
        self.extras = Extras(attempt)


def delays(policy, attempts):
    return [backoff_ms(policy, Task(1, attempt)) for attempt in range(1, attempts + 1)]


def test_the_delay_doubles_by_default_up_to_its_limit():
    policy = RetryPolicy(backoff_ms=100, backoff_ms_max=1_000)
    assert delays(policy, 6) == [100, 200, 400, 800, 1_000, 1_000]


def test_the_delay_grows_by_its_factor():
    assert delays(RetryPolicy(backoff_ms=8, factor_percent=150), 4) == [8, 12, 18, 27]
    assert delays(RetryPolicy(backoff_ms=8, factor_percent=100), 3) == [8, 8, 8]


def test_without_backoff_there_is_no_delay():
    assert delays(RetryPolicy(jitter_percent=100), 3) == [0, 0, 0]


@given(
    st.builds(
        RetryPolicy,
        backoff_ms=st.integers(0, FOREVER_MS * 2),
        factor_percent=st.integers(100, FACTOR_PERCENT_MAX),
        backoff_ms_max=st.integers(0, FOREVER_MS * 2),
        jitter_percent=st.integers(0, 100),
    ),
    st.integers(0, 2**31),
    st.integers(1, 2**63),
)
def test_the_delay_stays_within_its_limits(policy, attempt, task_id):
    """The delay stays within its limits for any number of attempts and any growth factor."""
    task = Task(task_id, attempt)
    delay = backoff_ms(policy, task)
    assert 0 <= delay <= policy.backoff_ms_max
    assert backoff_ms(policy, task) == delay
    if policy.jitter_percent == 0 and 0 < policy.backoff_ms <= policy.backoff_ms_max:
        assert delay >= policy.backoff_ms


def test_jitter_spreads_tasks_and_attempts_evenly():
    """Each task has its own delay; on average half of the jitter is subtracted."""
    policy = RetryPolicy(backoff_ms=10_000, factor_percent=100, jitter_percent=50)
    found = [backoff_ms(policy, Task(task_id, 1)) for task_id in range(1_000)]
    assert min(found) >= 5_000
    assert max(found) <= 10_000
    assert mean(found) == pytest.approx(7_500, rel=0.02)
    assert len(set(found)) > 900
    assert len(set(delays(policy, 20))) > 15


def test_a_task_without_a_limit_of_attempts_is_retried_for_days():
    """A task that always fails, under a policy without attempts_max, costs no more over time."""
    policy = RetryPolicy(backoff_ms=1, factor_percent=101)
    assert backoff_ms(policy, Task(1, ATTEMPTS_MAX)) <= BACKOFF_MS_MAX


def test_a_move_without_capacity_refuses_an_atomic_settle_as_a_whole():
    queue = Queue(MemoryStore(), Limits())
    queue.apply(
        1,
        1_000,
        [
            Startup(1, 0, "feed", 1),
            CreateTube("mail", TubeKind.FIFOTTL, TubeOptions()),
            CreateTube("small", TubeKind.FIFOTTL, TubeOptions(capacity_tasks=1)),
            Put("mail", [NewTask(b"", 0)] * 2),
            Take(["mail"], tasks_max=2),
        ],
    )
    (refused,) = queue.apply(2, 1_000, [Settle([Release([1, 2], move_to="small")], atomic=True)])
    assert isinstance(refused, Refusal), "the settle was not refused"
    assert (refused.reason.name, refused.metadata["item"]) == ("TUBE_FULL", "1")
    assert [task.state for task in queue.get_tasks("mail", [1, 2])] == [State.TAKEN] * 2
    (settled,) = queue.apply(3, 1_000, [Settle([Release([1, 2], move_to="small")])])
    assert [item.item for item in settled.refused] == [1]


def test_dead_letters_use_capacity_in_an_atomic_settle():
    """Two dead letters cannot use the same capacity; a dead letter without capacity is buried."""
    policy = RetryPolicy(attempts_max=1, exhausted=Exhausted.DEAD_LETTER)
    options = TubeOptions(retry=policy, dead_letter_tube="small")
    queue = Queue(MemoryStore(), Limits())
    queue.apply(
        1,
        1_000,
        [
            Startup(1, 0, "feed", 1),
            CreateTube("mail", TubeKind.FIFOTTL, options),
            CreateTube("small", TubeKind.FIFOTTL, TubeOptions(capacity_tasks=1)),
            Put("mail", [NewTask(b"", 0)] * 2),
            Take(["mail"], tasks_max=2),
        ],
    )
    failed = Release([1], failure=Failure("TimeoutError"))
    settlements = [failed, Release([2], move_to="small")]
    (refused,) = queue.apply(2, 1_000, [Settle(settlements, atomic=True)])
    assert isinstance(refused, Refusal), "the settle was not refused"
    assert (refused.reason.name, refused.metadata["item"]) == ("TUBE_FULL", "1")
    assert [task.state for task in queue.get_tasks("mail", [1, 2])] == [State.TAKEN] * 2
    (settled,) = queue.apply(3, 1_000, [Settle(settlements)])
    assert [item.item for item in settled.refused] == [1]
    assert [task.id for task in queue.list_tasks("mail", (), 0, 10)] == [2]
    assert len(queue.list_tasks("small", (), 0, 10)) == 1


def test_a_task_keeps_its_last_failures_with_attempt_and_time():
    """The list is bounded in number and bytes, and survives restarts and dead letters."""
    store = MemoryStore()
    queue = Queue(store, Limits())
    policy = RetryPolicy(attempts_max=7, exhausted=Exhausted.DEAD_LETTER)
    options = TubeOptions(retry=policy, dead_letter_tube="dead")
    queue.apply(
        1,
        1_000,
        [
            Startup(1, 0, "feed", 1),
            CreateTube("mail", TubeKind.FIFOTTL, options),
            CreateTube("dead", TubeKind.FIFOTTL, TubeOptions()),
            Put("mail", [NewTask(b"", 0)]),
        ],
    )
    for attempt in range(1, 8):
        failure = Failure("Broken", f"{attempt} " + "é" * 300)
        taken = [Take(["mail"]), Settle([Release([attempt], failure=failure)])]
        queue.apply(1 + attempt, 1_000 + attempt, taken)
    store.write(queue.collect_writes())
    (letter,) = Queue(store, Limits()).get_tasks("dead", [1])
    failures = letter.extras.failures
    assert [(one.attempt, one.at_ms) for one in failures] == [(n, 1_000 + n) for n in range(3, 8)]
    assert failures[-1].message == "7 " + "é" * 255
    assert letter.extras.failure.message == "7 " + "é" * 300
    (counts,) = queue.statistics(["mail"])
    assert counts.calls.noted[CountedOperation.FAIL] == 7


def test_by_default_a_task_that_always_fails_costs_little_and_is_buried():
    """In its first 6 s the task is tried three times; the twentieth failed attempt buries it."""
    queue = Queue(MemoryStore(), Limits())
    created = CreateTube("mail", TubeKind.FIFOTTL, OWN.defaults)
    queue.apply(1, 1_000, [Startup(1, 0, "feed", 1), created, Put("mail", [NewTask(b"", 0)])])
    now_ms, index, attempts_ms = 1_000, 2, []
    while queue.get_tasks("mail", [1])[0].state is not State.BURIED:
        attempts_ms.append(now_ms)
        failed = Release([len(attempts_ms)], failure=Failure("ValueError"))
        queue.apply(index, now_ms, [Take(["mail"]), Settle([failed])])
        index += 1
        now_ms = queue.next_deadline_ms() or now_ms
    assert len(attempts_ms) == 20
    assert sum(at_ms < 7_000 for at_ms in attempts_ms) == 3
    assert attempts_ms[-1] > 80 * 60_000
    (buried,) = queue.get_tasks("mail", [1])
    assert [one.attempt for one in buried.extras.failures] == [16, 17, 18, 19, 20]
