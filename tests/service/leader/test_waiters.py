"""Consumers get tasks by their arrival, turns and credit, also after wrong estimates."""

import pytest

from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import (
    CLAIM_BYTES_PER_ENTRY_MAX,
    CLAIM_STEPS_PER_ENTRY_MAX,
    STEPS_PER_CLAIM,
)
from taskraft_service.limits import TAKE_TASKS_MAX
from tests.service.leader.waiting import Board, Consumer, answer, taken


def test_no_claim_is_made_when_nothing_is_ready():
    waiters = Waiters(Board(a=0))
    waiters.add(Consumer("a"))
    assert waiters.claims() == []


def test_ready_tasks_go_to_the_consumers_that_came_first():
    waiters = Waiters(Board(a=2))
    first, second, third = Consumer("a"), Consumer("a"), Consumer("a")
    for consumer in (first, second, third):
        waiters.add(consumer)
    assert taken(waiters.claims()) == [(first, "a", 1), (second, "a", 1)]
    assert waiters.claims() == []


def test_a_yielding_consumer_gets_what_the_other_consumers_of_a_tube_leave():
    waiters = Waiters(Board(a=0, b=0))
    general = Consumer("*", wanted_tasks=10, one_shot=False, yielding=("a", "b"))
    own = Consumer("a", wanted_tasks=2, one_shot=False)
    for consumer in (general, own):
        waiters.add(consumer)
    assert list(waiters.in_line("a")) == [own, general]
    waiters.expect_ready("a", 3)
    assert taken(waiters.claims()) == [(own, "a", 2), (general, "a", 1)]


def test_a_yielding_consumer_of_several_tubes_takes_only_from_tubes_without_other_consumers():
    board = Board(a=0, b=0)
    waiters = Waiters(board)
    general = Consumer("*", wanted_tasks=10, one_shot=False, yielding=("a", "b"))
    own = Consumer("b", wanted_tasks=1)
    for consumer in (general, own):
        waiters.add(consumer)
    board.tasks.update(a=1, b=1)
    waiters.expect_ready("a", 0)
    assert taken(waiters.claims()) == [(general, "a", 1), (own, "b", 1)]


def test_a_yielding_consumer_does_not_wait_for_a_consumer_that_found_no_suitable_task():
    waiters = Waiters(Board(a=1))
    general, choosy = Consumer("*", yielding=("a",)), Consumer("a", is_selective=True)
    for consumer in (general, choosy):
        waiters.add(consumer)
    first, second = waiters.claims()
    assert [first.consumer, second.consumer] == [choosy, general]


def test_an_entry_that_puts_tasks_feeds_consumers_at_once():
    waiters = Waiters(Board(a=0))
    consumer = Consumer("a", wanted_tasks=5)
    waiters.add(consumer)
    waiters.expect_ready("a", 3)
    assert taken(waiters.claims()) == [(consumer, "a", 5)]


def test_a_consumer_that_leaves_with_its_first_tasks_takes_all_that_the_entry_finds():
    """The estimate lacks tasks that become ready with the entry. No second claim follows."""
    waiters = Waiters(Board(a=1))
    leaves, stays = Consumer("a", wanted_tasks=3), Consumer("a", wanted_tasks=3, one_shot=False)
    waiters.add(leaves)
    (claim,) = waiters.claims()
    assert (claim.tasks_max, claim.estimated) == (3, 1)
    waiters.remove(leaves)
    answer(waiters, claim, 1)
    waiters.add(stays)
    (claim,) = waiters.claims()
    assert (claim.tasks_max, claim.estimated) == (1, 1)


def test_expected_tasks_and_not_wanted_ones_fill_an_entry():
    waiters = Waiters(Board(a=3))
    for _ in range(3):
        waiters.add(Consumer("a", wanted_tasks=TAKE_TASKS_MAX))
    assert len(waiters.claims()) == 1
    board = Board(a=1, b=1, c=1)
    waiters = Waiters(board)
    for name in board.tasks:
        waiters.add(Consumer(name, wanted_tasks=TAKE_TASKS_MAX))
    assert len(waiters.claims()) == 3


