"""SaveSnapshot streams a consistent state, continues a transfer, and keeps few snapshots."""

import google_crc32c
import grpc
import pytest

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import task_pb2
from taskraft_service.api.cluster import snapshots
from taskraft_service.limits import SNAPSHOTS_MAX
from taskraft_service.queue.persistence.record_digest import PARTS, part_of
from taskraft_service.versions import DigestVersion
from tests.service.conftest import create, put, reason_of
from tests.turns import turns_until

pytestmark = pytest.mark.real_time


async def read(node, **fields):
    """Return the header and the content of a stream."""
    stream = node.cluster.SaveSnapshot(pb.SaveSnapshotRequest(**fields), timeout=30)
    header, content = pb.SnapshotHeader(), b""
    async for message in stream:
        if message.HasField("header"):
            header = message.header
        assert google_crc32c.value(message.content) == message.content_crc32c
        content += message.content
    return header, content


async def digests(node):
    """Return the digests of a stream, which only the last message has."""
    messages = [each async for each in node.cluster.SaveSnapshot(pb.SaveSnapshotRequest())]
    assert [each.HasField("digest") for each in messages] == [False] * (len(messages) - 1) + [True]
    assert messages[-1].digest.version == DigestVersion.V1
    return list(messages[-1].digest.parts)


async def test_the_last_message_has_the_digests_of_the_records(node):
    await create(node)
    empty = await digests(node)
    await put(node, b"x")
    changed = await digests(node)
    assert await digests(node) == changed
    assert [part for part in range(PARTS) if empty[part] != changed[part]] == [part_of(1)]


async def refused(node, **fields):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read(node, **fields)
    return reason_of(caught.value)


async def begun(node):
    """Begin a transfer that stays open; return its stream and its header."""
    stream = node.cluster.SaveSnapshot(pb.SaveSnapshotRequest())
    return stream, (await stream.read()).header


def frozen(node):
    """Return the names of the frozen states in the directory of a node."""
    return list((node.server.config.data_dir / "state" / "outgoing").iterdir())


async def test_a_transfer_continues_at_any_offset(node):
    await create(node)
    await put(node, *[b"x" * 50_000] * 20)
    header, content = await read(node)
    assert len(content) == header.content_bytes > 0
    await put(node, b"later")
    for offset in (0, 1, len(content) // 2, len(content)):
        again, rest = await read(node, snapshot_id=header.snapshot_id, offset=offset)
        assert (again, rest) == (header, content[offset:])


async def test_the_header_describes_the_node_and_the_state(node):
    await create(node)
    await put(node, b"x")
    applied = node.queue.applied_index
    header, _ = await read(node)
    assert header.index == applied
    assert header.term == node.server.node.status().term
    assert (header.cluster_id, header.node) == (node.server.config.cluster_id, "n0")
    assert header.taken_at_ms > 1_700_000_000_000
    local, _ = await read(node, consistency={"level": task_pb2.Consistency.LOCAL})
    assert local.index >= header.index


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"offset": 1}, "INVALID_FIELD"),
        ({"offset": -1}, "INVALID_FIELD"),
        ({"snapshot_id": "unknown"}, "SNAPSHOT_NOT_FOUND"),
        ({"consistency": {"level": 77}}, "INVALID_FIELD"),
    ],
)
async def test_an_invalid_request_is_refused(node, fields, reason):
    assert await refused(node, **fields) == reason


async def test_an_offset_after_the_end_is_refused(node):
    header, content = await read(node)
    offset = len(content) + 1
    assert await refused(node, snapshot_id=header.snapshot_id, offset=offset) == "INVALID_FIELD"


async def test_a_snapshot_is_forgotten_some_time_after_its_last_transfer(node, monkeypatch):
    monkeypatch.setattr(snapshots, "KEEP_SECONDS", 0.0)
    header, _ = await read(node)
    await turns_until(lambda: not frozen(node))
    assert await refused(node, snapshot_id=header.snapshot_id) == "SNAPSHOT_NOT_FOUND"


async def test_a_new_snapshot_replaces_the_one_that_is_idle_longest(node):
    headers = [(await read(node))[0] for _ in range(SNAPSHOTS_MAX)]
    await read(node, snapshot_id=headers[0].snapshot_id)
    await read(node)
    assert await refused(node, snapshot_id=headers[1].snapshot_id) == "SNAPSHOT_NOT_FOUND"
    await read(node, snapshot_id=headers[0].snapshot_id)


async def test_only_some_snapshots_are_transferred_at_once(node, monkeypatch):
    monkeypatch.setattr(snapshots, "RATE_BYTES_PER_SECOND", 1)
    opened = [await begun(node) for _ in range(SNAPSHOTS_MAX)]
    assert await refused(node) == "LIMIT_REACHED"
    for stream, _ in opened:
        stream.cancel()
    monkeypatch.setattr(snapshots, "RATE_BYTES_PER_SECOND", 1 << 30)
    await turns_until(lambda: not node.server.components.load.streams)
    await read(node)


async def drained(stream):
    """Read a stream to its end."""
    while await stream.read():
        pass


async def test_a_stopping_node_ends_a_transfer(node, monkeypatch):
    monkeypatch.setattr(snapshots, "PIECE_BYTES", 1)
    stream, _ = await begun(node)
    node.server.components.apply_notifier.end()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drained(stream)
    assert reason_of(caught.value) == "DRAINING"
