"""Messages survive encoding, and invalid messages are rejected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taskraft_replication.beacons import BEACON_BYTES_MAX
from taskraft_replication.core.types import (
    ConfState,
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
from taskraft_replication.membership.codec import encode_conf_state
from taskraft_replication.peers.codec import (
    decode_frame,
    decode_message,
    decode_snapshot_meta,
    encode_frame,
    encode_message,
)
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb

K = MessageKind
LOCAL = {K.HUP, K.BEAT, K.UNREACHABLE, K.SNAPSHOT, K.SNAPSHOT_STATUS, K.CHECK_QUORUM}
LOCAL |= {K.FORGET_LEADER, K.STORAGE_APPEND, K.STORAGE_APPEND_REPLY}
LOCAL |= {K.STORAGE_APPLY, K.STORAGE_APPLY_REPLY}


def entry(index: int, term: int = 3, kind: EntryKind = EntryKind.NORMAL) -> Entry:
    return Entry(Term(term), LogIndex(index), b"data %d" % index, kind)


APPEND = Message(
    K.APPEND,
    MemberId(2),
    MemberId(1),
    Term(3),
    Term(2),
    LogIndex(7),
    tuple(entry(8 + place, kind=kind) for place, kind in enumerate(EntryKind)),
    LogIndex(5),
)


@pytest.mark.parametrize("kind", [kind for kind in K if kind not in LOCAL])
def test_each_kind_of_peer_message_is_decoded_as_it_was_encoded(kind):
    plain = Message(kind, MemberId(2), MemberId(1), Term(3))
    assert decode_message(encode_message(plain)) == plain


@pytest.mark.parametrize(
    "fields",
    [
        {"log_term": 2},
        {"index": 9},
        {"commit": 8},
        {"reject": True, "reject_hint": 4},
        {"reject": True},
        {"context": b"round"},
    ],
)
def test_each_field_is_decoded_as_it_was_encoded(fields):
    message = replace(Message(K.APPEND_REPLY, MemberId(2), MemberId(1), Term(3)), **fields)
    assert decode_message(encode_message(message)) == message


def test_entries_of_all_kinds_arrive_in_order():
    assert decode_message(encode_message(APPEND)) == APPEND


def encoded(messages, make_beacon):
    return b"".join(encode_frame(messages, make_beacon))


LARGE = 64 << 10


@pytest.mark.parametrize("sizes", [[LARGE], [1, LARGE, 0, 5, LARGE, LARGE], [LARGE, 1], [1, LARGE]])
def test_the_data_of_large_entries_is_encoded_without_a_copy(sizes):
    entries = tuple(
        Entry(Term(3), LogIndex(8 + place), bytes([place]) * size, kind)
        for place, size in enumerate(sizes)
        for kind in [list(EntryKind)[place % 3]]
    )
    messages = [
        Message(K.HEARTBEAT, MemberId(2), MemberId(1), Term(3), context=b"read"),
        replace(APPEND, entries=entries),
        replace(APPEND, entries=(entry(8),)),
        replace(APPEND, kind=K.PROPOSE, entries=entries[:1]),
    ]
    parts = encode_frame(messages, lambda: b"beacon")
    copied = pb.Frame.FromString(b"".join(parts))
    assert list(copied.messages) == [encode_message(each) for each in messages]
    assert decode_frame(b"".join(parts)) == (messages, b"beacon")
    identities = {id(part) for part in parts}
    assert all(id(each.data) in identities for each in entries if len(each.data) == LARGE)
    assert sum(len(part) for part in parts if len(part) != LARGE) < 1000


def test_a_frame_holds_several_messages():
    reply = Message(K.APPEND_REPLY, MemberId(2), MemberId(1), Term(3), index=LogIndex(4))
    assert decode_frame(encoded([APPEND, reply], no_beacon)) == ([APPEND, reply], None)
    assert decode_frame(encoded([], no_beacon)) == ([], None)
    with pytest.raises(MessageMalformed, match="not a frame"):
        decode_frame(b"\xff\xff")


def no_beacon() -> bytes:
    raise AssertionError("nothing to attach a beacon to")


@pytest.mark.parametrize("kind", [K.HEARTBEAT, K.HEARTBEAT_REPLY])
def test_a_frame_with_a_heartbeat_has_a_beacon(kind):
    beat = Message(kind, MemberId(2), MemberId(1), Term(3))
    longest = bytes(BEACON_BYTES_MAX)
    assert decode_frame(encoded([APPEND, beat], lambda: longest)) == ([APPEND, beat], longest)
    assert decode_frame(encoded([beat], bytes)) == ([beat], b"")


def test_the_length_of_a_beacon_is_limited():
    frame = pb.Frame(beacon=bytes(BEACON_BYTES_MAX + 1))
    with pytest.raises(MessageMalformed, match="a beacon of 257 bytes exceeds the limit"):
        decode_frame(frame.SerializeToString())
    with pytest.raises(AssertionError):
        encode_frame(
            [Message(K.HEARTBEAT, MemberId(2), MemberId(1))], lambda: bytes(BEACON_BYTES_MAX + 1)
        )


def test_messages_that_stay_on_a_member_cannot_be_encoded():
    for kind in LOCAL:
        with pytest.raises(KeyError):
            encode_message(Message(kind, MemberId(2), MemberId(1)))


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("kind", 0),
        ("kind", 99),
        ("to", 0),
        ("sender", 0),
        ("sender", -1),
        ("term", -1),
        ("index", -1),
        ("log_term", -1),
        ("commit", -1),
        ("reject_hint", -1),
    ],
)
def test_numbers_outside_their_range_are_refused(field, wrong):
    encoded = encode_message(APPEND)
    try:
        setattr(encoded, field, wrong)
    except ValueError:
        return  # The protobuf type cannot hold this number.
    with pytest.raises(MessageMalformed):
        decode_message(encoded)


@pytest.mark.parametrize(
    ("field", "wrong"), [("index", 9), ("index", 7), ("term", 0), ("term", 4), ("kind", 99)]
)
def test_entries_that_are_not_consecutive_are_refused(field, wrong):
    encoded = encode_message(APPEND)
    setattr(encoded.entries[0], field, wrong)
    with pytest.raises(MessageMalformed):
        decode_message(encoded)


def test_proposed_entries_have_no_index_and_term():
    proposed = Message(K.PROPOSE, MemberId(2), MemberId(1), entries=(entry(0, 0), entry(0, 0)))
    assert decode_message(encode_message(proposed)) == proposed


CONF_STATE = ConfState((MemberId(1), MemberId(2)))


def header(**fields: int) -> pb.SnapshotHeader:
    values = {"index": 5, "index_term": 2, "term": 2, **fields}
    return pb.SnapshotHeader(conf_state=encode_conf_state(CONF_STATE), **values)


def test_a_snapshot_message_contains_its_metadata():
    assert decode_snapshot_meta(header()) == SnapshotMeta(LogIndex(5), Term(2), CONF_STATE)
    least = header(index=1, index_term=1, term=1)
    assert decode_snapshot_meta(least) == SnapshotMeta(LogIndex(1), Term(1), CONF_STATE)


@pytest.mark.parametrize("wrong", [{"index": 0}, {"index_term": 0}, {"term": 1}])
def test_an_invalid_snapshot_message_is_refused(wrong):
    with pytest.raises(MessageMalformed, match="out of range"):
        decode_snapshot_meta(header(**wrong))


def test_a_snapshot_without_voters_is_refused():
    nobody = pb.SnapshotHeader(
        conf_state=encode_conf_state(ConfState()), index=5, index_term=2, term=2
    )
    with pytest.raises(MessageMalformed, match="no voters"):
        decode_snapshot_meta(nobody)