def test_tasks_of_an_unanswered_claim_are_not_claimed_twice():
    board = Board(a=0)
    waiters = Waiters(board)
    first, second = Consumer("a", wanted_tasks=5), Consumer("a", wanted_tasks=5)
    waiters.add(first)
    waiters.add(second)
    waiters.expect_ready("a", 3)
    (claim,) = waiters.claims()
    waiters.expect_ready("a", 2)
    assert taken(waiters.claims()) == [(second, "a", 5)]
    waiters.forget_expected("a", 3)
    answer(waiters, claim, 3)
    assert waiters.claims() == []


def test_a_claim_that_found_nothing_is_not_repeated_until_tasks_become_ready():
    board = Board(a=1)  # Tube "a" has a ready task of a type that the consumer does not take.
    waiters = Waiters(board)
    picky, other = Consumer("a"), Consumer("a")
    waiters.add(picky)
    (claim,) = waiters.claims()
    answer(waiters, claim, 0)
    assert waiters.claims() == []
    waiters.add(other)
    assert taken(waiters.claims()) == [(other, "a", 1)]
    waiters.expect_ready("a", 1)
    assert taken(waiters.claims()) == [(picky, "a", 1)]


def test_a_waiting_call_keeps_its_place_when_it_finds_nothing():
    waiters = Waiters(Board(a=1))
    first, second = Consumer("a"), Consumer("a")
    waiters.add(first)
    (claim,) = waiters.claims()
    waiters.add(second)
    answer(waiters, claim, 0)
    waiters.expect_ready("a", 1)
    assert [claim.consumer for claim in waiters.claims()] == [first, second]


def test_subscriptions_take_turns():
    board = Board(a=0)
    waiters = Waiters(board)
    one, two = (
        Consumer("a", wanted_tasks=9, one_shot=False),
        Consumer("a", wanted_tasks=9, one_shot=False),
    )
    waiters.add(one)
    waiters.add(two)
    served = []
    for _ in range(4):
        waiters.expect_ready("a", 1)
        (claim,) = waiters.claims()
        served.append(claim.consumer)
        waiters.forget_expected("a", 1)
        answer(waiters, claim, 1)
    assert served == [one, two, one, two]


def test_a_subscription_without_credit_does_not_block_others():
    waiters = Waiters(Board(a=2))
    broke, rich = Consumer("a", wanted_tasks=0, one_shot=False), Consumer("a")
    waiters.add(broke)
    waiters.add(rich)
    assert taken(waiters.claims()) == [(rich, "a", 1)]
    assert waiters.waiting_count("a") == 1
    broke.credit = 1
    waiters.requeue(broke)
    assert taken(waiters.claims()) == [(broke, "a", 1)]


def test_a_tube_is_kept_while_a_subscription_without_credit_waits_on_it():
    waiters = Waiters(Board(a=0))
    consumer = Consumer("a", wanted_tasks=0, one_shot=False)
    waiters.add(consumer)
    waiters.expect_ready("a", 1)
    assert waiters.claims() == []
    waiters.forget_expected("a", 1)
    consumer.credit = 1
    waiters.requeue(consumer)
    waiters.expect_ready("a", 1)
    assert taken(waiters.claims()) == [(consumer, "a", 1)]
    waiters.remove(consumer)
    assert waiters.waiting_count("a") == 0


def test_a_claim_names_only_tubes_with_ready_tasks():
    waiters = Waiters(Board(a=1, b=0, c=4))
    consumer = Consumer("c", "b", "a", wanted_tasks=5)
    waiters.add(consumer)
    (claim,) = waiters.claims()
    assert list(claim.encoded.command.tubes) == ["c", "a"]
    assert claim.tasks_max == 5


