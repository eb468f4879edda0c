"""A message with too many fields is refused before it is parsed."""

import asyncio

import pytest

from taskraft.v1 import task_service_pb2 as pb
from taskraft.v1.task_pb2 import TaskSpec
from taskraft_service import wire
from taskraft_service.api.rpc.message_fields import SLICE_FIELDS, begin_long_message
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.limits import MESSAGE_FIELDS_MAX
from tests.bench.test_worst_requests import LongestRun
from tests.turns import count_turns

PUT = pb.PutTasksRequest
BATCH = pb.ExecuteBatchRequest
DELETE = pb.DeleteTasksRequest
EMPTY_TASK = b"\x1a\x00"
CALLS_PER_FIELD_MAX = 10
MANY = EMPTY_TASK * (MESSAGE_FIELDS_MAX + 1)


def inside(number, content):
    return wire.length_delimited(number, content)


BOMBS = {
    "empty elements": (PUT, MANY),
    "elements of two kinds": (PUT, (EMPTY_TASK + b"\x12\x01a") * (MESSAGE_FIELDS_MAX // 2 + 1)),
    "unknown numbers": (PUT, b"\x78\x01" * (MESSAGE_FIELDS_MAX + 1)),
    "groups": (PUT, b"\x7b\x7c" * (MESSAGE_FIELDS_MAX // 2 + 1)),
    "a message in a message": (BATCH, inside(2, inside(1, MANY))),
    "behind a malformed message": (BATCH, inside(2, b"\xff" * 20) + inside(2, inside(1, MANY))),
    "headers": (
        PUT,
        inside(3, TaskSpec(headers={f"{n}": b"" for n in range(MESSAGE_FIELDS_MAX // 3)})
               .SerializeToString()),
    ),
    "a list of large numbers": (
        DELETE,
        pb.DeleteTasksRequest(
            selector={"ids": [1 << 62] * (2 * MESSAGE_FIELDS_MAX)}
        ).SerializeToString(),
    ),
    "a list of small numbers": (
        DELETE,
        pb.DeleteTasksRequest(
            selector={"ids": [1] * (MESSAGE_FIELDS_MAX + 1)}
        ).SerializeToString(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_message_with_too_many_fields_is_refused(bomb):
    kind, raw = BOMBS[bomb]
    turns = count_turns()
    with pytest.raises(CallRefused) as refused:
        await begin_long_message(raw, kind)
    turns.is_over = True
    assert refused.value.metadata["limit"] == str(MESSAGE_FIELDS_MAX)
    is_one_field = bomb.startswith("a list of")
    assert turns.count >= (1 if is_one_field else MESSAGE_FIELDS_MAX // SLICE_FIELDS)


async def test_empty_messages_are_counted_in_slices():
    raw = EMPTY_TASK * MESSAGE_FIELDS_MAX
    with LongestRun() as longest:
        assert await asyncio.create_task(begin_long_message(raw, PUT)) is None
    assert longest.calls <= CALLS_PER_FIELD_MAX * SLICE_FIELDS


async def test_the_content_of_payloads_does_not_count():
    payload = EMPTY_TASK * MESSAGE_FIELDS_MAX
    tasks = [TaskSpec(payload=payload, headers={"a": b"b"})] * 20
    raw = pb.PutTasksRequest(tube="t", tasks=tasks).SerializeToString()
    assert await begin_long_message(raw, PUT) is None


@pytest.mark.parametrize("raw", [b"\x1a", b"\x1a\x05ab", b"\xff" * 11, b"\x09123", b"\x7e\x00"])
async def test_a_malformed_message_is_left_to_the_parser(raw):
    assert await begin_long_message(raw, PUT) is None
