"""A node keeps events for an export that is away, up to a maximum time and a maximum size.

Beyond each maximum, retention removes events, and a metric of the node shows the loss.
"""

import asyncio

import pytest

from taskraft.v1 import feed_service_pb2 as pb
from taskraft_pipeline.errors import CursorTrimmed
from taskraft_pipeline.journal import export
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.journal.retention_hold import RetentionHold
from taskraft_pipeline.offsets import Offset
from taskraft_pipeline.options import parse
from taskraft_service.process.metrics.node import consumer_metrics
from tests.service.conftest import config_in, create, put, put_many, running

pytestmark = pytest.mark.real_time

CONSUMER = "journal-1"
EXPORTED = 4_000
RETENTION_MS = 1_000
HOLD_MS = 60_000


class Export:
    """An export without Spark: a journal, and the position that the export reports to a node."""

    def __init__(self, node, folder):
        target = f"127.0.0.1:{node.server.client_port}"
        self.node = node
        self.journal = Journal.at(folder / "journal")
        self.given = {"endpoints": target, "consumerTtl": f"{HOLD_MS}ms"}

    async def publish(self, next_seq):
        """Report that the journal has all events before a sequence number."""
        feed = await self.node.feed.DescribeFeed(pb.DescribeFeedRequest())
        position = Offset(feed.feed_id, {0: next_seq})
        if not self.journal.exists():
            self.journal.create(position)
        await asyncio.to_thread(RetentionHold(parse(self.given), CONSUMER).commit, position)

    async def events_lost(self):
        """Return the number of events that an export would find removed at its start."""
        tolerant = parse({**self.given, "failOnDataLoss": "false"})
        unread = await asyncio.to_thread(export.prepare, self.journal, tolerant)
        (part,) = (await self.node.feed.DescribeFeed(pb.DescribeFeedRequest())).partitions
        return part.high_seq - self.journal.start().next_seq[0] - unread


async def let_retention_run(node, passed_ms):
    """Let time pass on the clock of the cluster, and remove events beyond the feed's limits."""
    node.server.machine.collect()
    clock = node.server.components.clock.cluster
    clock.lead(clock.term, node.queue.now_ms + passed_ms)
    await put(node, b"")
    await node.server.components.housekeeping.trim_feed()
    (part,) = (await node.feed.DescribeFeed(pb.DescribeFeedRequest())).partitions
    return part


def told(node):
    """Return the metrics of the consumer: how far it is behind, and what it has lost."""
    return {
        metric.name.removeprefix("taskraft_feed_consumer_"): sample.value
        for metric in consumer_metrics(node.queue.feed.views(), node.queue.consumers())
        for sample in metric.samples
        if sample.labels["consumer"] == CONSUMER
    }


async def test_retention_by_age_waits_for_an_export_until_its_time_is_over(tmp_path):
    config = config_in(tmp_path, feed_retention_ms=RETENTION_MS, feed_partitions=1)
    async with running(config) as node:
        away = Export(node, tmp_path)
        await create(node)
        await put_many(node, 5_000)
        await away.publish(EXPORTED)
        part = await let_retention_run(node, 5 * RETENTION_MS)
        assert 2_000 < part.low_seq <= EXPORTED
        assert told(node) == {"lag_events": part.high_seq - EXPORTED, "lost_events": 0}
        assert await away.events_lost() == 0

        part = await let_retention_run(node, HOLD_MS)
        lost = part.low_seq - EXPORTED
        assert lost > 0
        assert told(node) == {"lag_events": part.high_seq - EXPORTED, "lost_events": lost}
        with pytest.raises(CursorTrimmed):
            await asyncio.to_thread(export.prepare, away.journal, parse(away.given))
        assert await away.events_lost() == lost

        await away.publish(part.high_seq)
        assert told(node) == {"lag_events": 0, "lost_events": 0}


async def test_retention_by_size_does_not_wait_for_an_export(tmp_path):
    config = config_in(tmp_path, feed_bytes_max=2**20, feed_partitions=1)
    async with running(config) as node:
        away = Export(node, tmp_path)
        await create(node)
        await put_many(node, 10_000)
        await away.publish(EXPORTED)
        part = await let_retention_run(node, 5 * RETENTION_MS)
        assert part.low_seq <= EXPORTED
        assert told(node)["lost_events"] == 0

        await put_many(node, 20_000)
        part = await let_retention_run(node, 5 * RETENTION_MS)
        lost = part.low_seq - EXPORTED
        assert lost > 0
        assert told(node) == {"lag_events": part.high_seq - EXPORTED, "lost_events": lost}
        assert await away.events_lost() == lost
