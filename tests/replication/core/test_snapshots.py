"""A member that needs trimmed entries gets a snapshot; an outdated snapshot has no effect."""

import pytest

from taskraft_replication.core.confchange import (
    ConfChange,
    ConfChangeTransition,
    MemberChange,
    MemberChangeKind,
    encode,
)
from taskraft_replication.core.errors import SnapshotTemporarilyUnavailable
from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.trace import MessageDropped, MessageDropReason
from taskraft_replication.core.types import (
    ConfState,
    Entry,
    EntryKind,
    Message,
    MessageKind,
    RaftRole,
    Snapshot,
    SnapshotMeta,
)
from tests.replication.core.cluster import Cluster, to, with_log

K = MessageKind


def lagging(cluster, *, compacted=6):
    """Let member 3 miss so many entries that it needs a snapshot."""
    cluster.elect(1)
    for number in range(5):
        cluster[1].propose(b"%d" % number)
        cluster.settle(among=[1, 2])
    assert cluster.peers[1].disk.applied_index == 6
    cluster.peers[1].disk.compact(compacted)
    cluster.tick(1)


def with_snapshot_in_flight():
    """Return a cluster with a snapshot for member 3 in its network."""
    cluster = Cluster(3)
    lagging(cluster)
    while not [m for m in cluster.network if m.kind is K.SNAPSHOT]:
        cluster.flush()
        cluster.deliver(lambda m: m.kind is not K.SNAPSHOT)
        cluster.flush()
    return cluster


def test_a_follower_that_needs_trimmed_entries_gets_a_snapshot():
    cluster = Cluster(3)
    lagging(cluster)
    cluster.settle()
    assert cluster.applied(3) == cluster.applied(1)
    cluster[1].propose(b"more")
    cluster.settle()
    assert cluster.applied(3)[-1] == b"more"
    assert cluster[1].status().progress[3].state is ProgressState.REPLICATE


def test_a_snapshot_is_acknowledged_when_it_is_durable():
    cluster = with_snapshot_in_flight()
    cluster.deliver(to(3))
    peer = cluster.peers[3]
    assert peer.take_ready() == []
    assert [m.index for m in peer.sync()] == [6]
    assert peer.core.applied_index == 6


def test_a_lost_snapshot_is_sent_again_after_a_report():
    cluster = with_snapshot_in_flight()
    cluster.drop()
    assert cluster[1].status().progress[3].pending_snapshot == 6
    cluster[1].report_snapshot(3, ok=False)
    cluster.tick(1)
    cluster.settle()
    assert cluster.applied(3) == cluster.applied(1)


@pytest.mark.parametrize("ok", [True, False])
def test_after_a_snapshot_the_leader_waits_for_a_reply(ok):
    """The follower needs time for the installation.

    After a failed transfer, the leader waits for one heartbeat interval.
    """
    cluster = with_snapshot_in_flight()
    cluster.drop()
    cluster[1].report_snapshot(3, ok=ok)
    progress = cluster[1].status().progress[3]
    assert (progress.state, progress.paused) == (ProgressState.PROBE, True)
    assert progress.next == (7 if ok else 2)
    cluster[1].propose(b"x")
    cluster.flush(1)
    assert not [m for m in cluster.network if m.to == 3]


def test_no_snapshot_is_made_for_an_inactive_member():
    """The snapshot would only fill a queue; a member that returns sends a reply first."""
    cluster = Cluster(3, check_quorum=True)
    lagging(cluster)
    while cluster[1].status().progress[3].recent_active:
        cluster.tick(1)
        cluster.settle(among=[1, 2])
    assert cluster[1].role is RaftRole.LEADER
    cluster[1].report_unreachable(3)
    assert cluster[1].status().progress[3].next < cluster.peers[1].disk.first_index()
    cluster[1].propose(b"more")
    cluster.flush(1)
    assert not [m for m in cluster.network if m.kind is K.SNAPSHOT]
    assert cluster[1].status().progress[3].state is ProgressState.PROBE
    cluster.settle(among=[1, 2])
    cluster.tick(1)
    cluster.settle()
    assert cluster.applied(3) == cluster.applied(1)


def test_a_snapshot_that_is_still_being_made_is_requested_again(monkeypatch):
    cluster = Cluster(3)
    lagging(cluster)

    def not_yet():
        raise SnapshotTemporarilyUnavailable

    with monkeypatch.context() as busy:
        busy.setattr(cluster.peers[1].disk, "snapshot", not_yet)
        cluster.settle()
        assert cluster[1].status().progress[3].state is ProgressState.PROBE
    cluster.tick(1)
    cluster.settle()
    assert cluster.applied(3) == cluster.applied(1)


