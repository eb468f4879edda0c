"""Convert messages between the core and the peer protocol.

Each incoming field is checked. A frame with an invalid message is rejected as a whole, so the core
sees only messages that another core could have sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from taskraft_replication.beacons import BEACON_BYTES_MAX
from taskraft_replication.core.types import (
    Entry,
    EntryKind,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    SnapshotMeta,
    Term,
)
from taskraft_replication.errors import MessageMalformed
from taskraft_replication.membership.codec import decode_conf_state
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb

_KIND_OUT: Final[Mapping[str, pb.MessageKind.ValueType]] = {
    "append": pb.APPEND,
    "append_reply": pb.APPEND_REPLY,
    "vote": pb.VOTE,
    "vote_reply": pb.VOTE_REPLY,
    "pre_vote": pb.PRE_VOTE,
    "pre_vote_reply": pb.PRE_VOTE_REPLY,
    "heartbeat": pb.HEARTBEAT,
    "heartbeat_reply": pb.HEARTBEAT_REPLY,
    "timeout_now": pb.TIMEOUT_NOW,
    "transfer_leader": pb.TRANSFER_LEADER,
    "read_index": pb.READ_INDEX,
    "read_index_reply": pb.READ_INDEX_REPLY,
    "propose": pb.PROPOSE,
}
"""Keyed by the kind's value: hashing a string is faster than hashing an enum member."""

_KIND_IN: Final[Mapping[int, MessageKind]] = {
    number: MessageKind(name) for name, number in _KIND_OUT.items()
}
_WITH_BEACON: Final = frozenset({MessageKind.HEARTBEAT, MessageKind.HEARTBEAT_REPLY})
_LARGE_BYTES: Final = 16 << 10
"""Minimum size of entry data that is not copied into the encoded message."""
_MESSAGES_TAG: Final = bytes((pb.Frame.MESSAGES_FIELD_NUMBER << 3 | 2,))
_ENTRIES_TAG: Final = bytes((pb.RaftMessage.ENTRIES_FIELD_NUMBER << 3 | 2,))
_DATA_TAG: Final = bytes((pb.RaftEntry.DATA_FIELD_NUMBER << 3 | 2,))
"""Tags of fields with a length, as protobuf encodes them."""
_ENTRY_KIND_OUT: Final = (pb.NORMAL, pb.CONF_CHANGE, pb.CONF_CHANGE_V2)
_ENTRY_KIND_IN: Final[Mapping[int, EntryKind]] = {
    pb.NORMAL: EntryKind.NORMAL,
    pb.CONF_CHANGE: EntryKind.CONF_CHANGE,
    pb.CONF_CHANGE_V2: EntryKind.CONF_CHANGE_V2,
}


def encode_message(message: Message) -> pb.RaftMessage:
    """Return the encoded message.

    Snapshots and local messages are not encoded.
    """
    encoded = _encode_fields(message)
    add_entries(encoded, message.entries)
    return encoded


def _encode_fields(message: Message) -> pb.RaftMessage:
    """Return the encoded message without its entries."""
    # Setting only the non-default fields, one by one, takes half the time of keyword arguments.
    encoded = pb.RaftMessage(
        kind=_KIND_OUT[message.kind.value],
        to=message.to,
        sender=message.sender,
        term=message.term,
    )
    if message.index:
        encoded.index = message.index
    if message.log_term:
        encoded.log_term = message.log_term
    if message.commit:
        encoded.commit = message.commit
    if message.reject:
        encoded.reject = True
        encoded.reject_hint = message.reject_hint
    if message.context:
        encoded.context = message.context
    return encoded


def add_entries(
    encoded: pb.RaftMessage | pb.FetchEntriesResponse, entries: Iterable[Entry]
) -> None:
    """Append entries to those of a message."""
    for entry in entries:
        encoded.entries.add(
            term=entry.term,
            index=entry.index,
            data=entry.data,
            kind=pb.NORMAL if entry.kind is EntryKind.NORMAL else _ENTRY_KIND_OUT[entry.kind.value],
        )


class Frame(NamedTuple):
    """The messages of a frame in order, and its beacon."""

    messages: Sequence[Message]
    beacon: bytes | None
    """None: the frame has no heartbeat. Empty: the sender attaches no beacons."""


def has_heartbeat(messages: Sequence[Message]) -> bool:
    """Return whether one of the messages is a heartbeat or the reply to one."""
    return not _WITH_BEACON.isdisjoint([message.kind for message in messages])


