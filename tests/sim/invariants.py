"""Check the invariants of Raft after every step: Raft paper, figure 3, and more.

Numbers in brackets are those of the list in docs/raft.md. A broken invariant raises ``Violation``
with a sentence that describes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft_replication.core import membership
from taskraft_replication.core.confchange import of_entry
from taskraft_replication.core.quorum import VoteResult, joint_vote
from taskraft_replication.core.types import (
    ConfState,
    Entry,
    LogIndex,
    MemberId,
    RaftRole,
    SnapshotMeta,
    Term,
)
from taskraft_replication.storage.membership_history import BOOTSTRAP_INDEX
from taskraft_replication.storage.stored_log import StoredLog
from tests.sim.flow import Flow
from tests.sim.history import History
from tests.sim.machine import Applied, Stamped
from tests.sim.promises import Promises
from tests.sim.time_rules import TimeRules
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.member import Member

_Marks = tuple[int, int, int, int]
"""Term, commit index, applied index and first index."""


class Invariants:
    """The facts established by the history of the group so far."""

    def __init__(self, members: dict[MemberId, Member]) -> None:
        self._members = members
        self._leaders: dict[Term, MemberId] = {}
        self._committed: dict[int, Term] = {}
        self._contents: dict[int, bytes] = {}
        self._digests: dict[int, bytes] = {}
        self._configurations: dict[int, ConfState] = {}
        self._seen: dict[MemberId, _Marks] = {}
        self._acted_by: dict[MemberId, ConfState] = {}
        self._in_force: list[ConfState] = []
        """The configurations after each committed change, computed here from the entries."""
        self._flow = Flow(members)
        self._lasts: dict[tuple[MemberId, Term], LogIndex] = {}
        self._commit_of_term: dict[Term, LogIndex] = {}
        """The highest index that the leader of each term has committed."""
        self._last_changes: dict[MemberId, LogIndex] = {}
        self.promises = Promises()
        self.history = History()
        self.time_rules = TimeRules()
        self.commit_max = LogIndex(1)

    def found(self, configuration: ConfState) -> None:
        """Record the initial configuration of the group."""
        self._in_force = [configuration]

    # Events

    def applied(
        self, member: Member, entry: Entry, applied: Applied, content: Stamped | None
    ) -> None:
        """Check that all members apply the same entries, and only committed ones. [2, 9]"""
        self.check_state_use(member)
        index = entry.index
        committed = self._committed.get(index, entry.term)
        demand(committed == entry.term, f"{member.id} applies the uncommitted entry {index}")
        demand(
            self._contents.setdefault(index, entry.data) == entry.data,
            f"two contents were applied at {index}",
        )
        demand(
            self._digests.setdefault(index, applied.digest) == applied.digest,
            f"{member.id} has a state at {index} that differs from the other members",
        )
        self.time_rules.applied(index, content)
        self.history.record(applied, content)

    def installed(self, member: Member, index: LogIndex, digest: bytes) -> None:
        """Check that a snapshot equals the state that other members had at its index. [9]"""
        demand(
            self._digests.get(index) == digest,
            f"{member.id} installed a state at {index} that no member had",
        )

    def read(self, asked_at: LogIndex, answer: LogIndex) -> None:
        """Check that a linearizable read saw everything committed before its request. [7]"""
        demand(answer >= asked_at, f"a read was answered at {answer}, but {asked_at} was committed")

    def check_installable(self, meta: SnapshotMeta) -> None:
        """Check that a snapshot contains only committed entries and has their configuration."""
        demand(
            self._committed.get(meta.index, meta.term) == meta.term,
            f"a snapshot of {meta.index} names term {meta.term}",
        )
        demand(
            self._configurations.get(meta.index, meta.conf_state) == meta.conf_state,
            f"a snapshot of {meta.index} names another configuration than was in force",
        )

    def check_state_use(self, member: Member) -> None:
        """Check that a member ends as soon as it has found damage of its state. [11]"""
        demand(
            member.damage is None or not member.damage.is_found,
            f"{member.id} goes on with a state that it has found damaged",
        )

    # States

    def check(self, member: Member) -> None:
        """Check a member after an event on it."""
        self.check_state_use(member)
        core = member.driver.core
        leads = core.role is RaftRole.LEADER
        applied = member.machine.applied_index
        marks = (core.term, core.commit_index, applied, member.view.first_index())
        before = self._seen.get(member.id, (0, 0, 0, 0))
        if marks == before and not leads:
            return
        self._check_marks(member, marks, before)
        self._seen[member.id] = marks
        if applied != before[2] and not member.is_installing:
            self._check_configuration(member, applied)
        established = (len(self._leaders), self.commit_max)
        if leads:
            self._check_leader(member)
        for index in range(before[1] + 1, core.commit_index + 1):
            self._check_committed(member, LogIndex(index))
        if leads and established != (len(self._leaders), self.commit_max):
            self._check_in_force(member)
        self._acted_by[member.id] = member.configuration

    def _check_marks(self, member: Member, marks: _Marks, before: _Marks) -> None:
        """Check that indexes and terms never fall, and that the indexes are ordered. [4]"""
        for name, now, then in zip(
            ("term", "commit index", "applied index", "first index"), marks, before, strict=True
        ):
            demand(now >= then, f"the {name} of {member.id} fell from {then} to {now}")
        _, commit, applied, first = marks
        last = member.driver.core.last_index
        demand(applied <= commit <= last, f"{member.id}: {applied}, {commit}, {last} in this order")
        demand(
            member.driver.core._member.log.last_term <= marks[0],
            f"{member.id} has entries of a later term than {marks[0]}",
        )
        demand(first <= applied + 1, f"the log of {member.id} begins behind what is applied")

    def _check_configuration(self, member: Member, applied: LogIndex) -> None:
        """Check that all members use the same configuration at the same index. [6]"""
        configuration = member.membership_at(applied)
        known = self._configurations.setdefault(applied, configuration)
        demand(
            known == configuration,
            f"{member.id} has {configuration} at {applied}, others {known}",
        )

    def _check_leader(self, member: Member) -> None:
        core = member.driver.core
        known = self._leaders.get(core.term)
        if known is None:
            self._leaders[core.term] = member.id
            self._check_election(member)
        else:
            demand(known == member.id, f"term {core.term} has two leaders: {known}, {member.id}")
        last = self._lasts.get((member.id, core.term), LogIndex(0))
        demand(core.last_index >= last, f"{member.id} cut its log while it led")
        if core.last_index > last:
            self._lasts[(member.id, core.term)] = core.last_index
            demand(
                len(member.uncommitted_changes()) <= 1,
                f"{member.id} leads with two membership changes that are not committed",
            )
        self._flow.check(member)

    def _check_election(self, member: Member) -> None:
        """Check a new leader's votes [1, 6], and that it has all committed entries [2]."""
        core = member.driver.core
        votes = {
            voter: candidate == member.id
            for voter, candidate in self.promises.votes_of(core.term).items()
        }
        vote = member.durable_hard_state()
        votes[member.id] = vote.term == core.term and vote.vote == member.id
        demand(
            joint_vote(member.configuration, votes) is VoteResult.WON,
            f"{member.id} leads term {core.term} with the votes {votes}",
        )
        # Logs that agree at an index agree before it, so checking the last entry is enough. A
        # candidate
        # that gets its last vote late need not have entries that a later term has committed since
        # then.
        earlier = (index for term, index in self._commit_of_term.items() if term < core.term)
        last = max(earlier, default=LogIndex(1))
        demand(
            core.last_index >= last and member.term_at(last) == self._committed.get(last, 1),
            f"{member.id} leads term {core.term} without entry {last}, which is committed",
        )

    def _check_committed(self, member: Member, index: LogIndex) -> None:
        """Check that committed entries never change [2] and are synced on a quorum [3]."""
        term = member.term_at(index)
        if term is None:  # A snapshot has replaced the entry.
            return
        known = self._committed.get(index)
        if known is not None:
            demand(
                known == term,
                f"{member.id} commits term {term} at {index}, but term {known} was committed",
            )
            return
        self._note_change(member, index)
        self._committed[index] = term
        self.commit_max = max(self.commit_max, index)
        term_now = member.driver.core.term
        self._commit_of_term[term_now] = max(self._commit_of_term.get(term_now, index), index)
        holders = {each.id: each.has_synced(index, term) for each in self._members.values()}
        # The change may have been applied in this same step.
        in_force = (self._acted_by.get(member.id, member.configuration), member.configuration)
        demand(
            any(joint_vote(each, holders) is VoteResult.WON for each in in_force),
            f"{member.id} commits {index}, which only {holders} have synced",
        )

    def _check_in_force(self, member: Member) -> None:
        """Check that winners and leaders use one of the last two committed configurations. [6]"""
        last_two = [_voters(each) for each in self._in_force[-2:]]
        demand(
            _voters(member.configuration) in last_two,
            f"{member.id} uses {member.configuration}, but {self._in_force[-1]} is in force",
        )

    def _note_change(self, member: Member, index: LogIndex) -> None:
        if index == BOOTSTRAP_INDEX:
            return
        (entry,) = member.driver.core._member.log.entries(index, LogIndex(index + 1), 1)
        change = of_entry(entry)
        if change is not None:
            self._in_force.append(membership.change(self._in_force[-1], change))

    def began(self, member: Member, synced: tuple[LogIndex, Term] | None) -> None:
        """Record a restart: commit and applied index may start lower, the term may not. [5]

        ``synced`` is the last entry that was synced before the restart.
        """
        if synced is not None:
            demand(
                member.has_synced(*synced),
                f"{member.id} forgot entry {synced[0]} of term {synced[1]}, which it had synced",
            )
        demand(
            member.commit_found >= member.known_commit,
            f"{member.id} forgot that {member.known_commit} is committed",
        )
        self.check_start(member, member.view)
        self._acted_by.pop(member.id, None)
        if member.id in self._seen:
            # Only the synced term counts; a term that was never written may be lost.
            self._seen[member.id] = (member.durable_hard_state().term, 0, 0, 0)

    def change_stored(self, member: Member, last: LogIndex) -> None:
        """Check that the last stored membership never falls. [6]"""
        known = self._last_changes.get(member.id, LogIndex(0))
        demand(last >= known, f"{member.id} has forgotten that it has stored the change {known}")
        self._last_changes[member.id] = last
        member.change_stored(last)

    def check_start(self, member: Member, view: StoredLog) -> None:
        """Check that a start of ``member`` treats only committed entries as committed. [2]"""
        commit = view.initial_state()[0].commit
        term = view.term(commit)
        demand(
            self._committed.get(commit, term) == term,
            f"a start of {member.id} takes entry {commit} of term {term} for committed",
        )

    def configuration_at(self, index: LogIndex) -> ConfState | None:
        """Return the configuration in force at ``index``, if any member was observed there."""
        return self._configurations.get(index)

    def compare_logs(self) -> None:
        """Check that logs which agree at one index agree at all indexes before it. [2]"""
        whole = [each for each in self._members.values() if not each.is_damaged and each.has_lived]
        for position, one in enumerate(whole):
            for other in whole[position + 1 :]:
                self._compare(one, other)

    def _compare(self, one: Member, other: Member) -> None:
        first = max(one.view.first_index() - 1, other.view.first_index() - 1)
        last = min(one.view.last_index(), other.view.last_index())
        have_met = False
        for index in range(last, first - 1, -1):
            at = LogIndex(index)
            meet = one.view.term(at) == other.view.term(at)
            demand(
                meet or not have_met,
                f"{one.id} and {other.id} differ at {index}, below where they agree",
            )
            have_met = have_met or meet


def _voters(configuration: ConfState) -> tuple[frozenset[MemberId], frozenset[MemberId]]:
    """Return the members whose votes and acknowledgements count."""
    return frozenset(configuration.voters), frozenset(configuration.voters_outgoing)
