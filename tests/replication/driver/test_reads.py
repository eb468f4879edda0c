"""Linearizable reads share rounds, and every read ends."""

from __future__ import annotations

from taskraft_replication.core.types import LogIndex, ReadState
from taskraft_replication.driver.reads import LinearizableReads
from taskraft_replication.errors import ReadUnconfirmed
from tests.replication.driver.stand_ins import Leader, Waiting


def test_reads_share_rounds_and_wait_for_the_state():
    core = Leader()
    reads = LinearizableReads(core, 1, retry_ticks=2, expiry_ticks=6)
    first, second = Waiting(), Waiting()
    reads.add(first)
    reads.begin_round()
    reads.add(second)
    reads.begin_round()
    assert len(core.asked) == 1
    reads.answered(read_state(5, core.asked[0]))
    reads.applied(LogIndex(4))
    assert not first.done()
    reads.applied(LogIndex(5))
    assert first.result == 5
    reads.begin_round()
    assert len(set(core.asked)) == 2


def test_a_late_answer_to_an_earlier_round_confirms_no_new_read():
    """The earlier round was repeated and answered twice; a new read may need a later entry."""
    core = Leader()
    reads = LinearizableReads(core, 1, retry_ticks=2, expiry_ticks=6)
    first, second = Waiting(), Waiting()
    reads.add(first)
    reads.begin_round()
    reads.answered(read_state(5, core.asked[0]))
    reads.add(second)
    reads.begin_round()
    reads.answered(read_state(5, core.asked[0]))
    reads.applied(LogIndex(9))
    assert first.result == 5
    assert not second.done()
    reads.answered(read_state(8, core.asked[1]))
    reads.applied(LogIndex(9))
    assert second.result == 8


def test_an_answer_to_the_previous_incarnation_confirms_no_read():
    """Rounds are numbered from 1 in each incarnation."""
    before, now = Leader(), Leader()
    for core, incarnation in ((before, 1), (now, 2)):
        reads = LinearizableReads(core, incarnation, retry_ticks=2, expiry_ticks=6)
        reader = Waiting()
        reads.add(reader)
        reads.begin_round()
    reads.answered(read_state(5, before.asked[0]))
    reads.applied(LogIndex(9))
    assert not reader.done()


def read_state(index: int, context: bytes):
    return ReadState(LogIndex(index), context)


def test_an_unanswered_read_is_repeated_and_times_out():
    core = Leader()
    reads = LinearizableReads(core, 1, retry_ticks=2, expiry_ticks=6)
    reader = Waiting()
    reads.add(reader)
    reads.begin_round()
    for _ in range(5):
        reads.tick()
    assert core.asked == [core.asked[0]] * 3
    assert not reader.done()
    reads.tick()
    assert isinstance(reader.error, ReadUnconfirmed)


def test_a_confirmed_read_whose_entries_do_not_arrive_times_out():
    """The member may have been cut off or removed after the confirmation."""
    core = Leader()
    reads = LinearizableReads(core, 1, retry_ticks=2, expiry_ticks=6)
    early, late = Waiting(), Waiting()
    reads.add(early)
    reads.begin_round()
    reads.answered(read_state(5, core.asked[0]))
    reads.tick()
    reads.add(late)
    reads.begin_round()
    reads.answered(read_state(5, core.asked[1]))
    for _ in range(4):
        reads.tick()
    assert not early.done()
    reads.tick()
    assert isinstance(early.error, ReadUnconfirmed)
    assert not late.done()
    reads.applied(LogIndex(5))
    assert late.result == 5


def test_a_stopped_member_ends_all_reads():
    core = Leader()
    reads = LinearizableReads(core, 1, retry_ticks=2, expiry_ticks=6)
    confirmed, asked, waiting = Waiting(), Waiting(), Waiting()
    reads.add(confirmed)
    reads.begin_round()
    reads.answered(read_state(5, core.asked[0]))
    reads.add(asked)
    reads.begin_round()
    reads.add(waiting)
    reads.fail_all(ReadUnconfirmed("the end"))
    assert all(each.done() for each in (confirmed, asked, waiting))
    reads.applied(LogIndex(5))
    assert confirmed.result is None


def test_reads_above_the_limit_are_refused_at_once(monkeypatch):
    monkeypatch.setattr("taskraft_replication.driver.reads.READERS_MAX", 2)
    core = Leader()
    reads = LinearizableReads(core, 1, retry_ticks=2, expiry_ticks=6)
    waiting = [Waiting() for _ in range(3)]
    for each in waiting:
        reads.add(each)
    assert [each.done() for each in waiting] == [False, False, True]
    assert isinstance(waiting[2].error, ReadUnconfirmed)
    reads.begin_round()
    again = Waiting()
    reads.add(again)
    assert not again.done(), "reads of the running round do not count"


def test_the_timeout_of_a_read_counts_from_the_start_of_its_round():
    core = Leader()
    reads = LinearizableReads(core, 1, retry_ticks=2, expiry_ticks=6)
    for _ in range(5):
        reads.tick()
    reader = Waiting()
    reads.add(reader)
    reads.begin_round()
    asked = []
    for _ in range(5):
        reads.tick()
        asked.append(len(core.asked))
    assert asked == [1, 2, 2, 3, 3]
    assert not reader.done()
    reads.tick()
    assert isinstance(reader.error, ReadUnconfirmed)


def test_a_round_starts_only_if_a_read_waits_and_no_round_is_running():
    core = Leader()
    reads = LinearizableReads(core, 1, retry_ticks=2, expiry_ticks=6)
    assert not reads.has_next
    reads.add(Waiting())
    assert reads.has_next
    reads.begin_round()
    assert not reads.has_next
    reads.add(Waiting())
    assert not reads.has_next
    reads.answered(read_state(5, core.asked[0]))
    assert reads.has_next
