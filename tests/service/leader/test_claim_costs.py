"""The claims of one entry look at few tubes and consumers; no consumer is forgotten thereby."""

import pytest

from taskraft_service.leader.waiting_consumer import (
    CLAIM_STEPS_MAX,
    CLAIM_STEPS_PER_ENTRY_MAX,
    STEPS_PER_CLAIM,
)
from tests.service.counted_calls import calls_of
from tests.service.leader.waiting import CheckedWaiters, Consumer, CountingBoard, add, answer, taken

LOOKS_MAX = 2 * CLAIM_STEPS_PER_ENTRY_MAX
"""Maximum number of looks at tubes for one entry; most tubes are looked at twice."""


CLAIMS_MAX = CLAIM_STEPS_PER_ENTRY_MAX // STEPS_PER_CLAIM + 1
"""Maximum number of claims of one entry."""


def with_tubes(count, ready=0):
    board = CountingBoard(**{f"x{number:05}": ready for number in range(count)})
    return CheckedWaiters(board)


@pytest.mark.parametrize("one_shot", [True, False])
def test_one_task_costs_waiting_consumers_of_all_tubes_one_look_each(one_shot):
    waiters = with_tubes(2_000)
    for _ in range(100):
        add(waiters, Consumer("*", is_selective=True, one_shot=one_shot))
    assert waiters.entries() == []
    waiters.looks.clear()
    waiters.expect_ready("x00005", 1)
    waiters.is_woken = True
    assert [tubes for _, *tubes, _ in taken(waiters.entries())] == [["x00005"]] * 100
    assert sum(waiters.looks) < 300


def test_tubes_that_are_new_to_a_consumer_are_checked_for_several_entries():
    waiters = with_tubes(10_000)
    waiters.board.tasks["x09999"] = 1
    consumer = add(waiters, Consumer("*"))
    assert waiters.entry() == []
    assert waiters.is_woken
    (claim,) = waiters.entries(tasks=1)
    assert taken([claim]) == [(consumer, "x09999", 1)]
    assert max(waiters.looks) <= CLAIM_STEPS_PER_ENTRY_MAX + 1
    assert len(waiters.looks) >= 5


def test_tasks_that_suit_no_consumer_are_tried_in_short_runs_once():
    waiters = with_tubes(5_000, ready=1)
    for _ in range(5):
        add(waiters, Consumer("*", is_selective=True))
    claims = waiters.entries()
    assert max(waiters.looks) <= LOOKS_MAX
    assert max(len(claim.encoded.command.tubes) for claim in claims) <= CLAIM_STEPS_MAX + 1
    assert sum(len(claim.encoded.command.tubes) for claim in claims) == 5 * 5_000


def test_a_consumer_behind_many_selective_ones_gets_its_task_while_others_are_put():
    waiters = with_tubes(1, ready=1)
    for _ in range(2 * CLAIMS_MAX):
        waiters.add(Consumer("x00000", is_selective=True))
    suited = Consumer("x00000", is_selective=True)
    waiters.add(suited)
    for _ in range(3):
        waiters.expect_ready("x00000", 1)
        claims = waiters.entry()
        assert len(claims) <= CLAIMS_MAX
        if suited in [claim.consumer for claim in claims]:
            break
        for claim in claims:
            answer(waiters, claim, 0)
    else:
        pytest.fail("the consumer got no claim")


def test_subscriptions_of_many_tubes_are_served_by_several_entries():
    waiters = with_tubes(2_000)
    for _ in range(20):
        add(waiters, Consumer("*", one_shot=False))
    waiters.entries()
    waiters.expect_ready("x00001", 20)
    waiters.is_woken = True
    sizes = []
    while claims := waiters.entry():
        sizes.append(len(claims))
    assert sum(sizes) == 20
    assert max(sizes) < 10


def test_a_yielding_consumer_looks_at_few_consumers_of_other_tubes():
    waiters = with_tubes(500, ready=1)
    for _ in range(50):
        add(waiters, Consumer("*", is_selective=True))
    waiters.entries()
    general = add(waiters, Consumer("*", wanted_tasks=500, yielding=set(waiters.board.tasks)))
    waiters.is_woken = True
    claims = waiters.entry()
    assert [claim.consumer for claim in claims] == [general]
    assert len(claims[0].encoded.command.tubes) <= CLAIM_STEPS_MAX // 50 + 1


def test_many_consumers_whose_time_is_over_are_looked_at_for_several_entries():
    waiters = with_tubes(3_000, ready=1)
    left = []
    for _ in range(100):
        consumer = add(waiters, Consumer("*"))
        waiters.leaving.add(consumer, lambda: left.append(True))
    waiters.board.tasks = {}
    assert calls_of(waiters.entry) < 20 * CLAIM_STEPS_PER_ENTRY_MAX
    while waiters.leaving.waiting:
        waiters.entry()
    assert len(left) == 100


def test_consumers_that_want_tasks_again_are_rechecked_for_several_entries():
    waiters = with_tubes(3_000, ready=1)
    consumers = [add(waiters, Consumer("*", is_selective=True, one_shot=False)) for _ in range(5)]
    waiters.entries()  # no task suits
    for consumer in consumers:
        waiters.requeue(consumer)
    runs = []
    waiters.is_woken = True
    while waiters.is_woken:
        runs.append(calls_of(waiters.entry))
    assert not waiters.to_recheck
    assert len(runs) >= 5
    assert max(runs) < 10 * CLAIM_STEPS_PER_ENTRY_MAX


def test_a_take_that_looked_at_too_few_tasks_is_repeated_with_fewer_tubes():
    waiters = with_tubes(3, ready=9)
    consumer = add(waiters, Consumer("*", is_selective=True))
    counts = []
    while claims := waiters.entry():
        (claim,) = claims
        counts.append(len(claim.encoded.command.tubes))
        consumer.claimed = 0
        waiters.claim_answered(claim, 0, cut_short=True)
    assert counts == [3, 2, 1]


def test_new_tubes_are_compared_with_waiting_consumers_in_short_runs():
    waiters = CheckedWaiters(CountingBoard())
    consumers = [add(waiters, Consumer("*")) for _ in range(1_000)]
    created = [f"x{number:05}" for number in range(50)]
    for name in created:
        assert calls_of(waiters.expect_ready, name, 1) < 20
    runs, claims = [], []
    waiters.is_woken = True
    while waiters.is_woken:
        waiters.is_woken = False
        runs.append(calls_of(lambda: claims.extend(waiters.claims())))
        waiters.is_woken |= bool(waiters.to_check or waiters.to_recheck)
    assert max(runs) < 60_000
    assert [claim.consumer for claim in claims] == consumers[:50]
    assert sorted(name for claim in claims for name in claim.shares) == created


def test_a_consumer_that_comes_after_a_new_tube_is_behind_those_that_waited():
    waiters = CheckedWaiters(CountingBoard())
    early = add(waiters, Consumer("m*"))
    late = add(waiters, Consumer("mail"))
    later = add(waiters, Consumer("ma*"))
    waiters.expect_ready("mail", 3)
    assert [claim.consumer for claim in waiters.entry()] == [early, late, later]