@pytest.mark.parametrize("index", [1, 3, 6])
def test_an_older_snapshot_does_not_move_the_log_back(index):
    cluster = Cluster(3)
    cluster.elect(1)
    for number in range(5):
        cluster[1].propose(b"%d" % number)
    cluster.settle()
    cluster.peers[3].disk.compact(5)
    before = cluster[3].status()
    meta = SnapshotMeta(index, 1, ConfState((1, 3)))
    cluster[3].step(Message(K.SNAPSHOT, 3, 1, 1, snapshot=Snapshot(meta, b"")))
    assert cluster[3].status() == before
    cluster.flush(3)
    assert cluster.network[-1].index == 6, "the reply contains its commit index"


def test_a_snapshot_of_entries_in_the_log_only_moves_the_commit_index():
    cluster = Cluster(3)
    with_log(cluster, 3, 1, 1, 1)
    meta = SnapshotMeta(2, 1, cluster.configuration)
    cluster[3].step(Message(K.SNAPSHOT, 3, 1, 1, snapshot=Snapshot(meta, b"")))
    assert cluster[3].commit_index == 2
    assert cluster[3].last_index == 3
    cluster.flush(3)
    assert [m.index for m in cluster.network] == [2], "entry 3 was not compared with anything"


@pytest.mark.parametrize(
    ("index", "term", "voters"), [(1, 1, (1, 2, 3)), (2, 1, (1, 2, 3)), (9, 2, (1, 2))]
)
def test_a_snapshot_that_is_not_installed_acknowledges_only_committed_entries(index, term, voters):
    """Entry 3 of the leader may differ from entry 3 of the follower."""
    cluster = Cluster(3)
    with_log(cluster, 3, 1, 1, 1, commit=2)
    snapshot = Snapshot(SnapshotMeta(index, term, ConfState(voters)), b"")
    cluster[3].step(Message(K.SNAPSHOT, 3, 1, 2, snapshot=snapshot))
    cluster.flush(3)
    assert [(m.kind, m.index, m.reject) for m in cluster.network] == [(K.APPEND_REPLY, 2, False)]


def test_a_snapshot_counts_as_a_message_of_the_leader():
    cluster = Cluster(3, draw=lambda n: 0)
    cluster[3].campaign()
    cluster.tick(3, 9)
    snapshot = Snapshot(SnapshotMeta(9, 1, cluster.configuration), b"[(1, 9, b'', 'NORMAL')]")
    cluster[3].step(Message(K.SNAPSHOT, 3, 1, 1, snapshot=snapshot))
    assert (cluster[3].role, cluster[3].leader) == (RaftRole.FOLLOWER, 1)
    cluster.flush(3)
    cluster.tick(3, 9)
    cluster[3].step(Message(K.SNAPSHOT, 3, 1, 1, snapshot=snapshot))
    cluster.tick(3, 9)
    assert cluster[3].role is RaftRole.FOLLOWER


def test_an_empty_member_gets_all_entries_after_a_failed_snapshot():
    cluster = Cluster(1)
    cluster.elect(1)
    cluster.add_empty(2)
    cluster[1].propose_conf_change(ConfChange((MemberChange(MemberChangeKind.ADD_VOTER, 2),)))
    while not cluster[1].status().progress.get(2, None) or (
        cluster[1].status().progress[2].state is not ProgressState.SNAPSHOT
    ):
        cluster.flush()
        cluster.deliver()
    cluster[1].report_snapshot(2, ok=False)
    progress = cluster[1].status().progress[2]
    assert (progress.state, progress.match, progress.next) == (ProgressState.PROBE, 0, 1)


def test_a_snapshot_replaces_entries_that_are_being_written():
    """The replaced entries must not be written after the snapshot.

    Entries of another leader belong to these indexes.
    """
    peer = Cluster(3).peers[3]
    entries = tuple(Entry(1, index, b"replaced") for index in (1, 2, 3))
    peer.core.step(Message(K.APPEND, 3, 1, 1, 0, 0, entries, 0))
    snapshot = Snapshot(SnapshotMeta(9, 2, ConfState((1, 2, 3))), b"[]")
    peer.core.step(Message(K.SNAPSHOT, 3, 2, 2, snapshot=snapshot))
    assert peer.core.last_index == 9
    peer.take_ready()
    assert [message.entries for message in peer.append_work if message.entries] == []
    while peer.append_work:
        peer.sync()
    assert (peer.disk.first_index(), peer.disk.last_index()) == (10, 9)


def test_a_snapshot_replaces_a_later_uncommitted_configuration():
    """openraft#1808: the uncommitted configuration must not stay in force."""
    cluster = Cluster(3)
    with_log(cluster, 3, 1, 1, 1)
    meta = SnapshotMeta(9, 2, ConfState((1, 2, 3, 4)))
    cluster[3].step(Message(K.SNAPSHOT, 3, 1, 2, snapshot=Snapshot(meta, b"[]")))
    status = cluster[3].status()
    assert status.configuration.voters == (1, 2, 3, 4)
    assert (status.last, status.hard_state.commit) == (9, 9)


