"""Read ranges, without Spark, from nodes that fail, lag or send invalid answers."""

from dataclasses import replace

import grpc
import pytest

from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft_pipeline.errors import (
    CursorTrimmed,
    FeedBroken,
    FeedMismatch,
    FeedRefused,
    FeedUnreachable,
)
from taskraft_pipeline.feed import FeedNodes, RangeReader, describe
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.offsets import Range
from taskraft_pipeline.options import Options, parse_endpoints
from tests.pipeline.feed_server import FeedServer, refuse
from tests.pipeline.history import history

PUT, TAKE = ChangeEvent.PUT, ChangeEvent.TAKE

pytestmark = pytest.mark.real_time

EVENTS = history(300, partitions=2)
WHOLE = Range(0, 100, 400)


@pytest.fixture
def cluster():
    with FeedServer(EVENTS, nodes=3, events_per_chunk=50) as server:
        yield server


@pytest.fixture
def open_nodes(cluster):
    """Return a function that opens a client of the cluster; time passes only in its pauses."""
    opened = []

    def make(**options):
        endpoints = parse_endpoints(cluster.endpoints)
        nodes = FeedClient(
            endpoints,
            Options(endpoints=endpoints, **options),
            pause=opened_pauses.append,
            clock=lambda: sum(opened_pauses),
        )
        opened.append(nodes)
        return nodes

    opened_pauses = []
    make.pauses = opened_pauses
    yield make
    for nodes in opened:
        nodes.close()


def covered(chunks):
    """Return the sequence numbers that chunks cover, in order of arrival."""
    return [seq for chunk in chunks for seq in range(chunk.from_seq, chunk.next_seq)]


def numbers(whole):
    return list(range(whole.from_seq, whole.to_seq))


def test_a_description_names_the_ends_of_the_partitions_and_the_nodes(cluster, open_nodes):
    cluster.feed.low[1] = 9
    feed = describe(open_nodes(), is_linearizable=True)
    assert feed.feed_id == "feed-1"
    assert feed.low == {0: 0, 1: 9}
    assert feed.high == cluster.feed.high
    leader, *followers = (node.address for node in cluster.nodes)
    nodes = feed.nodes(("h:1", leader))
    assert nodes.for_task(0) == ("h:1", *followers, leader)
    assert nodes.for_task(4) == (followers[0], followers[1], "h:1", leader)
    assert FeedNodes((leader,), leader).for_task(3) == (leader,)


def test_a_range_is_read_completely_in_chunks(cluster, open_nodes):
    chunks = list(RangeReader(open_nodes(), "feed-1").read(WHOLE))
    assert covered(chunks) == numbers(WHOLE)
    assert [chunk.rows for chunk in chunks] == [50] * 6


def test_a_read_continues_on_another_node_after_a_kill(cluster, open_nodes):
    cluster.nodes[0].dies_after = 2
    assert covered(RangeReader(open_nodes(), "feed-1").read(WHOLE)) == numbers(WHOLE)
    assert [request.from_seq for request in cluster.nodes[1].reads] == [200]


def test_a_read_continues_on_another_node_if_one_lags(cluster, open_nodes):
    cluster.nodes[0].applied = {0: 150, 1: 0}
    cluster.nodes[1].applied = {0: 150, 1: 0}
    assert covered(RangeReader(open_nodes(), "feed-1").read(WHOLE)) == numbers(WHOLE)
    assert cluster.nodes[2].reads


def test_pauses_double_per_round_until_the_outage_is_too_long(cluster, open_nodes):
    for node in cluster.nodes:
        node.applied = {0: 0, 1: 0}
    with pytest.raises(FeedUnreachable, match=r"for 11 s \(24 attempts\).*NODE_BEHIND"):
        list(RangeReader(open_nodes(outage_max_ms=8_000), "feed-1").read(WHOLE))
    assert open_nodes.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]


def test_without_patience_each_node_is_asked_once(cluster, open_nodes):
    for node in cluster.nodes:
        node.applied = {0: 0, 1: 0}
    with pytest.raises(FeedUnreachable, match=r"\(3 attempts\)"):
        list(RangeReader(open_nodes(outage_max_ms=0), "feed-1").read(WHOLE))


def test_a_read_waits_for_nodes_through_an_outage_of_minutes(cluster, open_nodes, caplog):
    for node in cluster.nodes:
        node.applied = {0: 150, 1: 0}

    def waited(seconds):
        open_nodes.pauses.append(seconds)
        if sum(open_nodes.pauses) > 300:
            for node in cluster.nodes:
                node.applied = None

    nodes = open_nodes(outage_max_ms=600_000)
    nodes._pause = waited
    assert covered(RangeReader(nodes, "feed-1").read(WHOLE)) == numbers(WHOLE)
    reports = [record.message for record in caplog.records]
    assert len(reports) > 10
    assert "waiting for the nodes, no answer for" in reports[0]