def encode_frame(messages: Sequence[Message], make_beacon: Callable[[], bytes]) -> Sequence[bytes]:
    """Return the frame with these messages to one peer, with a beacon if one is a heartbeat.

    The frame is returned in parts. The data of a large entry is a separate part and is not copied,
    because copying an entry of 16 MiB takes long enough to miss a heartbeat.
    """
    frame = pb.Frame()
    if has_heartbeat(messages):
        frame.beacon = make_beacon()
        assert len(frame.beacon) <= BEACON_BYTES_MAX
    if not any(len(entry.data) >= _LARGE_BYTES for each in messages for entry in each.entries):
        frame.messages.extend(map(encode_message, messages))
        return (frame.SerializeToString(),)
    parts = [frame.SerializeToString()]
    for message in messages:
        parts += _with_length(_MESSAGES_TAG, _message_parts(message))
    return parts


def _message_parts(message: Message) -> list[bytes]:
    parts = [_encode_fields(message).SerializeToString()]
    small = pb.RaftMessage()
    for entry in message.entries:
        if len(entry.data) < _LARGE_BYTES:
            add_entries(small, (entry,))
            continue
        around = pb.RaftMessage()
        add_entries(around, (Entry(entry.term, entry.index, b"", entry.kind),))
        fields = around.entries[0].SerializeToString()
        parts.append(small.SerializeToString())
        small.Clear()
        parts += _with_length(_ENTRIES_TAG, [fields, *_with_length(_DATA_TAG, [entry.data])])
    parts.append(small.SerializeToString())
    return parts


def _with_length(tag: bytes, parts: Sequence[bytes]) -> list[bytes]:
    """Return a length-delimited field whose content consists of these parts."""
    left = sum(map(len, parts))
    length = bytearray()
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    length.append(left)
    return [tag + length, *parts]


def decode_frame(raw: bytes) -> Frame:
    """Return the messages and the beacon of a frame.

    Raises:
        MessageMalformed: the bytes are not a frame, or a message in it is invalid.
    """
    try:
        frame = pb.Frame.FromString(raw)
    except DecodeError as error:
        raise MessageMalformed("the received bytes are not a frame") from error
    if len(frame.beacon) > BEACON_BYTES_MAX:
        raise MessageMalformed(
            f"a beacon of {len(frame.beacon)} bytes exceeds the limit of {BEACON_BYTES_MAX} bytes"
        )
    messages = [decode_message(each) for each in frame.messages]
    return Frame(messages, frame.beacon if has_heartbeat(messages) else None)


def decode_message(encoded: pb.RaftMessage) -> Message:
    """Return the decoded message.

    Raises:
        MessageMalformed: the message is not valid.
    """
    kind = _KIND_IN.get(encoded.kind)
    if kind is None:
        raise MessageMalformed(f"unknown kind of message {encoded.kind}")
    numbers = (encoded.term, encoded.index, encoded.log_term, encoded.commit, encoded.reject_hint)
    if min(numbers) < 0 or encoded.sender < 1 or encoded.to < 1:
        raise MessageMalformed(f"a number in a message of kind {kind.value} is out of range")
    return Message(
        kind=kind,
        to=MemberId(encoded.to),
        sender=MemberId(encoded.sender),
        term=Term(encoded.term),
        log_term=Term(encoded.log_term),
        index=LogIndex(encoded.index),
        entries=_decode_entries(encoded, follows=kind is MessageKind.APPEND),
        commit=LogIndex(encoded.commit),
        reject=encoded.reject,
        reject_hint=LogIndex(encoded.reject_hint),
        context=encoded.context,
    )


def decode_entry(encoded: pb.RaftEntry) -> Entry:
    """Return a decoded entry.

    Raises:
        MessageMalformed: the kind of the entry is unknown.
    """
    kind = EntryKind.NORMAL if encoded.kind == pb.NORMAL else _ENTRY_KIND_IN.get(encoded.kind)
    if kind is None:
        raise MessageMalformed(f"unknown kind of entry {encoded.kind}")
    return Entry(Term(encoded.term), LogIndex(encoded.index), encoded.data, kind)


def _decode_entries(encoded: pb.RaftMessage, *, follows: bool) -> tuple[Entry, ...]:
    entries = [decode_entry(each) for each in encoded.entries]
    for expected, each in enumerate(entries, encoded.index + 1):
        if follows and (each.index != expected or not 0 < each.term <= encoded.term):
            raise MessageMalformed(f"entry {each.index} of term {each.term} is out of place")
    return tuple(entries)


def decode_snapshot_meta(header: pb.SnapshotHeader) -> SnapshotMeta:
    """Return the index, term and membership of a snapshot.

    Raises:
        MessageMalformed: the header is not valid.
    """
    conf_state = decode_conf_state(header.conf_state)
    if header.index < 1 or header.index_term < 1 or header.term < header.index_term:
        raise MessageMalformed("a snapshot's index or term is out of range")
    if not conf_state.voters:
        raise MessageMalformed("a snapshot names no voters")
    return SnapshotMeta(LogIndex(header.index), Term(header.index_term), conf_state)
