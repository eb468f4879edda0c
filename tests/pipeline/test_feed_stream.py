"""Check the offsets of a streaming query with the calls that Spark makes, but without Spark."""

from dataclasses import replace

import pytest

from taskraft_pipeline.cli import FOLLOW_OUTAGE, ONE_RUN_OUTAGE
from taskraft_pipeline.errors import CursorTrimmed, FeedMismatch, FeedRefused, FeedUnreachable
from taskraft_pipeline.feed import RangeReader
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.feed_stream import FeedStream
from taskraft_pipeline.offsets import Offset, Range
from taskraft_pipeline.options import Bound, Options, parse, parse_endpoints
from tests.pipeline.feed_server import FeedServer
from tests.pipeline.history import history

pytestmark = pytest.mark.real_time

EVENTS = history(300, partitions=2)
HALF = [event for event in EVENTS if event.seq < 300]


@pytest.fixture
def cluster():
    with FeedServer(HALF) as server:
        yield server


@pytest.fixture
def clock():
    """Return a clock that the test sets: a list with one number of seconds."""
    return [100.0]


@pytest.fixture
def open_stream(cluster, clock):
    opened = []

    def make(**options):
        endpoints = parse_endpoints(cluster.endpoints)
        wanted = replace(Options(endpoints=endpoints), **options)
        nodes = FeedClient(endpoints, wanted)
        opened.append(nodes)
        return FeedStream(wanted, nodes, lambda: clock[0])

    yield make
    for nodes in opened:
        nodes.close()


def at(first, second, feed_id="feed-1"):
    return Offset(feed_id, {0: first, 1: second})


def append_the_rest(cluster):
    cluster.feed.append([event for event in EVENTS if event.seq >= 300])


def test_a_stream_begins_at_the_end_unless_told_otherwise(open_stream):
    assert open_stream().initial() == at(300, 300)
    assert open_stream(starting=Bound.EARLIEST).initial() == at(0, 0)
    assert open_stream(starting=Offset("feed-1", {1: 7})).initial() == at(0, 7)


def test_a_stream_does_not_start_in_another_feed_or_at_trimmed_events(cluster, open_stream):
    with pytest.raises(FeedMismatch):
        open_stream(starting=at(0, 0, "feed-0")).initial()
    cluster.feed.low[0] = 5
    with pytest.raises(CursorTrimmed):
        open_stream(starting=at(4, 0)).initial()


def test_a_batch_has_at_most_its_limit(open_stream):
    stream = open_stream()
    assert stream.latest(at(0, 0), 100) == at(50, 50)
    assert stream.latest(at(200, 0), 100) == at(225, 75)
    assert stream.latest(at(0, 0), None) == at(300, 300)


def test_without_new_events_the_position_stays_the_same(open_stream):
    assert open_stream().latest(at(300, 300), 100) == at(300, 300)


def test_a_lagging_node_does_not_move_the_stream_back(cluster, open_stream):
    cluster.nodes[0].applied = {0: 120, 1: 300}
    assert open_stream().latest(at(200, 299), 100) == at(200, 300)


def test_the_feed_is_asked_once_per_poll_interval(cluster, clock, open_stream):
    stream = open_stream()
    stream.latest(at(300, 300), 100)
    append_the_rest(cluster)
    clock[0] += 0.249
    assert stream.latest(at(300, 300), 100) == at(300, 300)
    stream.newest()
    assert cluster.nodes[0].describes == 1
    clock[0] += 0.002
    assert stream.latest(at(300, 300), 100) != at(300, 300)
    assert cluster.nodes[0].describes == 2


def test_a_target_is_reached_and_not_passed(cluster, clock, open_stream):
    stream = open_stream()
    stream.fix_target()
    append_the_rest(cluster)
    clock[0] += 10
    assert stream.latest(at(0, 0), None) == at(300, 300)
    assert stream.newest() == Offset("feed-1", cluster.feed.high)


def test_a_target_is_reached_although_another_node_lags(cluster, clock, open_stream):
    stream = open_stream()
    stream.fix_target()
    cluster.nodes[0].applied = {0: 0, 1: 0}
    clock[0] += 10
    assert stream.latest(at(0, 0), None) == at(300, 300)


