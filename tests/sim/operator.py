"""Change the membership like an operator: valid and invalid changes at unsuitable moments."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from taskraft_replication.core import membership
from taskraft_replication.core.confchange import (
    LEAVE_JOINT,
    ConfChange,
    ConfChangeTransition,
    MemberChange,
    MemberChangeKind,
)
from taskraft_replication.core.errors import ConfChangeInvalid
from taskraft_replication.core.types import ConfState, MemberId, MemberInfo
from taskraft_replication.errors import ChangeRefused
from taskraft_replication.membership.roster import change_of_several

if TYPE_CHECKING:
    from tests.sim.member import Member
    from tests.sim.world import World

_VOTERS_MAX = 5


class Change:
    """The ``ResultFuture`` of a membership change."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_done = False
        world.workload.awaited.append(self)

    def done(self) -> bool:
        return self._is_done

    def set_result(self, _: object, /) -> None:
        self._is_done = True
        self._world.count("fault: membership change")

    def set_exception(self, exception: BaseException, /) -> None:
        self._is_done = True
        fault = exception.fault if isinstance(exception, ChangeRefused) else None
        self._world.count(f"change: {type(exception).__name__ if fault is None else fault.name}")


class Operator:
    """Proposes changes on the leader, but none that would leave the group without a majority."""

    def __init__(self, world: World) -> None:
        self._world = world

    def act(self, rng: Random) -> None:
        """Propose a change, or shut down a removed member."""
        leader = self._world.leader
        if leader is None:
            return
        if rng.random() < 0.2:
            self._take_away(leader, rng)
            return
        wanted = self._wanted(leader.configuration, rng)
        if wanted is not None and self._is_survivable(leader.configuration, wanted):
            self._propose(leader, wanted)

    def _propose(self, leader: Member, wanted: ConfChange) -> None:
        self._world.note(f"{leader.id} is asked for {wanted}")
        leader.driver.propose_change(wanted, Change(self._world))

    def _wanted(self, configuration: ConfState, rng: Random) -> ConfChange | None:
        if configuration.voters_outgoing and rng.random() < 0.8:
            return LEAVE_JOINT
        count = rng.choice((1, 1, 1, 2, 3))
        changes = tuple(
            each for _ in range(count) if (each := self._step(configuration, rng)) is not None
        )
        if not changes:
            return None
        named = change_of_several(changes, (MemberInfo(each.member) for each in changes))
        transition = rng.choice(
            (ConfChangeTransition.AUTO, ConfChangeTransition.AUTO, *ConfChangeTransition)
        )
        return replace(named, transition=transition)

    def _step(self, configuration: ConfState, rng: Random) -> MemberChange | None:
        members = membership.members(configuration)
        lost = [each for each in members if self._world.members[each].is_damaged]
        if lost and rng.random() < 0.5:
            return MemberChange(MemberChangeKind.REMOVE, rng.choice(lost))
        if configuration.learners and rng.random() < 0.5:
            return MemberChange(MemberChangeKind.ADD_VOTER, rng.choice(configuration.learners))
        if rng.random() < 0.4 and len(configuration.voters) < _VOTERS_MAX:
            newcomer = self._world.join()
            if newcomer is None:
                return None
            kind = rng.choice((MemberChangeKind.ADD_LEARNER, MemberChangeKind.ADD_VOTER))
            return MemberChange(kind, newcomer)
        if len(configuration.voters) == 1:
            return None
        kinds = (MemberChangeKind.REMOVE, MemberChangeKind.ADD_LEARNER, MemberChangeKind.UPDATE)
        return MemberChange(rng.choice(kinds), rng.choice(members))

    def _is_survivable(self, configuration: ConfState, wanted: ConfChange) -> bool:
        try:
            after = membership.change(configuration, wanted)
        except ConfChangeInvalid:
            return True  # The leader will refuse the change.
        return self._world.has_majority(after)

    def _take_away(self, leader: Member, rng: Random) -> None:
        """Shut down permanently a member that is in no configuration any more."""
        in_use: set[MemberId] = set()
        for each in self._world.running:
            in_use.update(membership.members(each.configuration))
        removed = [
            each
            for each in self._world.running
            if each.id not in in_use
            or (each.id not in membership.members(leader.configuration) and rng.random() < 0.3)
        ]
        if removed and leader.serves and not self._world.has_pending_changes():
            self._end(rng.choice(removed))

    def take_all_away(self) -> None:
        """Shut down all removed members, once all members have applied everything."""
        leader = self._world.leader
        assert leader is not None
        members = membership.members(leader.configuration)
        for each in self._world.running:
            if each.id not in members:
                self._end(each)

    def _end(self, member: Member) -> None:
        self._world.count("removed member taken away")
        member.stop(power=True)
        member.is_damaged = True
        self._world.network.forget(member.id)
