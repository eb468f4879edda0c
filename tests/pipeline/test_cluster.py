"""Read the feed of three real nodes, before and after the leader is killed."""

from collections import Counter

import grpc
import pytest

from taskraft import Client
from taskraft.v1 import feed_service_pb2 as pb
from taskraft.v1 import feed_service_pb2_grpc
from taskraft_pipeline.journal import export
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.journal.loading import load
from taskraft_pipeline.journal.verify import verify
from taskraft_pipeline.options import parse
from taskraft_pipeline.report.make import report_from_feed
from tests.pipeline.history import KINDS_OF_COLUMNS, TEXTS, Event
from tests.pipeline.rows import expected_rows, found_rows
from tools.local_cluster import LocalCluster

# This test kills an exporter and a leader at once. Other tests kill each of them alone.
pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.nightly]

FIELDS = (*KINDS_OF_COLUMNS, *TEXTS, "seq", "tube")
TASKS = 200


def work(client, tube, number):
    """Put tasks, and end some in each way; return the figures."""
    client.tube(tube).put_many([f"{number}-{place}" for place in range(TASKS)])
    tasks = []
    while len(tasks) < TASKS:
        tasks += client.tube(tube).take_many(50, wait="5s")
    for place, task in enumerate(tasks):
        if place % 20 == 0:
            task.bury(ValueError("no"))
        else:
            task.ack()
    given_up = Counter(buried=TASKS // 20, failures=TASKS // 20)
    acked = TASKS - TASKS // 20
    return given_up + Counter(put=TASKS, taken=TASKS, acknowledged=acked, ended=acked)


def events_of(address):
    """Return the events of a node, read as messages instead of columns."""
    found = []
    with grpc.insecure_channel(address) as channel:
        stub = feed_service_pb2_grpc.FeedServiceStub(channel)
        for part in stub.DescribeFeed(pb.DescribeFeedRequest()).partitions:
            if part.high_seq == 0:
                continue
            request = pb.ReadChangesRequest(
                partition=part.partition,
                to_seq=part.high_seq,
                encoding=pb.ReadChangesRequest.MESSAGES,
            )
            for chunk in stub.ReadChanges(request):
                for event in chunk.events:
                    values = {name: getattr(event, name) for name in FIELDS}
                    found.append(Event(partition=part.partition, **values))
    return found


def test_a_journal_of_a_real_cluster_is_whole_though_the_leader_is_killed(spark, tmp_path):
    cluster = LocalCluster(3, tmp_path / "nodes", {"TASKRAFT_AUTO_CREATE_TUBES": "true"})
    with cluster, Client(cluster.target) as client:
        journal = Journal.at(tmp_path / "journal")
        options = {"endpoints": cluster.target, "maxEventsPerTrigger": "500"}

        def run():
            export.prepare(journal, parse(options))
            export.start(spark, journal, options).awaitTermination()
            assert verify(journal, is_deep=True).problems == []

        done = work(client, "mail", 1)
        run()
        leader = cluster.wait_ready()
        leader.kill()
        done += work(client, "mail", 2)
        # The dead node is asked first.
        options["endpoints"] = ",".join(
            [leader.address, *(node.address for node in cluster.nodes if node is not leader)]
        )
        run()

        survivor = next(cluster.running())
        events = events_of(survivor.address)
        assert found_rows(load(spark, journal)) == expected_rows(events)
        report = report_from_feed(spark, options["endpoints"])
        assert report.total.counts == done
        assert (report.is_complete, report.events) == (True, len(events))
        (failure,) = report.failures
        assert (failure.kind, failure.reason, failure.count) == ("bury", "ValueError", 20)
