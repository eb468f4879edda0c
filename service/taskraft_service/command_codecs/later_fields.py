"""Hide the fields of a request that belong to a later cluster version.

A client may be newer than the cluster, so the log may hold requests with fields that an older
member does not know. Until all members know the fields, every member must read such a request as if
the fields were absent. The table lists each field that was added after release 0.1.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from google.protobuf.message import Message

from taskraft.v1.tube_service_pb2 import TubeOptions
from taskraft_service.queue.entities.tube_options import OPTION_ROWS
from taskraft_service.versions import LOWEST, ClusterVersion

FieldVersions: TypeAlias = Mapping[tuple[str, str], ClusterVersion]
"""The cluster version in which a field was added, by the full name of its message and its name."""

FIELDS_SINCE: Final[FieldVersions] = {
    (TubeOptions.DESCRIPTOR.full_name, row.contract_name): row.since
    for row in OPTION_ROWS
    if row.since > LOWEST
}


def has_later_fields(
    kind: type[Message], version: int, since: FieldVersions = FIELDS_SINCE
) -> bool:
    """Return whether a message type, or a type inside it, has fields of a later version."""
    later = {message for (message, _), first in since.items() if first > version}
    seen: set[str] = set()
    waiting = [kind.DESCRIPTOR] if later else []
    while waiting:
        one = waiting.pop()
        if one.full_name in seen:
            continue
        seen.add(one.full_name)
        waiting += [field.message_type for field in one.fields if field.message_type is not None]
    return not later.isdisjoint(seen)


def hide_later_fields(message: Message, version: int, since: FieldVersions = FIELDS_SINCE) -> None:
    """Clear the fields of a later version in a message and in all messages inside it."""
    for field, value in message.ListFields():
        if since.get((message.DESCRIPTOR.full_name, field.name), version) > version:
            message.ClearField(field.name)
        elif field.message_type is None:
            continue
        elif field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for one in value.values():
                    hide_later_fields(one, version, since)
        elif isinstance(value, Message):
            hide_later_fields(value, version, since)
        else:
            for one in value:
                hide_later_fields(one, version, since)