def test_patterns_match_existing_and_later_tubes():
    waiters = Waiters(Board(**{"mail.a": 1, "post": 1}))
    consumer = Consumer("mail.*", wanted_tasks=9, one_shot=False)
    waiters.add(consumer)
    assert taken(waiters.claims()) == [(consumer, "mail.a", 1)]
    waiters.expect_ready("mail.b", 2)
    assert taken(waiters.claims()) == [(consumer, "mail.b", 2)]
    waiters.expect_ready("other", 2)
    assert waiters.claims() == []


def test_a_tube_named_twice_is_joined_once():
    waiters = Waiters(Board(a=1))
    waiters.add(Consumer("a", "a*"))
    assert waiters.waiting_count("a") == 1


def test_removed_consumers_leave_nothing_behind():
    waiters = Waiters(Board(a=1))
    consumer = Consumer("a", "b")
    waiters.add(consumer)
    (claim,) = waiters.claims()
    waiters.remove(consumer)
    waiters.remove(consumer)
    assert len(waiters) == 0
    answer(waiters, claim, 1)
    assert waiters._tubes == {}
    assert waiters.to_check == {}
    assert waiters._found_empty == {}


@pytest.mark.parametrize("is_selective", [False, True])
def test_the_claim_of_a_removed_consumer_is_answered(is_selective):
    waiters = Waiters(Board(a=1))
    consumer = Consumer("a", is_selective=is_selective)
    waiters.add(consumer)
    (claim,) = waiters.claims()
    waiters.remove(consumer)
    answer(waiters, claim, 0)
    assert waiters._tubes == waiters.to_check == waiters._found_empty == {}


def test_a_removed_consumer_that_found_nothing_leaves_nothing_behind():
    waiters = Waiters(Board(a=1))
    consumer = Consumer("a")
    waiters.add(consumer)
    (claim,) = waiters.claims()
    answer(waiters, claim, 0)
    waiters.remove(consumer)
    assert waiters._tubes == waiters.to_check == waiters._found_empty == {}


def test_all_tubes_are_served_in_one_entry_up_to_a_limit():
    steps = STEPS_PER_CLAIM + 1  # a claim, and a look at the consumer
    before = (CLAIM_STEPS_PER_ENTRY_MAX - 1) // steps  # the tube is a step, too
    waiters = Waiters(Board(a=before, b=2, c=2))
    first = [Consumer("a") for _ in range(before)]
    others = [Consumer("b"), Consumer("b"), Consumer("c")]
    for consumer in (*first, *others):
        waiters.add(consumer)
    claims = waiters.claims()
    assert [claim.consumer for claim in claims] == [*first, others[0]]
    assert [claim.consumer for claim in waiters.claims()] == others[1:]
    assert waiters.claims() == []
    assert waiters.to_check == {}


def test_a_claim_takes_no_more_than_the_limit_of_a_take():
    waiters = Waiters(Board(a=3 * TAKE_TASKS_MAX))
    waiters.add(Consumer("a", wanted_tasks=2 * TAKE_TASKS_MAX, one_shot=False))
    (claim,) = waiters.claims()
    assert claim.tasks_max == TAKE_TASKS_MAX


def test_estimates_for_a_forgotten_tube_are_ignored():
    waiters = Waiters(Board(a=0))
    consumer = Consumer("a")
    waiters.add(consumer)
    waiters.remove(consumer)
    waiters.add(consumer)
    waiters.forget_expected("a", 3)
    waiters.expect_ready("a", 1)
    assert taken(waiters.claims()) == [(consumer, "a", 1)]


def test_a_tube_is_kept_while_an_entry_with_its_tasks_is_in_flight():
    waiters = Waiters(Board(a=0))
    consumer, later = Consumer("a"), Consumer("a")
    waiters.add(consumer)
    waiters.expect_ready("a", 1)
    waiters.remove(consumer)
    waiters.add(later)
    assert taken(waiters.claims()) == [(later, "a", 1)]
    waiters.forget_expected("a", 1)


