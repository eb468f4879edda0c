"""What callers with rights for some tubes see of the change feed, which all tubes share."""

import grpc
import pytest

from taskraft.v1 import feed_service_pb2
from tests.service.access.secured import MAIL, ended
from tests.service.conftest import put

pytestmark = pytest.mark.real_time


async def test_reading_the_feed_needs_permission_for_its_tubes(node):
    auditor, root = await node.known("auditor"), await node.known("root")

    async def read(caller, *tubes):
        request = feed_service_pb2.ReadChangesRequest(
            tubes=tubes, partition=0, to_seq=1, from_seq=1
        )
        stream = caller.feed.ReadChanges(request, timeout=10)
        return await ended(stream)

    assert await read(auditor, MAIL) is grpc.StatusCode.OK
    assert await read(auditor, MAIL, "secret") is grpc.StatusCode.PERMISSION_DENIED
    assert await read(auditor) is grpc.StatusCode.PERMISSION_DENIED
    assert await read(root) is grpc.StatusCode.OK


async def test_consumers_of_the_feed_are_listed_only_with_permission(node):
    async def commit(caller, consumer):
        request = feed_service_pb2.CommitCursorRequest(
            consumer=consumer, cursor=feed_service_pb2.FeedCursor(next_seq={0: 0})
        )
        await caller.feed.CommitCursor(request)

    async def consumers(caller):
        shown = await caller.feed.DescribeFeed(feed_service_pb2.DescribeFeedRequest())
        return [one.name for one in shown.consumers]

    auditor, root = await node.known("auditor"), await node.known("root")
    await commit(auditor, "billing.lake")
    await commit(root, "everything")
    assert await consumers(auditor) == ["billing.lake"]
    assert await consumers(root) == ["billing.lake", "everything"]


async def test_only_readers_of_all_tubes_see_the_sizes_of_the_feed(node):
    auditor, root = await node.known("auditor"), await node.known("root")
    await put(root, b"hidden", tube="secret")
    node.server.machine.write_applied()  # a partition's size counts what is written

    async def partitions(caller):
        shown = await caller.feed.DescribeFeed(feed_service_pb2.DescribeFeedRequest())
        watched = await caller.feed.WatchFeed(feed_service_pb2.WatchFeedRequest())
        assert list(watched.partitions) == list(shown.partitions)
        return shown.partitions

    of_root, of_auditor = await partitions(root), await partitions(auditor)
    assert sum(one.bytes for one in of_root) > 0
    assert sum(one.bytes for one in of_auditor) == 0
    # Positions are a clock of the whole cluster (decision 20).
    assert [one.high_seq for one in of_auditor] == [one.high_seq for one in of_root]
