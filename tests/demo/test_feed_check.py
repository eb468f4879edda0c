"""Check the histories of tasks from the change feed."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from demo.feed_check import FeedBroken, check_feed, read_feed
from taskraft.v1 import feed_service_pb2, task_pb2

Kind = feed_service_pb2.ChangeEvent.Kind
State = task_pb2.Task.State
GONE = State.STATE_UNSPECIFIED

PUT = (Kind.PUT, GONE, State.READY)
TAKE = (Kind.TAKE, State.READY, State.TAKEN)
ACK = (Kind.ACK, State.TAKEN, GONE)
SESSION_RELEASE = (Kind.SESSION_RELEASE, State.TAKEN, State.READY)


def life(task_id, *transitions, tube="files"):
    return [
        feed_service_pb2.ChangeEvent(
            tube=tube, task_id=task_id, kind=kind, from_state=before, to_state=after
        )
        for kind, before, after in transitions
    ]


def test_put_taken_acknowledged_is_clean():
    judged = check_feed("files", [*life(1, PUT, TAKE, ACK), *life(9, PUT, tube="other")])
    assert (judged.put, judged.processed, judged.events) == (1, 1, 3)
    assert judged.is_clean


def test_a_release_and_another_take_are_clean_and_counted():
    judged = check_feed("files", life(1, PUT, TAKE, SESSION_RELEASE, TAKE, ACK))
    assert judged.is_clean
    assert judged.released == 1


def test_a_task_that_is_never_acknowledged_is_lost():
    assert check_feed("files", life(1, PUT, TAKE)).lost == [1]


def test_a_take_of_a_taken_task_holds_it_twice():
    judged = check_feed("files", life(1, PUT, TAKE, TAKE, ACK))
    assert judged.held_twice == [1]
    assert judged.processed == 0


@pytest.mark.parametrize(
    "transitions", [(TAKE, ACK), (PUT, ACK), (PUT, TAKE, ACK, ACK), (PUT, PUT, TAKE, ACK)]
)
def test_a_history_with_a_missing_or_doubled_event_is_inconsistent(transitions):
    assert check_feed("files", life(1, *transitions)).inconsistent == [1]


class FeedOfTwo:
    """A feed of one partition with two events, with given sequence numbers."""

    def __init__(self, *sequence):
        self.sequence = sequence

    def describe(self, request, context):
        partition = feed_service_pb2.FeedPartition(partition=0, high_seq=2)
        return feed_service_pb2.DescribeFeedResponse(feed_id="f", partitions=[partition])

    def read(self, request, context):
        assert (request.feed_id, request.to_seq) == ("f", 2)
        events = [feed_service_pb2.ChangeEvent(seq=seq) for seq in self.sequence]
        yield feed_service_pb2.ReadChangesResponse(events=events)


@contextmanager
def serving(feed):
    methods = {
        "DescribeFeed": grpc.unary_unary_rpc_method_handler(
            feed.describe,
            request_deserializer=feed_service_pb2.DescribeFeedRequest.FromString,
            response_serializer=feed_service_pb2.DescribeFeedResponse.SerializeToString,
        ),
        "ReadChanges": grpc.unary_stream_rpc_method_handler(
            feed.read,
            request_deserializer=feed_service_pb2.ReadChangesRequest.FromString,
            response_serializer=feed_service_pb2.ReadChangesResponse.SerializeToString,
        ),
    }
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("taskraft.v1.FeedService", methods)]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(grace=None).wait()


@pytest.mark.real_time
def test_a_dense_feed_is_read_to_its_end():
    with serving(FeedOfTwo(0, 1)) as address:
        assert [event.seq for event in read_feed(address)] == [0, 1]


@pytest.mark.real_time
@pytest.mark.parametrize("sequence", [(0, 2), (0,), (1, 2), (0, 0, 1)])
def test_a_feed_with_a_hole_or_an_early_end_is_broken(sequence):
    with serving(FeedOfTwo(*sequence)) as address, pytest.raises(FeedBroken):
        list(read_feed(address))
