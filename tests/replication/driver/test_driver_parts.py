"""The parts of the driver that need no clock and no disk to be judged."""

from __future__ import annotations

from replication.core.types import Entry, LogIndex, MemberId, RaftRole, ReadState, Term
from replication.driver.log_writer import _overwrite
from replication.driver.proposals import Proposals
from replication.driver.reads import Reads
from replication.errors import NotLeader, ProposalLost, ReadUnconfirmed
from replication.storage.recent import RecentEntries
from replication.storage.terms import Terms


class Waiting:
    """An outcome that somebody waits for."""

    def __init__(self) -> None:
        self.result: object = None
        self.error: BaseException | None = None

    def done(self) -> bool:
        return self.result is not None or self.error is not None

    def set_result(self, result: object, /) -> None:
        self.result = result

    def set_exception(self, exception: BaseException, /) -> None:
        self.error = exception


def entry(index: int, term: int = 1, data: bytes = b"") -> Entry:
    return Entry(Term(term), LogIndex(index), data)


class Leader:
    """Stands for a core that leads and takes everything."""

    def __init__(self, term: int = 1) -> None:
        self.role = RaftRole.LEADER
        self.term = Term(term)
        self.leader = MemberId(1)
        self.last_index = LogIndex(10)
        self.asked: list[bytes] = []

    def propose_many(self, datas: list[bytes]) -> None:
        self.last_index = LogIndex(self.last_index + len(datas))

    def read_index(self, context: bytes) -> None:
        self.asked.append(context)


def test_a_proposal_is_resolved_by_index_and_term():
    proposals, own, other = Proposals(), Waiting(), Waiting()
    proposals.put(b"own", own)
    proposals.put(b"other", other)
    proposals.propose(Leader())
    proposals.applied(entry(11, term=1), "done")
    proposals.applied(entry(12, term=2), "of another leader")
    assert own.result == "done"
    assert isinstance(other.error, ProposalLost)


def test_an_entry_of_a_later_leadership_at_the_same_index_ends_the_wait_for_the_earlier():
    proposals, earlier, later = Proposals(), Waiting(), Waiting()
    proposals.put(b"earlier", earlier)
    proposals.propose(Leader(term=1))
    proposals.put(b"later", later)
    proposals.propose(Leader(term=3))
    assert isinstance(earlier.error, ProposalLost)
    proposals.applied(entry(11, term=3), "done")
    assert later.result == "done"


def test_what_is_committed_when_leadership_is_lost_is_still_waited_for():
    proposals = Proposals()
    waiting = [Waiting() for _ in range(4)]
    for each in waiting:
        proposals.put(b"", each)
    proposals.propose(Leader())
    proposals.lose_after(LogIndex(12), "leadership was lost")
    assert [each.error is None for each in waiting] == [True, True, False, False]


def test_a_follower_refuses_what_was_not_proposed_yet():
    proposals, waiting, core = Proposals(), Waiting(), Leader()
    core.role = RaftRole.FOLLOWER
    proposals.put(b"", waiting)
    proposals.propose(core)
    assert isinstance(waiting.error, NotLeader)
    assert not proposals.has_next


def test_a_cancelled_waiter_is_left_alone():
    proposals, waiting = Proposals(), Waiting()
    proposals.put(b"", waiting)
    proposals.propose(Leader())
    waiting.set_result("cancelled")
    proposals.applied(entry(11), "done")
    assert waiting.result == "cancelled"


def test_readers_share_rounds_and_wait_for_the_state():
    core = Leader()
    reads = Reads(core, 1, retry_ticks=2, expiry_ticks=6)
    first, second = Waiting(), Waiting()
    reads.add(first)
    reads.begin_round()
    reads.add(second)
    reads.begin_round()
    assert len(core.asked) == 1
    reads.answered(read_state(5, b"of an earlier round"))
    reads.answered(read_state(5, core.asked[0]))
    reads.applied(LogIndex(4))
    assert not first.done()
    reads.applied(LogIndex(5))
    assert first.result == 5
    reads.begin_round()
    assert len(set(core.asked)) == 2


def read_state(index: int, context: bytes):
    return ReadState(LogIndex(index), context)


def test_a_read_is_asked_again_and_given_up_in_the_end():
    core = Leader()
    reads = Reads(core, 1, retry_ticks=2, expiry_ticks=6)
    reader = Waiting()
    reads.add(reader)
    reads.begin_round()
    for _ in range(5):
        reads.tick()
    assert core.asked == [core.asked[0]] * 3
    assert not reader.done()
    reads.tick()
    assert isinstance(reader.error, ReadUnconfirmed)


def test_a_confirmed_read_whose_entries_never_come_is_given_up():
    """The member may have been cut off, or removed, since."""
    core = Leader()
    reads = Reads(core, 1, retry_ticks=2, expiry_ticks=6)
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


def test_no_reader_waits_for_a_member_that_has_ended():
    core = Leader()
    reads = Reads(core, 1, retry_ticks=2, expiry_ticks=6)
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


def test_later_writes_replace_earlier_ones_in_a_batch():
    entries = [entry(5), entry(6), entry(7)]
    _overwrite(entries, [entry(6, 2), entry(7, 2), entry(8, 2)])
    assert [each.term for each in entries] == [1, 2, 2, 2]
    _overwrite(entries, [entry(9, 2)])
    assert [each.index for each in entries] == [5, 6, 7, 8, 9]
    _overwrite(entries, [entry(3, 3)])
    assert entries == [entry(3, 3)]
    _overwrite(entries, ())
    assert entries == [entry(3, 3)]


def test_terms_are_known_from_before_the_first_entry():
    terms = Terms(LogIndex(10), Term(2))
    for index, term in ((11, 2), (12, 3), (13, 3), (14, 5)):
        terms.append(LogIndex(index), Term(term))
    assert [terms.term(LogIndex(index)) for index in range(10, 15)] == [2, 2, 3, 3, 5]
    terms.drop_before(LogIndex(12))
    assert (terms.before, terms.term(LogIndex(12)), terms.term(LogIndex(14))) == (12, 3, 5)
    terms.cut_after(LogIndex(13))
    assert terms.last == 13
    terms.append(LogIndex(14), Term(4))
    assert terms.term(LogIndex(14)) == 4


def test_recent_entries_are_bounded_by_number_and_by_size():
    recent = RecentEntries(bytes_max=1000, entries_max=10)
    for index in range(1, 100):
        recent.append(entry(index, data=b"x" * 10))
        assert recent.first is not None
        assert index - recent.first < 10
    first = recent.first
    recent.drop_before(LogIndex(first - 2))
    assert recent.first == first, "what is gone already takes nothing with it"
    recent.append(entry(100, data=b"x" * 5000))
    assert recent.first == 100
    recent.cut_after(LogIndex(50))
    assert recent.first is None
    recent.drop_before(LogIndex(50))
    assert recent.first is None
