"""Raft metrics carry the label of their group."""

from types import SimpleNamespace

from prometheus_client import CollectorRegistry, generate_latest

from taskraft_replication.core.types import MemberInfo
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.node.node import Node
from taskraft_replication.peers.transport import GrpcTransport
from taskraft_service.process.metrics.entries import EntryDistributions, EntryHistograms
from taskraft_service.process.metrics.node import consumer_metrics
from taskraft_service.process.metrics.raft import RaftCollector
from tests.replication.counting_machine import CountingMachine


async def test_metrics_of_two_groups_have_different_labels(tmp_path):
    registry = CollectorRegistry()
    histograms = EntryHistograms(registry)
    nodes = []
    for group_id in (0, 1):
        config = NodeConfig(
            "c", 1, tmp_path / str(group_id), {1: MemberInfo(1, "m1")}, group_id=group_id
        )
        nodes.append(await Node.open(config, CountingMachine(), GrpcTransport()))
        registry.register(RaftCollector(nodes[-1], lambda: False, lambda: 2))
        distributions = EntryDistributions(histograms, group_id)
        distributions.entry_applied(commands=1, entry_bytes=2, seconds=0.003)
        distributions.synced(4)
    text = generate_latest(registry).decode()
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    of_groups = [
        {line.partition("{")[0] for line in samples if f'group="{group_id}"' in line}
        for group_id in (0, 1)
    ]
    assert of_groups[0] == of_groups[1] == {line.partition("{")[0] for line in samples}
    assert {"taskraft_term", "taskraft_log_syncs_total", "taskraft_entry_bytes_sum"} <= of_groups[0]
    for node in nodes:
        node._directory.release()


def test_a_consumer_is_behind_by_events_and_has_lost_those_below_the_feed():
    views = [
        SimpleNamespace(partition=partition, low_seq=10, high_seq=100) for partition in range(3)
    ]
    consumers = [
        SimpleNamespace(name="journal", next_seq={0: 100, 1: 4, 2: 12}),
        SimpleNamespace(name="new", next_seq={}),
    ]
    found = {
        (metric.name.removeprefix("taskraft_feed_consumer_"), *sample.labels.values()): sample.value
        for metric in consumer_metrics(views, consumers)
        for sample in metric.samples
    }
    assert found == {
        ("lag_events", "journal"): 96 + 88,
        ("lag_events", "new"): 0,
        ("lost_events", "journal"): 6,
        ("lost_events", "new"): 0,
    }
