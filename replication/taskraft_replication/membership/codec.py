"""Convert memberships between the core's values and the protobuf messages of peers and log."""

from __future__ import annotations

from collections.abc import Iterable

from taskraft_replication.core.types import ChangeMade, ConfState, MemberId, MemberInfo, Roster
from taskraft_replication.errors import MessageMalformed
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb


def encode_conf_state(conf_state: ConfState) -> pb.ConfState:
    """Return the protobuf message of a membership."""
    return pb.ConfState(
        voters=conf_state.voters,
        learners=conf_state.learners,
        voters_outgoing=conf_state.voters_outgoing,
        learners_next=conf_state.learners_next,
        auto_leave=conf_state.auto_leave,
        roster=encode_roster(conf_state.roster),
    )


def encode_member(info: MemberInfo) -> pb.MemberInfo:
    """Return the protobuf message of a member."""
    return pb.MemberInfo(
        member=info.member,
        name=info.name,
        peer_address=info.peer_address,
        client_address=info.client_address,
        directory_id=info.directory_id,
        replaces=info.replaces,
        added_itself=info.added_itself,
    )


def encode_roster(roster: Roster) -> pb.Roster:
    """Return the protobuf message of a roster."""
    return pb.Roster(
        members=[encode_member(info) for info in roster.members],
        last_member=roster.last_member,
        changes_made=[
            pb.ChangeMade(request=made.request, member=made.member) for made in roster.changes_made
        ],
        removed_names=roster.removed_names,
    )


def decode_roster(encoded: pb.Roster) -> Roster:
    """Return the roster of a protobuf message.

    Raises:
        MessageMalformed: the message is not valid.
    """
    _members(info.member for info in encoded.members)
    return Roster(
        members=tuple(
            MemberInfo(
                member=MemberId(info.member),
                name=info.name,
                peer_address=info.peer_address,
                client_address=info.client_address,
                directory_id=info.directory_id,
                replaces=MemberId(info.replaces),
                added_itself=info.added_itself,
            )
            for info in encoded.members
        ),
        last_member=MemberId(encoded.last_member),
        changes_made=tuple(
            ChangeMade(made.request, MemberId(made.member)) for made in encoded.changes_made
        ),
        removed_names=tuple(encoded.removed_names),
    )


def decode_conf_state(encoded: pb.ConfState) -> ConfState:
    """Return the membership of a protobuf message.

    Raises:
        MessageMalformed: the message is not valid.
    """
    return ConfState(
        voters=_members(encoded.voters),
        learners=_members(encoded.learners),
        voters_outgoing=_members(encoded.voters_outgoing),
        learners_next=_members(encoded.learners_next),
        auto_leave=encoded.auto_leave,
        roster=decode_roster(encoded.roster),
    )


def _members(numbers: Iterable[int]) -> tuple[MemberId, ...]:
    members = tuple(MemberId(number) for number in numbers)
    if any(member < 1 for member in members):
        raise MessageMalformed("a member id is not positive")
    return members
