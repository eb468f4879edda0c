"""A change of a task's content leaves the other fields as the producer sent them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taskraft.v1 import task_pb2
from taskraft_service.entries.body_editor import edit_body
from taskraft_service.limits import HEADERS_BYTES_MAX, HEADERS_MAX
from taskraft_service.queue.entities.refusal import Reason, Refusal

NAMES = st.text(alphabet="abcé", min_size=1, max_size=3)
HEADERS = st.dictionaries(NAMES, st.binary(max_size=3), max_size=4)
SPECS = st.builds(
    task_pb2.TaskSpec,
    payload=st.binary(max_size=5),
    content_type=st.text(max_size=5),
    headers=HEADERS,
    priority=st.none() | st.integers(-(2**63), 2**63 - 1),
    subqueue=st.text(max_size=3),
    unique_key=st.lists(st.text(max_size=3), max_size=3),
    retry=st.none() | st.builds(task_pb2.RetryPolicy, attempts_max=st.integers(0, 9)),
)
UPDATES = st.builds(
    task_pb2.TaskUpdate,
    payload=st.none() | st.binary(max_size=5),
    content_type=st.none() | st.text(max_size=5),
    headers_set=HEADERS,
    headers_remove=st.lists(NAMES, max_size=2),
)


@given(SPECS, UPDATES)
def test_an_edit_equals_the_change_of_the_message(spec, update):
    """Compare with the same change made with protobuf messages."""
    edited = edit_body(spec.SerializeToString(), update.SerializeToString())
    expected = task_pb2.TaskSpec()
    expected.CopyFrom(spec)
    if update.HasField("payload"):
        expected.payload = update.payload
    if update.HasField("content_type"):
        expected.content_type = update.content_type
    for name in update.headers_remove:
        expected.headers.pop(name, None)
    for name, content in update.headers_set.items():
        expected.headers[name] = content
    assert task_pb2.TaskSpec.FromString(edited.body) == expected
    assert edited.payload_bytes == len(expected.payload)


@given(SPECS, UPDATES.filter(lambda update: update.headers_set or update.headers_remove))
def test_changed_headers_are_in_order_of_their_names(spec, update):
    """The order in which a client wrote a map has no effect once the headers change."""
    backwards = task_pb2.TaskSpec()
    backwards.CopyFrom(spec)
    backwards.headers.clear()
    raw = backwards.SerializeToString()
    for name in sorted(spec.headers, reverse=True):
        raw += task_pb2.TaskSpec(headers={name: spec.headers[name]}).SerializeToString()
    first = edit_body(spec.SerializeToString(deterministic=True), update.SerializeToString())
    assert edit_body(raw, update.SerializeToString()) == first


def test_a_plain_payload_stays_recognisable():
    """The hot paths recognise specs that contain only a payload by their first bytes."""
    update = task_pb2.TaskUpdate(payload=b"new")
    plain = task_pb2.TaskSpec(payload=b"old").SerializeToString()
    wanted = task_pb2.TaskSpec(payload=b"new").SerializeToString()
    assert edit_body(plain, update.SerializeToString()).body == wanted


def test_unknown_fields_are_kept():
    """An update keeps the fields of a later version."""
    unknown = b"\xf8\x7f\x05" + b"\xfa\x7f\x01x" + b"\xfd\x7f\x01\x02\x03\x04"
    edited = edit_body(unknown, task_pb2.TaskUpdate(payload=b"p").SerializeToString())
    assert edited.body == b"\x0a\x01p" + unknown


def test_each_part_is_changed_separately():
    spec = task_pb2.TaskSpec(
        payload=b"p", content_type="c", type="t", headers={"a": b"1", "b": b"2", "c": b"3"}
    )
    update = task_pb2.TaskUpdate(headers_set={"b": b"4"}, headers_remove=["a", "none"])
    edited = edit_body(spec.SerializeToString(), update.SerializeToString())
    assert task_pb2.TaskSpec.FromString(edited.body) == task_pb2.TaskSpec(
        payload=b"p", content_type="c", type="t", headers={"b": b"4", "c": b"3"}
    )
    assert edited.payload_bytes == 1
    update = task_pb2.TaskUpdate(content_type="d")
    edited = edit_body(spec.SerializeToString(), update.SerializeToString())
    spec.content_type = "d"
    assert task_pb2.TaskSpec.FromString(edited.body) == spec


def test_long_and_unusual_headers_are_read_as_the_parser_reads_them():
    """Compare entries with long names and contents, without a content, and with fields twice."""
    entries = {"n" * 128: b"c" * 127, "m" * 127: b"c" * 128, "l": b"", "k": b"c" * 3000}
    spec = task_pb2.TaskSpec(headers=entries).SerializeToString()
    spec += b"\x1a\x03\x0a\x01j" + b"\x1a\x09\x0a\x01x\x12\x01y\x0a\x01i" + b"\x1a\x00"
    parsed = task_pb2.TaskSpec.FromString(spec)
    update = task_pb2.TaskUpdate(headers_set={"h": b"1"}, headers_remove=list(parsed.headers))
    edited = edit_body(spec, update.SerializeToString())
    assert task_pb2.TaskSpec.FromString(edited.body) == task_pb2.TaskSpec(headers={"h": b"1"})


def test_a_task_has_a_maximum_number_of_headers():
    """Only a change that sets headers is refused, so tasks of earlier versions can be changed."""
    spec = task_pb2.TaskSpec(headers={str(number): b"" for number in range(HEADERS_MAX)})
    more = task_pb2.TaskUpdate(headers_set={"more": b""}).SerializeToString()
    refused = edit_body(spec.SerializeToString(), more)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.INVALID_FIELD
    assert refused.metadata["limit"] == str(HEADERS_MAX)
    instead = task_pb2.TaskUpdate(headers_set={"more": b""}, headers_remove=["0"])
    assert not isinstance(edit_body(spec.SerializeToString(), instead.SerializeToString()), Refusal)
    spec.headers["old"] = b""
    other = task_pb2.TaskUpdate(payload=b"p", headers_remove=["0"])
    assert not isinstance(edit_body(spec.SerializeToString(), other.SerializeToString()), Refusal)


def test_all_headers_share_one_limit():
    whole = task_pb2.TaskUpdate(headers_set={"b": bytes(HEADERS_BYTES_MAX - 1)})
    assert not isinstance(edit_body(b"", whole.SerializeToString()), Refusal)
    spec = task_pb2.TaskSpec(headers={"a": bytes(HEADERS_BYTES_MAX - 1)})
    update = task_pb2.TaskUpdate(headers_set={"b": b""})
    refused = edit_body(spec.SerializeToString(), update.SerializeToString())
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.PAYLOAD_TOO_LARGE
    assert refused.metadata["actual"] == str(HEADERS_BYTES_MAX + 1)