def test_retention_is_noticed_before_a_range_is_logged(cluster, open_stream):
    cluster.feed.low[0] = 200
    with pytest.raises(CursorTrimmed, match="failOnDataLoss"):
        open_stream().latest(at(0, 0), 100)


def test_the_limit_applies_to_kept_events(cluster, open_stream):
    cluster.feed.low[0] = 200
    stream = open_stream(is_loss_failure=False)
    assert stream.latest(at(0, 0), 100) == at(225, 75)
    cluster.feed.low[0] = 300
    assert open_stream(is_loss_failure=False).latest(at(0, 300), 100) == at(300, 300)


def test_another_feed_always_stops_the_stream(cluster, open_stream):
    cluster.feed.feed_id = "feed-2"
    with pytest.raises(FeedMismatch):
        open_stream(is_loss_failure=False).latest(at(0, 0), 100)


def test_progress_is_reported_once_per_position_and_only_with_a_consumer(cluster, open_stream):
    open_stream().latest(at(10, 20), 100)
    assert cluster.feed.cursors == []
    stream = open_stream(consumer="journal")
    stream.latest(at(10, 20), 100)
    stream.latest(at(10, 20), 100)
    stream.latest(at(60, 70), 100)
    assert cluster.feed.cursors == [("journal", {0: 10, 1: 20}), ("journal", {0: 60, 1: 70})]


def test_a_consumer_is_refused_clearly_where_the_service_has_no_cursors(cluster, open_stream):
    cluster.nodes[0].has_cursors = False
    with pytest.raises(FeedRefused, match=r"consumer='journal' needs CommitCursor.*NOT_IMPL"):
        open_stream(consumer="journal").latest(at(0, 0), 100)


OUTAGE_SECONDS = 4_000


@pytest.fixture
def node_away(cluster, clock):
    """Return a pause of clients in which time passes; the node is away for more than an hour."""
    (node,) = cluster.nodes
    node.dies_after = 0
    back_at = clock[0] + OUTAGE_SECONDS

    def pause(seconds):
        clock[0] += seconds
        if clock[0] >= back_at and node.is_dead:
            node.dies_after = None
            append_the_rest(cluster)

    return pause


def test_a_followed_feed_goes_on_after_an_outage_of_more_than_an_hour(cluster, clock, node_away):
    options = parse({"endpoints": cluster.endpoints, "maxOutage": FOLLOW_OUTAGE})
    with FeedClient(options.endpoints, options, node_away, lambda: clock[0]) as nodes:
        end = FeedStream(options, nodes, lambda: clock[0]).latest(at(100, 100), None)
        assert clock[0] >= OUTAGE_SECONDS
        assert end == Offset("feed-1", cluster.feed.high) != at(300, 300)


def test_a_read_of_a_followed_feed_goes_on_after_an_outage_of_more_than_an_hour(
    cluster, clock, node_away
):
    options = parse({"endpoints": cluster.endpoints, "maxOutage": FOLLOW_OUTAGE})
    with FeedClient(options.endpoints, options, node_away, lambda: clock[0]) as nodes:
        chunks = RangeReader(nodes, "feed-1").read(Range(0, 100, 300))
        covered = [seq for chunk in chunks for seq in range(chunk.from_seq, chunk.next_seq)]
    assert clock[0] >= OUTAGE_SECONDS
    assert covered == list(range(100, 300))


def test_an_export_that_ends_gives_up_after_a_minute(cluster, clock, node_away):
    options = parse({"endpoints": cluster.endpoints, "maxOutage": ONE_RUN_OUTAGE})
    begun_at = clock[0]
    with (
        FeedClient(options.endpoints, options, node_away, lambda: clock[0]) as nodes,
        pytest.raises(FeedUnreachable, match=r"no node answered for 6\d s"),
    ):
        FeedStream(options, nodes, lambda: clock[0]).latest(at(100, 100), None)
    assert clock[0] - begun_at < 70
