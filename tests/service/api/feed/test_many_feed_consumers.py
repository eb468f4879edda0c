"""DescribeFeed with as many consumers and positions as there can be answers in slices."""

from types import SimpleNamespace

from taskraft.v1 import feed_service_pb2 as pb
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.feed import service
from taskraft_service.api.feed.service import POSITION_BYTES, POSITIONS_PER_STEP, FeedService
from taskraft_service.api.rpc.answer_bytes import answer_of_call
from taskraft_service.api.rpc.list_maxima import PARTITIONS_MAX
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.rpc.request_steps import SLICE_STEPS
from taskraft_service.queue.feed.feed_consumers import FeedConsumer
from taskraft_service.queue.feed.feed_partition import PartitionView
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.memory import MemoryStore
from tests.service.api.rpc.call_loads import call_load
from tests.service.counted_calls import runs_of

CONSUMERS = Limits().consumers_max
EXPIRED, GONE = "reader 0001", "reader 0999"


class Reader:
    """A feed of many partitions with many consumers; one goes after the first turn."""

    def __init__(self, monkeypatch):
        self.applied = Queue(MemoryStore(), Limits())
        self.copied = 0
        consumers = self.applied._state.consumers
        for number in range(CONSUMERS):
            consumer = FeedConsumer(f"reader {number:04}")
            consumer.idle_ttl_ms = 60_000 if number != 1 else 0
            consumer.next_seq = dict.fromkeys(range(PARTITIONS_MAX), number)
            consumers.set(consumer)
        view = FeedConsumer.view

        def counted(consumer):
            consumers.remove(GONE)
            self.copied += len(consumer.next_seq)
            return view(consumer)

        monkeypatch.setattr(FeedConsumer, "view", counted)
        partition = SimpleNamespace(view=lambda: PartitionView(0, 0, 0, 0, 0, 0))
        monkeypatch.setattr(self.applied.feed, "partitions", [partition] * PARTITIONS_MAX)

    async def queue(self, _consistency):
        return self.applied

    def copied_in(self, run):
        before = self.copied
        run()
        return self.copied - before


def describing(reader, measured):
    api = FeedService(None, None, None, reader, None, list, None)
    request = pb.DescribeFeedRequest()
    call = UnaryCall(request, request.SerializeToString(), None, ANONYMOUS, 0.0)
    return runs_of(api.describe_feed(call), measured)


def test_the_positions_of_all_consumers_are_copied_in_slices(monkeypatch):
    reader = Reader(monkeypatch)
    runs, raw = describing(reader, reader.copied_in)
    answer = pb.DescribeFeedResponse.FromString(raw)
    names = [f"reader {number:04}" for number in range(CONSUMERS)]
    assert [one.name for one in answer.consumers] == [
        name for name in names if name not in (EXPIRED, GONE)
    ]
    assert len(answer.consumers[-1].cursor.next_seq) == PARTITIONS_MAX
    assert max(runs) <= SLICE_STEPS * POSITIONS_PER_STEP


def test_the_positions_of_all_consumers_are_encoded_in_slices(monkeypatch):
    reader, encoded = Reader(monkeypatch), []
    encode = service.encode_consumers

    def counted(queue, views):
        encoded.append(encode(queue, views))
        return encoded[-1]

    monkeypatch.setattr(service, "encode_consumers", counted)
    runs, answer = describing(reader, lambda run: bytes_encoded_in(run, encoded))
    assert answer[-len(encoded[-1]) :] == encoded[-1], "the answer is not encoded once more"
    assert sum(runs) > CONSUMERS * PARTITIONS_MAX
    assert max(runs) <= SLICE_STEPS * POSITIONS_PER_STEP * POSITION_BYTES


def bytes_encoded_in(run, encoded):
    before = len(encoded)
    run()
    return sum(map(len, encoded[before:]))


async def test_the_answer_has_room_before_it_is_encoded(monkeypatch):
    room = call_load().answers
    answer_of_call.set(room)
    api = FeedService(None, None, None, Reader(monkeypatch), None, list, None)
    answer = await api.describe_feed(UnaryCall(pb.DescribeFeedRequest(), b"", None, ANONYMOUS, 0.0))
    assert len(answer) <= len(room.held) == CONSUMERS * PARTITIONS_MAX * POSITION_BYTES
