"""Consumers with patterns wait on all matching tubes, at a cost linear in tubes and patterns."""

from taskraft_service.leader.waiters import Waiters
from tests.service.counted_calls import calls_of
from tests.service.leader.waiting import Board, Consumer, taken


def test_a_new_tube_is_compared_with_few_of_the_patterns_that_wait():
    waiters = Waiters(Board(a=0))
    for consumer in range(100):
        patterns = ["*a" * 60 + f"b{consumer:02}{number:02}" for number in range(64)]
        waiters.add(Consumer(*patterns))
    waiters.expect_ready("a" * 100 + "b0017", 1)
    assert calls_of(waiters.claims) < 3_000


def test_a_consumer_of_many_tubes_costs_the_same_for_each_tube():
    board = Board(**{f"x{number:05}": 0 for number in range(2_000)})
    waiters = Waiters(board)
    waiters.add(Consumer("y*"))
    first = calls_of(waiters.add, Consumer("*"))
    assert calls_of(waiters.add, Consumer("*x*")) < 40 * 2_000
    assert first < 60 * 2_000


def test_a_consumer_with_a_pattern_waits_on_a_tube_that_others_await_before_it_exists():
    board = Board()
    waiters = Waiters(board)
    early, late = Consumer("mail"), Consumer("m*", wanted_tasks=5)
    waiters.add(early)
    waiters.add(late)
    board.tasks["mail"] = 0
    waiters.expect_ready("mail", 3)
    assert taken(waiters.claims()) == [(early, "mail", 1), (late, "mail", 5)]


def test_a_consumer_with_a_pattern_waits_on_a_tube_that_was_created_between_others():
    board = Board(a=0)
    waiters = Waiters(board)
    early, late = Consumer("m*"), Consumer("*")
    waiters.add(early)
    board.tasks["mail"] = 2
    waiters.add(late)
    assert taken(waiters.claims()) == [(early, "mail", 1), (late, "mail", 1)]


def test_the_bookkeeping_of_a_tube_ends_with_its_expected_tasks():
    waiters = Waiters(Board())
    waiters.add(Consumer("m*"))
    waiters.expect_ready("fax", 1)
    waiters.forget_expected("fax", 1)
    assert waiters.claims() == []
    assert "fax" not in waiters._tubes