def test_progress_resets_the_time_without_an_answer(cluster, open_nodes):
    for node in cluster.nodes:
        node.dies_after = 1
    cluster.nodes[2].dies_after = None
    nodes = open_nodes(outage_max_ms=0)
    assert covered(RangeReader(nodes, "feed-1").read(WHOLE)) == numbers(WHOLE)
    assert [node.is_dead for node in cluster.nodes] == [True, True, False]


def test_a_node_that_omits_an_event_is_detected(cluster, open_nodes):
    cluster.nodes[0].drops_event = True
    with pytest.raises(FeedBroken, match="with 49 events"):
        list(RangeReader(open_nodes(), "feed-1").read(WHOLE))


def moved(chunk):
    chunk.from_seq += 50
    chunk.next_seq += 50


def overrun(chunk):
    chunk.next_seq = 401
    chunk.rows = 401 - chunk.from_seq


@pytest.mark.parametrize(
    "edit",
    [moved, overrun, lambda chunk: setattr(chunk, "partition", 1)],
    ids=["gap", "too much", "another partition"],
)
def test_a_node_that_sends_invalid_chunks_is_detected(cluster, open_nodes, edit):
    cluster.nodes[0].edit = edit
    with pytest.raises(FeedBroken, match="expected events from 100"):
        list(RangeReader(open_nodes(), "feed-1").read(WHOLE))


def test_a_node_that_ends_early_is_detected(cluster, open_nodes):
    cluster.nodes[0].ends_early = True
    with pytest.raises(FeedBroken, match="ended the range early, at 399"):
        list(RangeReader(open_nodes(), "feed-1").read(WHOLE))


def test_filtered_events_are_counted_by_what_the_chunks_cover(cluster, open_nodes):
    chunks = list(RangeReader(open_nodes(), "feed-1", tubes=("billing",)).read(WHOLE))
    wanted = [event for event in cluster.feed.partitions[0][100:400] if event.tube == "billing"]
    assert covered(chunks) == numbers(WHOLE)
    assert 0 < sum(chunk.rows for chunk in chunks) == len(wanted) < 300


def test_only_the_wanted_kinds_and_arrays_are_requested(cluster, open_nodes):
    reader = RangeReader(
        open_nodes(), "feed-1", kinds=("put", "take"), columns=("seq", "ts", "kind", "tube")
    )
    chunks = list(reader.read(WHOLE))
    wanted = [event for event in cluster.feed.partitions[0][100:400] if event.kind in {PUT, TAKE}]
    assert covered(chunks) == numbers(WHOLE)
    assert 0 < sum(chunk.rows for chunk in chunks) == len(wanted) < 300
    (request,) = cluster.nodes[0].reads
    assert request.kinds == [PUT, TAKE]
    assert request.columns == ["at_ms", "kind", "tube"]


def test_a_read_without_arrays_requests_the_numbers_of_events_only(cluster, open_nodes):
    list(RangeReader(open_nodes(), "feed-1", columns=("feed_partition", "seq")).read(WHOLE))
    assert cluster.nodes[0].reads[0].columns == ["seq"]


def test_another_feed_is_never_read(cluster, open_nodes):
    with pytest.raises(FeedMismatch, match="FEED_MISMATCH"):
        list(RangeReader(open_nodes(), "feed-0").read(WHOLE))
    feed = describe(open_nodes(), is_linearizable=False)
    with pytest.raises(FeedMismatch, match="feed-0"):
        feed.check("feed-0")


def test_trimmed_events_fail_the_read(cluster, open_nodes):
    cluster.feed.low[0] = 150
    with pytest.raises(
        CursorTrimmed, match=r"removed event 100 of partition 0, which now begins at 150"
    ):
        list(RangeReader(open_nodes(), "feed-1").read(WHOLE))


def test_trimmed_events_are_skipped_and_counted_if_loss_is_allowed(cluster, open_nodes):
    cluster.feed.low[0] = 150
    reader = RangeReader(open_nodes(), "feed-1", is_loss_failure=False)
    assert covered(reader.read(WHOLE)) == numbers(replace(WHOLE, from_seq=150))
    assert reader.events_lost == 50


def test_a_fully_trimmed_range_is_empty_if_loss_is_allowed(cluster, open_nodes):
    cluster.feed.low[0] = 450
    reader = RangeReader(open_nodes(), "feed-1", is_loss_failure=False)
    assert covered(reader.read(WHOLE)) == []
    assert reader.events_lost == 300


def test_a_final_error_is_not_retried(cluster, open_nodes, monkeypatch):
    def denied(request, context):
        refuse(context, grpc.StatusCode.PERMISSION_DENIED, "NOT_ALLOWED")

    monkeypatch.setattr(cluster.nodes[0], "_admit", denied)
    with pytest.raises(FeedRefused, match="NOT_ALLOWED"):
        list(RangeReader(open_nodes(), "feed-1").read(WHOLE))
    assert not cluster.nodes[1].reads