def test_a_change_below_a_snapshot_is_not_applied_again():
    """The apply worker lags; the snapshot's configuration is already in force."""
    peer = Cluster(3).peers[3]
    change = ConfChange(
        (MemberChange(MemberChangeKind.ADD_LEARNER, 4),), ConfChangeTransition.JOINT_EXPLICIT
    )
    entry = Entry(1, 1, encode(change), EntryKind.CONF_CHANGE_V2)
    peer.core.step(Message(K.APPEND, 3, 1, 1, 0, 0, (entry,), 1))
    peer.take_ready()
    peer.sync()
    peer.take_ready()
    assert len(peer.apply_work) == 1
    joint = ConfState((1, 2, 3), (4,), (1, 2, 3))
    later = ConfState((1, 2, 3), (4, 5))
    snapshot = Snapshot(SnapshotMeta(9, 1, later), b"[(1, 9, b'', 'NORMAL')]")
    peer.core.step(Message(K.SNAPSHOT, 3, 1, 1, snapshot=snapshot))
    peer.take_ready()
    peer.apply()
    assert peer.disk.configuration == joint, "the state is that of entry 1"
    assert peer.core.status().configuration == later
    while peer.append_work:
        peer.sync()
    assert peer.disk.configuration == peer.core.status().configuration == later
    peer.core.apply_conf_change(ConfChange((MemberChange(MemberChangeKind.REMOVE, 5),)))
    assert peer.core.status().configuration == ConfState((1, 2, 3), (4,))


def test_a_change_below_two_snapshots_is_applied_to_the_state_that_they_replace():
    peer = Cluster(3).peers[3]
    change = ConfChange((MemberChange(MemberChangeKind.ADD_LEARNER, 4),))
    entry = Entry(1, 1, encode(change), EntryKind.CONF_CHANGE_V2)
    peer.core.step(Message(K.APPEND, 3, 1, 1, 0, 0, (entry,), 1))
    peer.take_ready()
    peer.sync()
    peer.take_ready()
    for index in (5, 9):
        later = ConfState((1, 2, 3), (4, index))
        snapshot = Snapshot(SnapshotMeta(index, 1, later), b"[]")
        peer.core.step(Message(K.SNAPSHOT, 3, 1, 1, snapshot=snapshot))
    peer.apply()
    assert peer.disk.configuration == ConfState((1, 2, 3), (4,))
    assert peer.core.status().configuration == later


def test_a_follower_that_catches_up_without_its_snapshot_gets_entries():
    """The follower may have got another snapshot, or the entries before the log was trimmed."""
    cluster = Cluster(3)
    lagging(cluster, compacted=4)
    while cluster[1].status().progress[3].state is not ProgressState.SNAPSHOT:
        cluster.flush(1, 2)
        cluster.deliver()
        cluster.flush(3)
    cluster.flush(1)
    cluster.drop()
    assert cluster[1].status().progress[3].pending_snapshot == 6
    cluster[1].step(Message(K.APPEND_REPLY, 1, 3, 1, index=3))
    assert cluster[1].status().progress[3].state is ProgressState.SNAPSHOT
    cluster[1].step(Message(K.APPEND_REPLY, 1, 3, 1, index=4))
    progress = cluster[1].status().progress[3]
    assert (progress.state, progress.match) == (ProgressState.REPLICATE, 4)
    cluster.flush(1)
    (append,) = (m for m in cluster.network if m.to == 3)
    assert [entry.index for entry in append.entries] == [5, 6]


def test_a_snapshot_without_this_member_is_refused():
    cluster = Cluster(3)
    meta = SnapshotMeta(9, 2, ConfState((1, 2)))
    message = Message(K.SNAPSHOT, 3, 1, 2, snapshot=Snapshot(meta, b""))
    cluster[3].step(message)
    expected = MessageDropped(message, MessageDropReason.NOT_FOUND_IN_SNAPSHOT)
    assert expected in cluster.peers[3].facts
    assert cluster[3].last_index == 0


def test_a_snapshot_does_not_commit_divergent_entries():
    """Failure B of PySyncObj: a snapshot moved the commit index of a divergent follower."""
    cluster = Cluster(3)
    cluster.elect(1)
    for _ in range(3):
        cluster[1].propose(b"of the deposed leader")
    cluster.flush(1)
    cluster.drop()
    cluster.elect(2, among=[2, 3])
    for _ in range(4):
        cluster[2].propose(b"kept")
        cluster.settle(among=[2, 3])
    cluster.peers[2].disk.compact(cluster.peers[2].disk.applied_index)
    cluster.tick(2)
    while cluster.flush() or cluster.network:
        cluster.deliver()
        assert b"of the deposed leader" not in cluster.applied(1)
    assert cluster.applied(1) == cluster.applied(2) == [b"kept"] * 4
