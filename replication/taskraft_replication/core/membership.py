"""Compute the configuration that a membership change leads to (Raft thesis, chapter 4).

The functions are pure. A simple change adds or removes at most one voter, so that every majority of
the old configuration overlaps every majority of the new one. Any other change passes through a
joint configuration, in which majorities of both halves must agree. The members of each tuple are
sorted and distinct. A change of ``NO_MEMBER`` has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never

from taskraft_replication.core.confchange import ConfChange, MemberChange, MemberChangeKind
from taskraft_replication.core.errors import ConfChangeFault, ConfChangeInvalid
from taskraft_replication.core.types import NO_MEMBER, ConfState, MemberId


@dataclass(slots=True)
class _Draft:
    """A configuration being changed."""

    voters: set[MemberId]
    learners: set[MemberId]
    outgoing: frozenset[MemberId]
    learners_next: set[MemberId]

    def make(self, change: MemberChange) -> None:
        member = change.member
        if member == NO_MEMBER:
            return
        match change.kind:
            case MemberChangeKind.ADD_VOTER:
                self._remove(member)
                self.voters.add(member)
            case MemberChangeKind.ADD_LEARNER:
                self._remove(member)
                # A voter of the outgoing half cannot become a learner before that half is left.
                (self.learners_next if member in self.outgoing else self.learners).add(member)
            case MemberChangeKind.REMOVE:
                self._remove(member)
            case MemberChangeKind.UPDATE:
                pass
            case _:
                assert_never(change.kind)

    def _remove(self, member: MemberId) -> None:
        self.voters.discard(member)
        self.learners.discard(member)
        self.learners_next.discard(member)


def change(configuration: ConfState, wanted: ConfChange) -> ConfState:
    """Return the configuration after the change ``wanted``.

    Raises:
        ConfChangeInvalid: the change does not fit the configuration.
    """
    if wanted.leaves_joint:
        return leave_joint(configuration)
    if wanted.enters_joint:
        return enter_joint(configuration, wanted.changes, auto_leave=wanted.auto_leave)
    return simple(configuration, wanted.changes)


def simple(configuration: ConfState, changes: Sequence[MemberChange]) -> ConfState:
    """Return the configuration after ``changes``, without a joint configuration in between.

    Raises:
        ConfChangeInvalid: the configuration is joint, or more than one voter would change.
    """
    if configuration.voters_outgoing:
        raise ConfChangeInvalid(ConfChangeFault.SIMPLE_WHILE_JOINT)
    after = _changed(configuration, (), changes, auto_leave=False)
    if len(set(configuration.voters) ^ set(after.voters)) > 1:
        raise ConfChangeInvalid(ConfChangeFault.SEVERAL_VOTERS)
    return after


def enter_joint(
    configuration: ConfState, changes: Sequence[MemberChange], *, auto_leave: bool
) -> ConfState:
    """Return the joint configuration that leads from ``configuration`` to its successor.

    Raises:
        ConfChangeInvalid: the configuration is joint already, or has no voters.
    """
    if configuration.voters_outgoing:
        raise ConfChangeInvalid(ConfChangeFault.ALREADY_JOINT)
    if not configuration.voters:
        raise ConfChangeInvalid(ConfChangeFault.NO_VOTERS_BEFORE)
    return _changed(configuration, configuration.voters, changes, auto_leave=auto_leave)


def leave_joint(configuration: ConfState) -> ConfState:
    """Return the incoming half alone; outgoing voters in ``learners_next`` become learners.

    Raises:
        ConfChangeInvalid: the configuration is not joint.
    """
    if not configuration.voters_outgoing:
        raise ConfChangeInvalid(ConfChangeFault.NOT_JOINT)
    learners = {*configuration.learners, *configuration.learners_next}
    return restored(ConfState(configuration.voters, _ordered(learners)))


def restored(configuration: ConfState) -> ConfState:
    """Check a configuration from storage or a snapshot, and return it with sorted members."""
    result = ConfState(
        voters=_ordered(configuration.voters),
        learners=_ordered(configuration.learners),
        voters_outgoing=_ordered(configuration.voters_outgoing),
        learners_next=_ordered(configuration.learners_next),
        auto_leave=configuration.auto_leave,
    )
    voting = {*result.voters, *result.voters_outgoing}
    assert NO_MEMBER not in {*voting, *result.learners}
    assert voting.isdisjoint(result.learners), "a learner does not vote in either half"
    assert set(result.learners_next) <= set(result.voters_outgoing), (
        "a future learner still votes in the outgoing half"
    )
    assert set(result.learners_next).isdisjoint(result.voters)
    assert result.voters_outgoing or not result.auto_leave, "only a joint configuration can be left"
    return result


def is_ordered(configuration: ConfState) -> bool:
    """Return whether each part is sorted without duplicates, so that equal groups compare equal."""
    parts = (
        configuration.voters,
        configuration.learners,
        configuration.voters_outgoing,
        configuration.learners_next,
    )
    return all(one < next_one for part in parts for one, next_one in pairwise(part))


def members(configuration: ConfState) -> tuple[MemberId, ...]:
    """Return all members that receive the log, in order."""
    return _ordered(
        [*configuration.voters, *configuration.voters_outgoing, *configuration.learners]
    )


def voters(configuration: ConfState) -> tuple[MemberId, ...]:
    """Return the voters of either half, in order."""
    if not configuration.voters_outgoing:
        return configuration.voters
    return _ordered([*configuration.voters, *configuration.voters_outgoing])


def _changed(
    configuration: ConfState,
    outgoing: tuple[MemberId, ...],
    changes: Sequence[MemberChange],
    *,
    auto_leave: bool,
) -> ConfState:
    draft = _Draft(
        set(configuration.voters), set(configuration.learners), frozenset(outgoing), set()
    )
    for each in changes:
        draft.make(each)
    if not draft.voters:
        raise ConfChangeInvalid(ConfChangeFault.NO_VOTERS_AFTER)
    return restored(
        ConfState(
            voters=_ordered(draft.voters),
            learners=_ordered(draft.learners),
            voters_outgoing=outgoing,
            learners_next=_ordered(draft.learners_next),
            auto_leave=auto_leave,
        )
    )


def _ordered(ids: Iterable[MemberId]) -> tuple[MemberId, ...]:
    return tuple(sorted(set(ids)))
