"""Check after every step what must hold in every step (docs: Raft paper, figure 3, and more).

A breach raises ``Violation`` with a sentence that says what happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.core.types import (
    Entry,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    RaftRole,
    SnapshotMeta,
    Term,
)

if TYPE_CHECKING:
    from tests.sim.member import Member


class Violation(AssertionError):
    """Something that must never happen has happened."""


def demand(holds: bool, message: str) -> None:
    if not holds:
        raise Violation(message)


class Invariants:
    """What the whole history of the group has established."""

    def __init__(self, members: dict[MemberId, Member]) -> None:
        self._members = members
        self._quorum = len(members) // 2 + 1
        self._leaders: dict[Term, MemberId] = {}
        self._votes: dict[tuple[MemberId, Term], MemberId] = {}
        self._committed: dict[int, Term] = {}
        self._contents: dict[int, bytes] = {}
        self._digests: dict[int, bytes] = {}
        self._indexes: dict[bytes, int] = {}
        self._seen: dict[MemberId, tuple[int, int, int]] = {}
        self.commit_max = LogIndex(1)

    # What members do

    def sent(self, member: Member, message: Message) -> None:
        """Check a message at the moment in which it leaves."""
        hard_state = member.durable_hard_state()
        is_pre_vote = message.kind in {MessageKind.PRE_VOTE, MessageKind.PRE_VOTE_REPLY}
        demand(
            is_pre_vote or message.term <= hard_state.term,
            f"{member.id} sent {message.kind.value} of term {message.term}, "
            f"but only term {hard_state.term} is durable",
        )
        if message.kind is MessageKind.VOTE:
            self._vote(member.id, message.term, member.id)
        if message.kind is MessageKind.VOTE_REPLY and not message.reject:
            self._vote(member.id, message.term, message.to)
            durable = hard_state.term > message.term or hard_state.vote == message.to
            demand(durable, f"{member.id} sent a vote that is not durable")
        if message.kind is MessageKind.APPEND_REPLY and not message.reject:
            synced = member.view.last_index()
            superseded = hard_state.term > message.term
            demand(
                superseded or message.index <= synced,
                f"{member.id} acknowledged {message.index}, but only {synced} is synced",
            )

    def _vote(self, voter: MemberId, term: Term, candidate: MemberId) -> None:
        earlier = self._votes.setdefault((voter, term), candidate)
        demand(
            earlier == candidate,
            f"{voter} voted for {earlier} and for {candidate} in term {term}",
        )

    def applied(self, member: Member, entry: Entry, digest: bytes) -> None:
        """Check that everybody applies the same."""
        index = entry.index
        demand(
            self._digests.setdefault(index, digest) == digest,
            f"{member.id} has another state at {index} than others",
        )
        self._indexes[digest] = index
        self._contents.setdefault(index, entry.data)
        demand(self._contents[index] == entry.data, f"two contents were applied at {index}")

    def installed(self, member: Member, index: LogIndex, digest: bytes) -> None:
        """Check that a snapshot holds what others had at that index."""
        demand(
            self._digests.get(index) == digest,
            f"{member.id} installed a state at {index} that nobody had",
        )

    def acknowledged(self, data: bytes, digest: bytes) -> None:
        """Check that a client was told the truth: the digest names exactly one history."""
        index = self._indexes.get(digest)
        demand(
            index is not None and self._contents[index] == data,
            f"a client was told that {data[:20]!r} was applied; it was not",
        )

    def read(self, asked_at: LogIndex, answer: LogIndex) -> None:
        """Check that a linearizable read saw everything committed before it was asked for."""
        demand(answer >= asked_at, f"a read was answered at {answer}, but {asked_at} was committed")

    # What members are

    def check(self, member: Member) -> None:
        """Check a member after something happened to it."""
        core = member.driver.core
        term, commit, applied = core.term, core.commit_index, member.machine.applied_index
        before = self._seen.get(member.id, (0, 0, 0))
        if (term, commit, applied) == before and core.role is not RaftRole.LEADER:
            return
        demand(term >= before[0], f"the term of {member.id} fell from {before[0]} to {term}")
        demand(commit >= before[1], f"the commit index of {member.id} fell to {commit}")
        demand(applied >= before[2], f"the applied index of {member.id} fell to {applied}")
        demand(applied <= commit <= core.last_index, f"{member.id}: {applied} {commit}")
        self._seen[member.id] = (term, commit, applied)
        if core.role is RaftRole.LEADER:
            self._check_leader(member)
        for index in range(before[1] + 1, commit + 1):
            self._check_committed(member, LogIndex(index))

    def _check_leader(self, member: Member) -> None:
        core = member.driver.core
        known = self._leaders.get(core.term)
        if known is None:
            self._leaders[core.term] = member.id
            # Everything committed in earlier terms is in the log of every later leader; since logs
            # that agree at an index agree before it, the last one proves all.
            last = self.commit_max
            demand(
                core.last_index >= last and member.term_at(last) == self._committed.get(last, 1),
                f"{member.id} leads term {core.term} without entry {last}, which is committed",
            )
        demand(
            known in {None, member.id},
            f"term {core.term} has two leaders: {known} and {member.id}",
        )
        for peer, progress in core.status().progress.items():
            demand(progress.next > progress.match, f"next <= match for {peer} at {member.id}")
            self._check_match(member, self._members[peer], progress.match)

    def _check_match(self, leader: Member, peer: Member, match: LogIndex) -> None:
        """Check that what a leader counts as stored somewhere is synced there, itself included."""
        if peer.is_damaged or peer.durable_hard_state().term > leader.driver.core.term:
            return
        term = leader.term_at(match)
        demand(
            term is None or peer.has_synced(match, term),
            f"{leader.id} counts {match} as stored by {peer.id}, which has not synced it",
        )

    def _check_committed(self, member: Member, index: LogIndex) -> None:
        term = member.term_at(index)
        if term is None:  # A snapshot took its place.
            return
        known = self._committed.get(index)
        if known is not None:
            demand(
                known == term,
                f"{member.id} commits term {term} at {index}, but term {known} was committed",
            )
            return
        self._committed[index] = term
        self.commit_max = max(self.commit_max, index)
        holders = [each.id for each in self._members.values() if each.has_synced(index, term)]
        demand(
            len(holders) >= self._quorum,
            f"{member.id} commits {index}, which only {holders} have synced",
        )

    def began(self, member: Member, synced: tuple[LogIndex, Term] | None) -> None:
        """Note a new life: commit and applied index may start lower, the term may not.

        ``synced`` is the last entry that the life before had synced.
        """
        if synced is not None:
            demand(
                member.has_synced(*synced),
                f"{member.id} forgot entry {synced[0]} of term {synced[1]}, which it had synced",
            )
        before = self._seen.get(member.id)
        if before is not None:
            # Only what was synced counts; a term that was never written may be forgotten.
            self._seen[member.id] = (member.durable_hard_state().term, 0, 0)

    def check_installable(self, meta: SnapshotMeta) -> None:
        """Check that a snapshot stands for committed entries."""
        demand(
            self._committed.get(meta.index, meta.term) == meta.term,
            f"a snapshot of {meta.index} names term {meta.term}",
        )
