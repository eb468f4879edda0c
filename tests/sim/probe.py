"""Check what a start would find if a process ended now: on a copy of its disk, without a crash.

A crash takes many steps of a run and shows one outcome of one moment. A probe takes no steps.
Moments that crashes seldom hit are therefore checked by the hundred: during a membership change, an
installation or a trim, and during recovery itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from taskraft_replication.core.types import ConfState, Entry, HardState, LogIndex, MemberId, Term
from taskraft_replication.errors import DirectoryRefused, LogDamaged, MemberRemoved, StateLost
from taskraft_replication.membership.roster import was_removed
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.metadata import Identity
from tests.sim.disk import Crashed, SimDisk
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.member import Member

PROBE_SHARE = 0.04
"""Share of plain appends that are probed; rarer storage work is always probed."""

DAMAGE_SHARE = 0.3
OPERATIONS = 14
"""Typical number of disk operations of one item of work; probes come before some of them."""

MOMENTS_MAX = 4
ROUNDS = (1, 1, 2, 3)
"""Number of starts; each but the last may end in the middle."""

PLACES = 6
"""Number of entries that are compared."""

REFUSALS = (LogDamaged, StateLost, DirectoryRefused)


@dataclass(slots=True, frozen=True)
class Facts:
    """The durable facts of a member, which every later start must find."""

    hard_state: HardState
    commit: LogIndex
    """The highest commit index that the member and its disk have known."""
    entries: tuple[tuple[LogIndex, Term], ...]
    """Some of the entries that the member has synced, including the last synced entry."""

    @property
    def last(self) -> LogIndex:
        """Index of the last entry that the member has synced."""
        return self.entries[-1][0]


@dataclass(slots=True, frozen=True)
class Copy:
    """A disk at one moment, and the state machine's applied index."""

    disk: SimDisk
    applied: LogIndex