def test_every_task_is_taken_eventually():
    """With any wrong estimates, a consumer claims while tasks are ready and wanted."""
    board = Board(a=0)
    waiters = Waiters(board)
    consumers = [Consumer("a", wanted_tasks=2, one_shot=False) for _ in range(3)]
    for consumer in consumers:
        waiters.add(consumer)
    waiters.expect_ready("a", 1)
    (claim,) = waiters.claims()
    # The entry made more tasks ready than predicted.
    board.tasks["a"] = 5
    waiters.forget_expected("a", 1)
    answer(waiters, claim, 1)
    served = 1
    while claims := waiters.claims():
        for claim in claims:
            found = min(claim.tasks_max, board.tasks["a"])
            board.tasks["a"] -= found
            served += found
            answer(waiters, claim, found)
    assert board.tasks["a"] == 0
    assert served == 6


def test_a_subscription_is_served_again_while_its_first_claim_is_unanswered():
    waiters = Waiters(Board(a=0))
    consumer = Consumer("a", wanted_tasks=9, one_shot=False)
    waiters.add(consumer)
    waiters.expect_ready("a", 1)
    assert taken(waiters.claims()) == [(consumer, "a", 1)]
    waiters.expect_ready("a", 2)
    assert taken(waiters.claims()) == [(consumer, "a", 2)]


def test_takes_name_only_tubes_that_are_served():
    waiters = Waiters(Board(a=1, b=1))
    consumer = Consumer("a", "b", wanted_tasks=5, one_shot=False)
    waiters.add(consumer)
    (claim,) = waiters.claims(lambda tube: tube == "b")
    assert taken([claim]) == [(consumer, "b", 1)]
    (other,) = waiters.claims(lambda tube: tube == "a")
    assert taken([other]) == [(consumer, "a", 1)]


def test_the_listener_is_called_when_a_consumer_wants_more():
    waiters = Waiters(Board(a=2, b=0))
    told = []
    waiters.listen(lambda: told.append(True))
    consumer = Consumer("a", "b", wanted_tasks=2, one_shot=False)
    waiters.add(consumer)
    (claim,) = waiters.claims(lambda tube: tube == "a")
    # The consumer wants no more while the answer is pending, so it leaves the queue of each tube.
    waiters.expect_ready("b", 1)
    assert waiters.claims(lambda tube: tube == "b") == []
    assert not told
    answer(waiters, claim, 0)
    assert told == [True]
    assert taken(waiters.claims(lambda tube: tube == "b")) == [(consumer, "b", 1)]


def test_a_pattern_excludes_tubes_that_the_consumer_may_not_take_from():
    waiters = Waiters(Board(a1=1, a2=1))
    consumer = Consumer("a*", wanted_tasks=5, one_shot=False)
    consumer.allows = {"a2", "a4"}.__contains__
    waiters.add(consumer)
    for later in ("a3", "a4"):
        waiters.expect_ready(later, 1)
    assert [set(claim.encoded.command.tubes) for claim in waiters.claims()] == [{"a2", "a4"}]
    assert [waiters.waiting_count(tube) for tube in ("a1", "a2", "a3", "a4")] == [0, 1, 0, 1]


def test_a_consumer_with_a_changed_filter_claims_again():
    waiters = Waiters(Board(a=1))
    consumer = Consumer("a", one_shot=False)
    waiters.add(consumer)
    (claim,) = waiters.claims()
    answer(waiters, claim, 0)
    assert waiters.claims() == []
    waiters.filter_changed(consumer)
    (claim,) = waiters.claims()
    # The answer to a claim from before the change does not count for the new filter.
    waiters.filter_changed(consumer)
    answer(waiters, claim, 0)
    assert taken(waiters.claims()) == [(consumer, "a", 1)]


