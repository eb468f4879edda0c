"""Random orders of events keep the guarantees of the protocol; committed entries stay.

A small search over schedules: messages are lost, duplicated and reordered, disks are slow, members
crash and lose unsynced data, the configuration changes. The full simulation with clocks, files and
clients is in tests/sim.
"""

import contextlib
from random import Random

import pytest

from taskraft_replication.core.confchange import (
    ConfChange,
    ConfChangeTransition,
    MemberChange,
    MemberChangeKind,
)
from taskraft_replication.core.errors import ProposalDropped
from taskraft_replication.core.types import LogIndex, MemberId, RaftRole
from tests.replication.core.cluster import Cluster

STEPS = 1500


class Schedule:
    """One run, determined by its seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(
            self.random.choice((3, 3, 5)),
            election_ticks=4,
            draw=self.random.randrange,
            pre_vote=self.random.random() < 0.7,
            check_quorum=self.random.random() < 0.7,
            inflight_messages_max=self.random.choice((1, 3, 256)),
            message_bytes_max=self.random.choice((1, 20, 1 << 20)),
            committed_bytes_max=self.random.choice((1, 1 << 20)),
        )
        self.proposed = 0
        self.read_floor: dict[bytes, int] = {}
        self.answered: dict[bytes, int] = {}
        self.highest_commit = 0

    def run(self) -> None:
        actions = [
            (self.tick, 30),
            (self.take_ready, 40),
            (self.sync, 30),
            (self.apply, 25),
            (self.deliver, 60),
            (self.lose, 3),
            (self.double, 3),
            (self.propose, 8),
            (self.read, 2),
            (self.crash, 0.6),
            (self.change, 0.7),
            (self.transfer, 0.4),
            (self.compact, 1),
            (self.forget, 0.2),
        ]
        todo = [action for action, _ in actions]
        weights = [weight for _, weight in actions]
        for action in self.random.choices(todo, weights, k=STEPS):
            action()
            self.check()

    def any_peer(self):
        return self.random.choice(list(self.cluster.peers.values()))

    def tick(self) -> None:
        self.any_peer().core.tick()

    def take_ready(self) -> None:
        peer = self.any_peer()
        self.cluster.network += peer.take_ready()
        for read in peer.reads:
            assert read.index >= self.read_floor[read.context], "a read misses a committed entry"
            self.answered[read.context] = read.index
        peer.reads.clear()

    def sync(self) -> None:
        peer = self.any_peer()
        if peer.append_work:
            self.cluster.network += peer.sync()

    def apply(self) -> None:
        peer = self.any_peer()
        if peer.apply_work:
            self.cluster.network += peer.apply()

    def deliver(self) -> None:
        network = self.cluster.network
        if network:
            place = self.random.randrange(min(len(network), 4))
            message = network.pop(place)
            if message.to in self.cluster.peers:
                self.cluster[message.to].step(message)

    def lose(self) -> None:
        if self.cluster.network:
            self.cluster.network.pop(self.random.randrange(len(self.cluster.network)))

    def double(self) -> None:
        if self.cluster.network:
            self.cluster.network.append(self.random.choice(self.cluster.network))

    def propose(self) -> None:
        self.proposed += 1
        with contextlib.suppress(ProposalDropped):
            self.any_peer().core.propose(f"entry {self.proposed}".encode())

    def read(self) -> None:
        context = f"read {len(self.read_floor)}".encode()
        self.read_floor[context] = self.highest_commit
        self.any_peer().core.read_index(context)

    def crash(self) -> None:
        self.cluster.crash(self.any_peer().config.member_id)

    def change(self) -> None:
        ids = list(self.cluster.peers)
        kinds = (MemberChangeKind.ADD_VOTER, MemberChangeKind.REMOVE, MemberChangeKind.ADD_LEARNER)
        chosen = self.random.sample(ids, self.random.choice((0, 1, 1, 2)))
        changes = tuple(MemberChange(self.random.choice(kinds), member) for member in chosen)
        transition = self.random.choice(tuple(ConfChangeTransition))
        for peer in self.cluster.peers.values():
            if peer.core.role is RaftRole.LEADER:
                with contextlib.suppress(ProposalDropped):
                    peer.core.propose_conf_change(ConfChange(changes, transition))

    def transfer(self) -> None:
        self.any_peer().core.transfer_leader(MemberId(self.random.randint(1, 5)))

    def compact(self) -> None:
        disk = self.any_peer().disk
        if disk.applied_index > disk.first_index():
            disk.compact(LogIndex(disk.applied_index))

    def forget(self) -> None:
        self.any_peer().core.forget_leader()

    def check(self) -> None:
        for peer in self.cluster.peers.values():
            self.cluster.check(peer)
            self.highest_commit = max(self.highest_commit, peer.core.commit_index)

    def heal(self) -> bool:
        """End the faults; return whether all members of the configuration agree in the end."""
        cluster = self.cluster
        cluster.settle()
        cluster.report_lost_snapshots()
        for _ in range(400):
            for member in list(cluster.peers):
                cluster.tick(member)
            cluster.settle()
            if self.agree():
                return True
        return False

    def agree(self) -> bool:
        """Return whether a leader has brought its whole group to its own state."""
        leaders = [p for p in self.cluster.peers.values() if p.core.role is RaftRole.LEADER]
        if not leaders:
            return False
        newest = max(leaders, key=lambda peer: peer.core.term)
        group = newest.core.status().configuration
        members = (*group.voters, *group.voters_outgoing, *group.learners)
        states = [self.cluster.peers[member].disk.applied for member in members]
        if b"the last" in self.cluster.applied(newest.config.member_id):
            return all(state == newest.disk.applied for state in states)
        with contextlib.suppress(ProposalDropped):
            newest.core.propose(b"the last")
        return False


@pytest.mark.parametrize("seed", range(60))
def test_a_random_schedule_keeps_the_guarantees(seed):
    schedule = Schedule(seed)
    schedule.run()
    assert schedule.heal(), "the members differ"