class Probe:
    """A check of one item of storage work of ``member``."""

    def __init__(self, member: Member, rng: Random, moments: int) -> None:
        """``moments`` is the number of places in the work at which to copy the disk."""
        member.world.count("probes")
        self._member = member
        self._rng = rng
        self._before = facts_of(member, rng)
        self._moments = frozenset(rng.sample(range(OPERATIONS), moments))
        self._operations = 0
        self._copies: list[Copy] = []
        self._applied = LogIndex(0)
        """Applied index of the state machine on the copy that is being checked."""
        member.disk.watch(self._operate)

    def _operate(self) -> None:
        if self._operations in self._moments:
            self._copies.append(self._copy())
        self._operations += 1

    def _copy(self) -> Copy:
        return Copy(self._member.disk.copy(self._rng), self._member.machine.durable_index)

    def check(self) -> None:
        """Check all copies, now that the work is done."""
        kept = self._kept()
        for copy in self._copies:
            self._start(copy, lambda found: self._demand_kept(kept, found))
        if self._rng.random() < DAMAGE_SHARE:
            self._damage(self._copy())
        elif not self._copies:
            facts = facts_of(self._member, self._rng)
            self._start(self._copy(), lambda found: self._demand_same(facts, found))

    def _damage(self, copy: Copy) -> None:
        """Check that a start after damage finds all promised entries or refuses to start."""
        member, rng = self._member, self._rng
        facts, look = facts_of(member, rng), self._demand_same
        if rng.random() < 0.5 and member.view.last_index() > self._before.last:
            # A power loss can lose the mark; a new batch states what was durable before it.
            copy.disk.lose_power()
            copy.disk.flip_bit(".log")
            facts, look = self._kept(), self._demand_kept
        elif rng.random() < 0.7:
            copy.disk.flip_bit(rng.choice(("", ".log")))
        else:
            copy.disk.lose_file(".log")
        self._applied = copy.applied
        with contextlib.suppress(*REFUSALS):
            look(facts, _open(member, copy, rng))

    def _kept(self) -> Facts:
        """Return the entries promised before the work, without those that the work has replaced."""
        kept = tuple(each for each in self._before.entries if self._member.has_synced(*each))
        return replace(self._before, entries=kept)

    def _start(self, copy: Copy, look: Callable[[GroupStorage], None]) -> None:
        """Start once or several times, with or without a power loss in between."""
        rng, disk = self._rng, copy.disk
        self._applied = copy.applied
        for remaining in reversed(range(rng.choice(ROUNDS))):
            if rng.random() < 0.6:
                disk.lose_power()
            disk.recover()
            if remaining and rng.random() < 0.7:
                disk.crash_at = disk.operations + rng.randrange(1, 25)
            try:
                found = _open(self._member, copy, rng)
            except Crashed:
                continue
            except MemberRemoved:
                self._demand_removed(copy)
                return
            except REFUSALS as error:
                demand(False, f"a crash of {self._member.id} now would be fatal: {error}")
            else:
                look(found)

    def _demand_removed(self, copy: Copy) -> None:
        known = self._member.world.invariants.configuration_at(copy.applied)
        demand(
            known is None or was_removed(known.roster, self._member.id),
            f"{self._member.id} would refuse to start as removed, but it was not removed",
        )

    def _demand_same(self, facts: Facts, found: GroupStorage) -> None:
        """Check that the log is unchanged, since no work was in progress."""
        self._demand_kept(facts, found)
        view, last = self._member.view, found.view.last_index()
        demand(
            last == view.last_index(),
            f"a start of {self._member.id} would find entries up to {last}, "
            f"not to {view.last_index()}",
        )
        if facts.entries:
            # A first entry that the trim has hidden may be removed at any time.
            index, _ = self._rng.choice(facts.entries)
            if index >= max(found.view.first_index(), view.first_index()):
                demand(
                    _entry(found, index) == view.entries(index, LogIndex(index + 1), 1),
                    f"a start of {self._member.id} would find another entry {index}",
                )

    def _demand_kept(self, facts: Facts, found: GroupStorage) -> None:
        member, view = self._member.id, found.view
        (now, membership), then = view.initial_state(), facts.hard_state
        demand(
            (now.term, now.vote) == (then.term, then.vote)
            or now.term > then.term
            or (now.term == then.term and not then.vote),
            f"a start of {member} would find {now}, but {then} was durable",
        )
        demand(
            now.commit >= facts.commit,
            f"a start of {member} would not know that {facts.commit} is committed",
        )
        for index, term in facts.entries:
            behind = index < view.first_index() - 1
            demand(
                behind or (index <= view.last_index() and view.term(index) == term),
                f"a start of {member} would not find entry {index} of term {term}",
            )
        self._demand_membership(found, membership)
        self._member.world.invariants.check_start(self._member, view)

    def _demand_membership(self, found: GroupStorage, membership: ConfState) -> None:
        at = max(self._applied, LogIndex(found.view.first_index() - 1))
        known = self._member.world.invariants.configuration_at(at)
        demand(
            known is None or known == membership,
            f"a start of {self._member.id} would use {membership} at {at}, not {known}",
        )


def facts_of(member: Member, rng: Random) -> Facts:
    """Return the promises that ``member`` has made so far."""
    view = member.view
    first, last = view.first_index() - 1, view.last_index()
    places = {last, *(rng.randint(first, last) for _ in range(PLACES))}
    entries = tuple((LogIndex(at), view.term(LogIndex(at))) for at in sorted(places))
    return Facts(member.durable_hard_state(), member.known_commit, entries)


def _open(member: Member, copy: Copy, rng: Random) -> GroupStorage:
    config = StorageConfig(
        Identity("sim", MemberId(member.id), 0),
        member.founders,
        salt=rng.randrange(1 << 32),
        segment_bytes=rng.choice((2048, 16384)),
    )
    return GroupStorage.open(copy.disk, config, copy.applied)


def _entry(found: GroupStorage, index: LogIndex) -> list[Entry]:
    return list(found.view.entries(index, LogIndex(index + 1), 1))
