"""Encode memberships as JSON, and decode them."""

from __future__ import annotations

from taskraft_replication.core.types import (
    ChangeMade,
    ConfState,
    LogIndex,
    MemberId,
    MemberInfo,
    Roster,
)
from taskraft_replication.storage.checked_file import (
    JsonValue,
    list_of,
    number_of,
    object_of,
    text_of,
)


def _members(content: dict[str, JsonValue], field: str) -> tuple[MemberId, ...]:
    return tuple(MemberId(each) for each in list_of(content, field) if isinstance(each, int))


def encode_membership(index: LogIndex, conf_state: ConfState) -> JsonValue:
    """Return the JSON value of a membership and of its first index."""
    return {
        "index": index,
        "voters": list(conf_state.voters),
        "learners": list(conf_state.learners),
        "voters_outgoing": list(conf_state.voters_outgoing),
        "learners_next": list(conf_state.learners_next),
        "auto_leave": conf_state.auto_leave,
        "last_member": conf_state.roster.last_member,
        "roster": [_encode_info(info) for info in conf_state.roster.members],
        "changes_made": [
            {"request": made.request, "member": made.member}
            for made in conf_state.roster.changes_made
        ],
        "removed_names": list(conf_state.roster.removed_names),
    }


def _encode_info(info: MemberInfo) -> JsonValue:
    return {
        "member": info.member,
        "name": info.name,
        "peer_address": info.peer_address,
        "client_address": info.client_address,
        "directory_id": info.directory_id,
        "replaces": info.replaces,
        "added_itself": info.added_itself,
    }


def _decode_roster(content: dict[str, JsonValue]) -> Roster:
    return Roster(
        tuple(_decode_info(object_of(info)) for info in list_of(content, "roster")),
        MemberId(number_of(content, "last_member")),
        tuple(_decode_change_made(object_of(each)) for each in list_of(content, "changes_made")),
        # Older data lacks the names of removed nodes.
        tuple(map(str, list_of(content, "removed_names") if "removed_names" in content else ())),
    )


def _decode_change_made(content: dict[str, JsonValue]) -> ChangeMade:
    return ChangeMade(text_of(content, "request"), MemberId(number_of(content, "member")))


def _decode_info(content: dict[str, JsonValue]) -> MemberInfo:
    return MemberInfo(
        member=MemberId(number_of(content, "member")),
        name=text_of(content, "name"),
        peer_address=text_of(content, "peer_address"),
        client_address=text_of(content, "client_address"),
        directory_id=text_of(content, "directory_id"),
        # Data that was written before members could be replaced lacks the field.
        replaces=MemberId(number_of(content, "replaces") if "replaces" in content else 0),
        added_itself=content.get("added_itself") is True,
    )


def decode_membership(content: JsonValue) -> tuple[LogIndex, ConfState]:
    """Return the first index and the membership of a JSON value.

    Raises:
        LogDamaged: a field is missing or has another type.
    """
    content = object_of(content)
    conf_state = ConfState(
        voters=_members(content, "voters"),
        learners=_members(content, "learners"),
        voters_outgoing=_members(content, "voters_outgoing"),
        learners_next=_members(content, "learners_next"),
        auto_leave=content["auto_leave"] is True,
        roster=_decode_roster(content),
    )
    return LogIndex(number_of(content, "index")), conf_state
