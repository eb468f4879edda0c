"""Decide on the leader whether a member that has lost its log or its vote can be replaced.

A replacement has two changes. The first adds a learner that names the voter whose place it takes.
The second promotes the learner and removes the voter, in one joint change, so that the number of
voters is the same before and after it. The roster stores which voter a learner replaces, so any
later leader continues. The id of the old member is never used again.

The functions are pure: they read the status of the leader and return a change or a refusal.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Final

from taskraft_replication.core.confchange import ConfChange, MemberChange, MemberChangeKind
from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.types import MemberId, MemberInfo, Roster, value
from taskraft_replication.membership.roster import change_of_several, find
from taskraft_replication.node.status import NodeStatus

LAG_ENTRIES_MAX: Final = 100
"""Maximum lag, in entries, of a member that counts as caught up."""


class ReplacementFault(Enum):
    """Reason for which a member cannot be replaced now."""

    NOT_A_MEMBER = "not a member"
    """The id was removed, or belongs to another name. Only an operator can help."""
    STILL_ACTIVE = "still active"
    """The old member answers, so its log cannot be lost."""
    OTHER_REPLACEMENT = "other replacement"
    """Another member is being replaced."""
    CHANGE_UNDER_WAY = "change under way"
    """A joint change has not ended yet."""
    OTHERS_NOT_WHOLE = "others not whole"
    """Too few of the other voters answer and have caught up."""
    NEW_MEMBER_BEHIND = "new member behind"
    """The new member has not caught up."""


@value
class ReplacementRefusal:
    """Refusal of a replacement; the text says what to do, in one line."""

    fault: ReplacementFault
    text: str


@value
class Addition:
    """Id of a new member, and the change that adds the member; None: the member exists already."""

    member: MemberId
    change: ConfChange | None


def addition_of(
    status: NodeStatus, wanted: MemberInfo, replaced: MemberId
) -> Addition | ReplacementRefusal:
    """Return the learner for a node that has lost its data.

    Learners of the same name are removed in the same change: they belong to earlier data of the
    node. A repeated request gets the member that it got before, by its data directory.

    Args:
        status: the status of the leader.
        wanted: name, addresses and new data directory of the node, without an id.
        replaced: id that the node has lost; 0: unknown, so the name decides.
    """
    assert wanted.directory_id
    roster = status.conf_state.roster
    namesakes = _named(roster, wanted.name)
    for info in namesakes:
        if info.directory_id == wanted.directory_id:
            return Addition(info.member, None)
    if not namesakes or (replaced and replaced not in {info.member for info in namesakes}):
        return ReplacementRefusal(
            ReplacementFault.NOT_A_MEMBER,
            f'{f"member {replaced}" if replaced else "a member"} of the name "{wanted.name}" is not'
            f" in the cluster: it was removed or replaced; to come back, the node must join with an"
            f" empty data directory",
        )
    refused = _refused_now(status, namesakes)
    if refused is not None:
        return refused
    voters = [info.member for info in namesakes if info.member in status.conf_state.voters]
    old = voters[0] if voters else MemberId(0)
    new = replace(
        wanted,
        member=MemberId(roster.last_member + 1),
        replaces=old,
        added_itself=any(info.added_itself for info in namesakes),
    )
    steps = [
        MemberChange(MemberChangeKind.REMOVE, info.member)
        for info in namesakes
        if info.member != old
    ]
    steps.append(MemberChange(MemberChangeKind.ADD_LEARNER, new.member))
    return Addition(new.member, change_of_several(steps, (new,)))


def pending_replacement(roster: Roster) -> MemberInfo | None:
    """Return the learner that replaces a voter, or None."""
    return next((info for info in roster.members if info.replaces), None)


def completion_of(status: NodeStatus, new: MemberInfo) -> ConfChange | ReplacementRefusal:
    """Return the change that promotes the learner ``new`` and removes the voter it replaces."""
    old = find(status.conf_state.roster, new.replaces)
    if old is None or old.member not in status.conf_state.voters:
        return ReplacementRefusal(
            ReplacementFault.NOT_A_MEMBER,
            f"member {new.replaces}, which member {new.member} replaces, is not a voter; remove"
            f" member {new.member}, and let its node join",
        )
    refused = _refused_now(status, (old,)) or _refused_while_behind(status, new)
    if refused is not None:
        return refused
    steps = (
        MemberChange(MemberChangeKind.ADD_VOTER, new.member),
        MemberChange(MemberChangeKind.REMOVE, old.member),
    )
    return change_of_several(steps, (replace(new, replaces=MemberId(0)),))


def _named(roster: Roster, name: str) -> tuple[MemberInfo, ...]:
    return tuple(info for info in roster.members if info.name == name)


def _refused_now(status: NodeStatus, lost: tuple[MemberInfo, ...]) -> ReplacementRefusal | None:
    """Return why the members ``lost``, all of one name, cannot be replaced now, or None."""
    name = lost[0].name
    for info in lost:
        if _is_active(status, info.member):
            return ReplacementRefusal(
                ReplacementFault.STILL_ACTIVE,
                f'member {info.member} "{name}" still answers; a member is replaced only after it'
                f" has not answered for two election timeouts",
            )
    other = pending_replacement(status.conf_state.roster)
    if other is not None and other.name != name:
        return ReplacementRefusal(
            ReplacementFault.OTHER_REPLACEMENT,
            f'"{other.name}" is being replaced, and members are replaced one at a time; if its node'
            f' is lost for good, remove "{other.name}"',
        )
    if status.conf_state.voters_outgoing:
        return ReplacementRefusal(
            ReplacementFault.CHANGE_UNDER_WAY, "another change of the members is under way"
        )
    return _refused_without_majority(status, {info.member for info in lost})


def _refused_without_majority(status: NodeStatus, lost: set[MemberId]) -> ReplacementRefusal | None:
    """Return the refusal unless a majority of all voters, without ``lost``, is whole.

    With fewer whole voters, an acknowledged entry may exist only in the lost log.
    """
    voters = status.conf_state.voters
    whole = [each for each in voters if each not in lost and _is_whole(status, each)]
    if 2 * len(whole) > len(voters):
        return None
    return ReplacementRefusal(
        ReplacementFault.OTHERS_NOT_WHOLE,
        f"only {len(whole)} of {len(voters)} voters answer and have caught up, and"
        f" {len(voters) // 2 + 1} are needed; restore the other voters. If they are lost for good,"
        f" run `taskraft cluster recover --force-new` on the survivor, see docs/disaster.md",
    )


def _refused_while_behind(status: NodeStatus, new: MemberInfo) -> ReplacementRefusal | None:
    if _is_whole(status, new.member):
        return None
    peer = status.peers.get(new.member)
    answers = peer is not None and peer.is_active
    lag = "unknown" if peer is None else f"{peer.lag_entries} entries behind"
    return ReplacementRefusal(
        ReplacementFault.NEW_MEMBER_BEHIND,
        f'member {new.member} "{new.name}" {"has not caught up" if answers else "does not answer"}:'
        f" {lag}",
    )


def _is_active(status: NodeStatus, member: MemberId) -> bool:
    peer = status.peers.get(member)
    return member == status.member_id or (peer is not None and peer.is_active)


def _is_whole(status: NodeStatus, member: MemberId) -> bool:
    """Return whether a member answers and has nearly the whole log of the leader."""
    peer = status.peers.get(member)
    if member == status.member_id or peer is None:
        return member == status.member_id
    follows = peer.state is ProgressState.REPLICATE
    return peer.is_active and follows and peer.lag_entries <= LAG_ENTRIES_MAX