def test_selective_consumers_do_not_block_others():
    """A task of a type that few consumers handle reaches such a consumer in one entry."""
    waiters = Waiters(Board(a=1))
    choosy = [Consumer("a", is_selective=True) for _ in range(50)]
    plain = [Consumer("a"), Consumer("a")]
    for consumer in (*choosy, *plain):
        waiters.add(consumer)
    claims = waiters.claims()
    assert [claim.consumer for claim in claims] == [*choosy, plain[0]]
    for claim in claims[:49]:
        answer(waiters, claim, 0)
    assert waiters.claims() == []


class Verbose(Consumer):
    """A consumer whose takes are large, for example because a pattern matches many tubes."""

    size_bytes = CLAIM_BYTES_PER_ENTRY_MAX // 3 + 1

    def take(self, tubes, tasks_max):
        encoded = super().take(tubes, tasks_max)
        return EncodedCommand(encoded.command, b"", bytes(self.size_bytes))


def test_the_takes_of_an_entry_are_limited_in_size():
    waiters = Waiters(Board(a=5, b=5))
    consumers = [Verbose(*sources) for sources in ("a", "a", "a", "a", "b", "b")]
    for consumer in consumers:
        waiters.add(consumer)
    first, second = waiters.claims(), waiters.claims()
    assert [claim.consumer for claim in (*first, *second)] == consumers
    assert [len(first), len(second)] == [3, 3]
    for claims in (first, second):
        sizes = [claim.encoded.record_bytes for claim in claims]
        assert sum(sizes[:-1]) < CLAIM_BYTES_PER_ENTRY_MAX


def test_every_entry_has_room_for_one_take_of_any_size(monkeypatch):
    monkeypatch.setattr(Verbose, "size_bytes", CLAIM_BYTES_PER_ENTRY_MAX + 1)
    waiters = Waiters(Board(a=5))
    consumers = [Verbose("a"), Verbose("a")]
    for consumer in consumers:
        waiters.add(consumer)
    entries = [[claim.consumer for claim in waiters.claims()] for _ in range(2)]
    assert entries == [[consumer] for consumer in consumers]


class Leaving:
    """Counts how often a consumer was told that it may leave."""

    def __init__(self, waiters, consumer):
        self.told = 0
        waiters.leaving.add(consumer, self._tell)

    def _tell(self):
        self.told += 1


def test_a_consumer_leaves_at_once_if_no_task_is_ready():
    waiters = Waiters(Board(a=0, b=3))
    consumer, other = Consumer("a"), Consumer("b")
    for one in (consumer, other):
        waiters.add(one)
    assert Leaving(waiters, consumer).told == 1


def test_a_consumer_does_not_leave_ready_tasks_that_no_entry_could_claim():
    waiters = Waiters(Board(a=1))
    consumer = Consumer("a")
    waiters.add(consumer)
    leaving = Leaving(waiters, consumer)
    assert leaving.told == 0
    (claim,) = waiters.claims()
    assert (claim.consumer, leaving.told) == (consumer, 1)


def test_a_consumer_leaves_when_an_earlier_one_has_claimed_the_tasks():
    waiters = Waiters(Board(a=1))
    first, second = Consumer("a"), Consumer("a")
    for consumer in (first, second):
        waiters.add(consumer)
    leaving = Leaving(waiters, second)
    assert leaving.told == 0
    assert taken(waiters.claims()) == [(first, "a", 1)]
    assert leaving.told == 1


def test_a_consumer_leaves_when_its_claim_found_no_suitable_task():
    waiters = Waiters(Board(a=1))
    consumer = Consumer("a", is_selective=True)
    waiters.add(consumer)
    (claim,) = waiters.claims()
    answer(waiters, claim, 0)
    assert Leaving(waiters, consumer).told == 1
    waiters.expect_ready("a", 1)
    assert Leaving(waiters, consumer).told == 0


def test_a_consumer_that_left_in_another_way_is_not_told():
    waiters = Waiters(Board(a=1))
    consumer = Consumer("a")
    waiters.add(consumer)
    leaving = Leaving(waiters, consumer)
    waiters.remove(consumer)
    assert (waiters.claims(), leaving.told) == ([], 0)
