"""Commands that are encoded into a log entry are decoded unchanged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft.v1 import session_service_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import wire
from taskraft_service.command_codecs.put import PUT, new_task
from taskraft_service.command_codecs.registry import DECODERS
from taskraft_service.command_codecs.request_key import NO_KEY, RequestKey
from taskraft_service.command_codecs.selected_tasks import BURY, DELETE, KICK
from taskraft_service.command_codecs.sessions import (
    ATTACH_SESSION,
    CLOSE_SESSION,
    KEEP_SESSIONS,
    OPEN_SESSION,
    STARTUP,
    TRIM_FEED,
)
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.command_codecs.tubes import CREATE_TUBE, DROP_TUBE, RELEASE_ALL, TRUNCATE_TUBE
from taskraft_service.entries.encoded_command import (
    EncodedCommand,
    encode_leader_command,
    encode_request,
    request_hash,
)
from taskraft_service.entries.log_entry import decode_entry, encode_entry
from taskraft_service.queue.operations.registry import Command
from taskraft_service.queue.operations.sessions import KeepSessions
from taskraft_service.queue.operations.tubes import DropTube
from taskraft_service.queue.store.idempotency import request_scope
from taskraft_service.stubs.log.v1 import log_pb2

names = st.text("abc", max_size=4)
times = st.none() | st.integers(0, 2**50)
specs = st.builds(
    task_pb2.TaskSpec,
    payload=st.binary(max_size=200),
    content_type=names,
    headers=st.dictionaries(names, st.binary(max_size=5), max_size=3),
    priority=st.none() | st.integers(-(2**63), 2**63 - 1),
    delay_ms=times,
    ttl_ms=times,
    ttr_ms=times,
    visible_at_ms=times,
    type=names,
    subqueue=names,
    position=st.sampled_from([0, 1, 2]),
) | st.builds(task_pb2.TaskSpec, payload=st.binary(max_size=200))
tokens = st.lists(st.integers(1, 2**40), max_size=4)
failures = st.none() | st.builds(task_pb2.Failure, type=names, message=names, fatal=st.booleans())
settlements = st.one_of(
    st.builds(
        pb.Settlement,
        tokens=tokens,
        ack=st.builds(pb.Settlement.Ack, result=st.none() | st.binary(max_size=4)),
    ),
    st.builds(
        pb.Settlement,
        tokens=tokens,
        release=st.builds(
            pb.Settlement.Release,
            delay_ms=times,
            ttl_policy=st.sampled_from([0, 1, 2, 3]),
            ttl_ms=times,
            position=st.sampled_from([0, 1, 2]),
            uncounted=st.booleans(),
            failure=failures,
        ),
    ),
    st.builds(pb.Settlement, tokens=tokens, bury=st.builds(pb.Settlement.Bury, failure=failures)),
    st.builds(
        pb.Settlement, tokens=tokens, reject=st.builds(pb.Settlement.Reject, failure=failures)
    ),
    st.builds(
        pb.Settlement,
        tokens=tokens,
        touch=st.builds(pb.Settlement.Touch, increment_ms=st.integers(0, 9), restart=st.booleans()),
    ),
)
selectors = st.builds(task_pb2.TaskSelector, ids=st.lists(st.integers(1, 99), max_size=3))
options = st.builds(
    tube_service_pb2.TubeOptions,
    priority_order=st.sampled_from([0, 1, 2]),
    priority=times,
    delay_ms=times,
    ttl_ms=times,
    ttr_ms=times,
    put_paused=st.none() | st.booleans(),
    take_paused=st.none() | st.booleans(),
)
requests = st.one_of(
    st.tuples(
        st.just(PUT),
        st.builds(
            pb.PutTasksRequest,
            request_id=names,
            tube=names,
            tasks=st.lists(specs, max_size=5),
            atomic=st.booleans(),
        ),
    ),
    st.tuples(
        st.just(TAKE),
        st.builds(
            pb.TakeTasksRequest,
            request_id=names,
            sources=st.lists(st.builds(pb.TakeSource, tube=names), max_size=3),
            session_id=names,
            tasks_max=st.integers(0, 9),
            bytes_max=st.integers(0, 9),
            types=st.lists(names, max_size=2),
            priority_bound=times,
            ttr_ms=times,
            task_id=times,
        ),
    ),
    st.tuples(
        st.just(SETTLE),
        st.builds(
            pb.SettleTasksRequest,
            request_id=names,
            settlements=st.lists(settlements, max_size=4),
            atomic=st.booleans(),
        ),
    ),
    st.tuples(
        st.just(KICK),
        st.builds(pb.KickTasksRequest, tube=names, count=st.integers(0, 9), selector=selectors),
    ),
    st.tuples(st.just(BURY), st.builds(pb.BuryTasksRequest, tube=names, selector=selectors)),
    st.tuples(st.just(DELETE), st.builds(pb.DeleteTasksRequest, tube=names, selector=selectors)),
    st.tuples(
        st.just(CREATE_TUBE),
        st.builds(
            tube_service_pb2.CreateTubeRequest,
            tube=st.builds(
                tube_service_pb2.Tube, name=names, kind=st.integers(1, 6), options=options
            ),
            if_not_exists=st.booleans(),
        ),
    ),
    st.tuples(
        st.just(DROP_TUBE),
        st.builds(tube_service_pb2.DropTubeRequest, name=names, force=st.booleans()),
    ),
    st.tuples(st.just(TRUNCATE_TUBE), st.builds(tube_service_pb2.TruncateTubeRequest, name=names)),
    st.tuples(st.just(RELEASE_ALL), st.builds(tube_service_pb2.ReleaseAllRequest, name=names)),
    st.tuples(
        st.just(OPEN_SESSION),
        st.builds(
            log_pb2.OpenSession,
            request=st.builds(
                session_service_pb2.OpenSessionRequest, name=names, ttr_ms=st.integers(0, 9)
            ),
            session_id=names,
            ends_with_stream=st.booleans(),
        ),
    ),
    st.tuples(
        st.just(KEEP_SESSIONS),
        st.builds(session_service_pb2.KeepSessionsRequest, session_ids=st.lists(names, max_size=3)),
    ),
    st.tuples(
        st.just(CLOSE_SESSION),
        st.builds(
            session_service_pb2.CloseSessionRequest, session_id=names, uncounted=st.booleans()
        ),
    ),
    st.tuples(
        st.just(ATTACH_SESSION),
        st.builds(log_pb2.AttachSession, session_id=names, attached=st.booleans()),
    ),
    st.tuples(
        st.just(STARTUP),
        st.builds(
            log_pb2.Startup,
            member_id=st.integers(1, 5),
            feed_id=names,
            feed_partitions=st.integers(0, 9),
            failover_grace_ms=st.integers(0, 9),
        ),
    ),
    st.tuples(
        st.just(TRIM_FEED),
        st.builds(log_pb2.TrimFeed, low_seq=st.dictionaries(st.integers(0, 9), st.integers(0, 99))),
    ),
)


KEYS = st.one_of(
    st.just(NO_KEY),
    st.builds(
        RequestKey,
        st.integers(1, 2**64 - 1),
        st.builds(request_scope, st.sampled_from(("", "billing")), st.sampled_from(("", "c", "ü"))),
    ),
)


@given(st.integers(0, 2**50), st.lists(st.tuples(requests, KEYS), max_size=5))
def test_an_entry_is_decoded_as_it_was_encoded(now_ms, asked):
    encoded = [encode_leader_command(codec, message, key) for (codec, message), key in asked]
    data = encode_entry(now_ms, encoded)
    assert decode_entry(data) == (now_ms, [one.command for one in encoded])


@given(st.integers(0, 2**50), st.lists(requests, max_size=5))
def test_an_entry_is_a_valid_message_of_the_log(now_ms, asked):
    key = RequestKey(7, request_scope("billing", "c"))
    encoded = [encode_leader_command(codec, message, key) for codec, message in asked]
    entry = log_pb2.LogEntry.FromString(encode_entry(now_ms, encoded))
    assert entry.now_ms == now_ms
    bodies = [getattr(one, one.WhichOneof("body")) for one in entry.commands]
    assert bodies == [message for _, message in asked]
    assert {one.request_hash for one in entry.commands} <= {7}
    assert {one.request_scope for one in entry.commands} <= {"billing\0c\0"}


def test_every_command_has_a_codec():
    numbers = set(DECODERS)
    kinds = {field.name for field in log_pb2.Command.DESCRIPTOR.oneofs[0].fields}
    covered = {
        field.name
        for field in log_pb2.Command.DESCRIPTOR.oneofs[0].fields
        if field.number in numbers
    }
    assert kinds - covered == set()
    assert len(covered) == len(Command.__args__)


def test_a_request_is_logged_with_its_received_bytes():
    raw = pb.PutTasksRequest(tube="t", tasks=[task_pb2.TaskSpec(payload=b"p")]).SerializeToString()
    unknown_field = wire.length_delimited(77, b"from a later version")
    request = pb.PutTasksRequest.FromString(raw + unknown_field)
    encoded = encode_request(PUT, request, raw + unknown_field)
    assert unknown_field in encode_entry(1, [encoded])


NOW = wire.tag(log_pb2.LogEntry.NOW_MS_FIELD_NUMBER, wire.VARINT) + wire.varint(300)
DROP = tube_service_pb2.DropTubeRequest(request_id="r", name="t")
DROPPED = encode_leader_command(DROP_TUBE, DROP)
SCOPE = log_pb2.Command.REQUEST_SCOPE_FIELD_NUMBER
HASHED = wire.tag(log_pb2.Command.REQUEST_HASH_FIELD_NUMBER, wire.FIXED64) + bytes(8)


def in_entry(command):
    return wire.length_delimited(log_pb2.LogEntry.COMMANDS_FIELD_NUMBER, command)


def test_an_entry_contains_two_commands_one_with_a_hash():
    hashed = encode_leader_command(DROP_TUBE, DROP, RequestKey(5))
    data = encode_entry(300, [hashed, DROPPED])
    assert data == NOW + in_entry(hashed.head + hashed.raw) + in_entry(DROPPED.head + DROPPED.raw)
    message = log_pb2.LogEntry.FromString(data)
    assert [one.request_hash for one in message.commands] == [5, 0]
    again = decode_entry(data)
    assert again == (
        300,
        [
            DropTube("t", request_id="r", request_hash=5),
            DropTube("t", request_id="r", request_hash=0),
        ],
    )
    assert decode_entry(NOW) == (300, [])


def test_a_command_keeps_the_scope_in_front_of_its_request_id():
    scoped = encode_leader_command(DROP_TUBE, DROP, RequestKey(5, request_scope("billing", "c")))
    assert scoped.command.request_id == "billing\0c\0r"
    (again,) = decode_entry(encode_entry(300, [scoped]))[1]
    assert again == scoped.command


def test_an_entry_of_a_version_without_scopes_has_the_empty_scope():
    old = log_pb2.LogEntry(now_ms=300, commands=[log_pb2.Command(request_hash=5, drop_tube=DROP)])
    (command,) = decode_entry(old.SerializeToString())[1]
    assert (command.request_id, command.request_hash) == ("r", 5)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        wire.length_delimited(9, b""),
        NOW + wire.length_delimited(9, b""),
        NOW + in_entry(b""),
        NOW + in_entry(wire.length_delimited(99, b"")),
        NOW + in_entry(wire.tag(DROP_TUBE.number, wire.VARINT) + b"\0"),
        NOW + in_entry(wire.length_delimited(SCOPE, b"a\0b\0") + DROPPED.head + DROPPED.raw),
        NOW + in_entry(HASHED + wire.length_delimited(SCOPE, b"\xff") + DROPPED.head + DROPPED.raw),
        NOW + in_entry(HASHED + wire.length_delimited(SCOPE, b"a\0b\0")),
        NOW + in_entry(DROPPED.head + DROPPED.raw + b"\0"),
        NOW + in_entry(DROPPED.head + DROPPED.raw[:-1]),
        NOW + in_entry(DROPPED.head + DROPPED.raw)[:-1],
    ],
)
def test_an_unknown_entry_stops_the_node(data):
    with pytest.raises(wire.WireMalformed):
        decode_entry(data)


def test_the_hash_of_a_settle_ignores_the_order_of_maps():
    headers = [{"a": b"1", "b": b"2"}, {"b": b"2", "a": b"1"}]
    for kind in ("release", "bury"):
        update = task_pb2.TaskUpdate()
        raws = []
        for each in headers:
            update.headers_set.clear()
            update.headers_set.update(each)
            parts = [
                wire.length_delimited(
                    3, task_pb2.TaskUpdate(headers_set={name: content}).SerializeToString()[2:]
                )
                for name, content in each.items()
            ]
            body = b"".join(parts)
            number = pb.Settlement.DESCRIPTOR.fields_by_name[kind].number
            action = pb.Settlement.DESCRIPTOR.fields_by_name[kind].message_type
            inner = wire.length_delimited(action.fields_by_name["update"].number, body)
            settlement = wire.length_delimited(number, inner)
            raws.append(wire.length_delimited(2, settlement))
        hashes = {request_hash(pb.SettleTasksRequest.FromString(raw), raw) for raw in raws}
        assert (len(set(raws)), len(hashes)) == (2, 1), kind


def test_the_hash_of_a_put_ignores_the_order_of_maps():
    def spec(*names):
        return b"".join(
            wire.length_delimited(
                3, wire.length_delimited(1, name) + wire.length_delimited(2, b"v")
            )
            for name in names
        )

    raws = [wire.length_delimited(3, spec(*order)) for order in ((b"a", b"b"), (b"b", b"a"))]
    assert raws[0] != raws[1]
    hashes = {request_hash(pb.PutTasksRequest.FromString(raw), raw) for raw in raws}
    assert len(hashes) == 1


def test_another_method_changes_the_hash():
    raw = pb.DeleteTasksRequest(request_id="r", tube="t", selector={"ids": [1]}).SerializeToString()
    kinds = (pb.DeleteTasksRequest, pb.BuryTasksRequest, pb.KickTasksRequest, pb.CancelTasksRequest)
    hashes = [request_hash(kind.FromString(raw), raw) for kind in kinds]
    assert len(set(hashes)) == len(hashes)


def test_another_request_changes_the_hash():
    raws = [
        pb.PutTasksRequest(tube=tube, tasks=[task_pb2.TaskSpec(payload=payload)])
        for tube in ("a", "b")
        for payload in (b"1", b"2")
    ]
    hashes = {request_hash(raw, raw.SerializeToString()) for raw in raws}
    assert len(hashes) == 4
    assert 0 not in hashes


@given(specs)
def test_a_task_is_decoded_from_its_bytes(spec):
    task = new_task(spec.SerializeToString())
    assert task.payload_bytes == len(spec.payload)
    assert task.priority == (spec.priority if spec.HasField("priority") else None)
    assert task.type == spec.type


def test_the_size_of_an_encoded_command_is_counted():
    assert EncodedCommand(KeepSessions([]), b"12", b"345").record_bytes == 5
