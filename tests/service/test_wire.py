"""Protobuf's wire format, compared with protobuf."""

import contextlib

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import wire


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_are_equal_to_those_of_protobuf(number):
    message = task_pb2.Task(id=number).SerializeToString()
    expected = wire.tag(2, wire.VARINT) + wire.varint(number) if number else b""
    assert message == expected


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_a_varint_is_decoded_as_it_was_encoded(number, after):
    raw = wire.varint(number)
    assert wire.read_varint(raw + after, 0) == (number, len(raw))


@given(st.lists(st.binary(max_size=300), max_size=20), st.text(max_size=5), st.booleans())
def test_elements_are_found_with_their_offsets(payloads, name, atomic):
    specs = [task_pb2.TaskSpec(payload=payload) for payload in payloads]
    request = pb.PutTasksRequest(
        request_id=name, tube=name, tasks=specs, atomic=atomic, room_wait_ms=7
    )
    raw = request.SerializeToString()
    assert [task_pb2.TaskSpec.FromString(one) for one in wire.elements(raw, 3)] == specs
    # The message may be a part of longer bytes, such as an entry with several commands.
    found, rest = wire.split(raw * 3, len(raw), 2 * len(raw), 3)
    assert found == wire.elements(raw, 3)
    request.ClearField("tasks")
    assert pb.PutTasksRequest.FromString(rest) == request


class Unaddable(bytes):
    """Bytes of which no part may be appended to other bytes, because that copies both."""

    def __getitem__(self, where):
        part = super().__getitem__(where)
        return Unaddable(part) if isinstance(where, slice) else part

    def __radd__(self, other):
        raise AssertionError("the time of a split must not grow with the square of the fields")


def test_many_fields_beside_the_elements_are_copied_once():
    tube, task = wire.length_delimited(2, b"tube"), wire.length_delimited(3, b"")
    fields = [tube, tube, task, tube, task, task, task, tube, tube]
    found, rest = wire.split(Unaddable(b"".join(fields)), 0, len(b"".join(fields)), 3)
    assert found == [b""] * 4
    assert rest == tube * 5


def test_fields_of_every_type_are_skipped():
    raw = b"".join(
        (
            wire.tag(1, wire.FIXED64) + b"12345678",
            wire.tag(2, wire.FIXED32) + b"1234",
            wire.tag(4, wire.VARINT) + wire.varint(300),
            wire.length_delimited(300, b"other"),
            wire.length_delimited(3, b"wanted"),
        )
    )
    assert wire.elements(raw, 3) == [b"wanted"]
    assert [number for number, _, _ in wire.fields(raw)] == [1, 2, 4, 300, 3]


@pytest.mark.parametrize(
    "raw", [b"\x1a", b"\x1a\x05ab", b"\x0b", b"\xff" * 11, b"\x09123", b"\x1a\xff\xff"]
)
def test_bytes_that_are_not_a_message_are_refused(raw):
    with pytest.raises(wire.WireMalformed):
        wire.elements(raw, 3)
    with pytest.raises(wire.WireMalformed):
        wire.split(b"\x1a" + raw + bytes(9), 1, 1 + len(raw), 3)
    with pytest.raises(wire.WireMalformed):
        list(wire.fields(raw))


@given(st.binary(max_size=400))
def test_bytes_are_read_to_their_end_or_malformed(raw):
    """Malformed bytes raise no other exception and yield no invented value."""
    for read in (
        lambda: wire.elements(raw, 3),
        lambda: wire.split(raw + b"\xff\x00" * 9, 0, len(raw), 3)[0],
        lambda: list(wire.fields(raw)),
    ):
        with contextlib.suppress(wire.WireMalformed):
            assert len(read()) <= len(raw)


@given(st.integers(0, 20_000))
def test_a_message_of_one_field_is_recognised_by_its_first_bytes(size):
    raw = task_pb2.TaskSpec(payload=b"x" * size).SerializeToString()
    if raw:
        assert raw.startswith(wire.sole_field_prefix(1, len(raw)))


SCRAPS = st.one_of(
    st.binary(max_size=8),
    st.builds(pb.PutTasksRequest, request_id=st.text(max_size=3)).map(
        lambda m: m.SerializeToString()
    ),
    st.lists(st.binary(max_size=3), max_size=4).map(
        lambda payloads: pb.PutTasksRequest(
            tasks=[task_pb2.TaskSpec(payload=payload) for payload in payloads], atomic=True
        ).SerializeToString()
    ),
    st.sampled_from(
        (
            wire.length_delimited(1, b""),
            wire.tag(1, wire.VARINT) + b"\x07",
            wire.tag(1, wire.FIXED64) + b"12345678",
            wire.tag(1, wire.FIXED32) + b"1234",
            b"\x8a\x00\x01r",  # a tag with redundant bytes
            b"\x0b\x0c",  # an empty group
            wire.tag(500, wire.LENGTH) + b"\x02ab",
        )
    ),
)


@given(st.lists(SCRAPS, max_size=6).map(b"".join))
def test_a_single_field_is_decoded_like_the_parser_decodes_it(raw):
    """The single field is decoded in every message that the parser accepts.

    Fields may be in any order and repeated.
    """
    try:
        expected = pb.PutTasksRequest.FromString(raw).request_id.encode()
    except DecodeError:
        with contextlib.suppress(wire.WireMalformed):
            wire.last_content(raw, 1)
        return
    try:
        assert wire.last_content(raw, 1) == expected
    except wire.WireMalformed:
        assert any(byte & 7 == 3 for byte in raw), "only groups are left to the parser"


def test_a_field_behind_many_others_is_found_in_few_steps(monkeypatch):
    steps = 0
    read_varint = wire.read_varint

    def counted(raw, at):
        nonlocal steps
        steps += 1
        return read_varint(raw, at)

    monkeypatch.setattr(wire, "read_varint", counted)
    tasks = [task_pb2.TaskSpec(payload=b"x" * 20)] * 10_000
    raw = pb.PutTasksRequest(tasks=tasks).SerializeToString() + wire.length_delimited(1, b"r")
    assert wire.last_content(raw, 1) == b"r"
    assert steps <= 4
