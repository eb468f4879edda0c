"""A member without a state gets the state of a peer, and forgets nothing of its log and vote."""

import pytest

from taskraft_replication.core.types import (
    ConfState,
    HardState,
    LogIndex,
    MemberId,
    SnapshotMeta,
    Term,
)
from taskraft_replication.errors import LogDamaged, StateLost
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.state_rebuild import StateRebuild
from tests.replication.log_on_disk import Log, config

CONF = ConfState(voters=(MemberId(1), MemberId(2), MemberId(3)))
VOTE = HardState(Term(1), MemberId(2), LogIndex(300))


@pytest.fixture
def log(tmp_path):
    """A log of the entries 2 to 400 of term 1, trimmed after an entry above 200; a vote for 2."""
    one = Log(tmp_path)
    one.append_each(2, 400)
    one.storage.store(VOTE, (), LogIndex(300))
    start = one.storage.trim_start(LogIndex(250))
    assert start is not None
    assert start.index > 100
    one.storage.trim(start)
    return one


def rebuild_of(log):
    return StateRebuild(DiskFileSystem(log.path), config())


def meta(index, term=1):
    return SnapshotMeta(LogIndex(index), Term(term), CONF)


def install(log, of, switch=lambda: None):
    rebuild = rebuild_of(log)
    rebuild.install(of, switch)
    rebuild.close()


def test_a_member_without_a_state_does_not_open(log):
    with pytest.raises(StateLost):
        log.open(applied=0)


def test_a_state_within_the_log_keeps_the_whole_log_and_the_vote(log):
    install(log, meta(320))
    storage = log.open(applied=320)
    assert storage.view.last_index() == 400
    assert storage.view.initial_state()[0].vote == 2
    assert storage.memberships.at(LogIndex(320)) == CONF


def test_a_state_beyond_the_log_replaces_it_and_the_term_grows_without_a_vote(log):
    install(log, meta(500, term=3))
    storage = log.open(applied=500)
    hard_state, _ = storage.view.initial_state()
    assert (storage.view.first_index(), storage.view.last_index()) == (501, 500)
    assert (hard_state.term, hard_state.vote, hard_state.commit) == (3, 0, 500)


def test_a_state_beyond_the_log_in_the_same_term_keeps_the_vote(log):
    install(log, meta(500, term=1))
    assert log.open(applied=500).view.initial_state()[0].vote == 2


def test_entries_that_contradict_the_state_were_never_committed_and_go(log):
    install(log, meta(350, term=2))
    assert log.open(applied=350).view.last_index() == 350


def test_a_state_before_the_start_of_the_log_is_refused(log):
    rebuild = rebuild_of(log)
    needed = rebuild.needed_index
    assert rebuild.refusal_of(meta(needed)) is None
    assert "the log begins after" in str(rebuild.refusal_of(meta(needed - 1)))


def test_a_crash_before_the_switch_leaves_the_log_as_it_was(log):
    class CrashError(Exception):
        pass

    def crash():
        raise CrashError

    rebuild = rebuild_of(log)
    with pytest.raises(CrashError):
        rebuild.install(meta(500, term=3), crash)
    again = rebuild_of(log)
    again.install(meta(330), lambda: None)
    again.close()
    assert log.open(applied=330).view.last_index() == 400


def test_a_crash_after_the_switch_finishes_the_installation(log):
    class CrashError(Exception):
        pass

    rebuild = rebuild_of(log)
    rebuild._storage.finish_installation = lambda _: (_ for _ in ()).throw(CrashError)
    with pytest.raises(CrashError):
        rebuild.install(meta(500, term=3), lambda: None)
    assert log.open(applied=500).view.last_index() == 500


def test_a_damaged_log_is_not_hidden_by_a_new_state(log):
    path = log.segments[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(LogDamaged):
        rebuild_of(log)


def test_a_forgotten_vote_is_not_hidden_by_a_new_state(log):
    (log.path / "raft-0" / "hard_state").unlink()
    with pytest.raises(LogDamaged):
        rebuild_of(log)


def test_a_second_repair_with_an_older_state_keeps_later_memberships(log):
    later = ConfState(voters=(MemberId(1), MemberId(2)))
    log.storage.save_memberships([(LogIndex(310), CONF), (LogIndex(340), later)])
    install(log, meta(330))
    install(log, meta(320))
    storage = log.open(applied=320)
    assert storage.memberships.at(LogIndex(330)) == CONF
    assert storage.memberships.at(LogIndex(340)) == later


def test_a_state_before_the_oldest_known_membership_is_lost_although_the_log_is_whole(tmp_path):
    """Memberships before the durable state are forgotten; an older state cannot replay the log."""
    log = Log(tmp_path)
    log.append_each(2, 50)
    log.storage.save_memberships([(LogIndex(30), CONF)])
    with pytest.raises(StateLost, match=r"oldest membership is that of entry 30, .* at entry 20"):
        log.open(applied=20)
    install(log, meta(40))
    assert log.open(applied=40).view.last_index() == 50
