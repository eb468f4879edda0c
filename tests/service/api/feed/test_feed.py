"""Reading the change feed of one node: available events, waits, and refusals."""

import asyncio

import pytest

from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import feed_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.feed import event_content
from taskraft_service.api.feed.answers import (
    COLUMNS_ROWS_MAX,
    MESSAGE_ROW_BYTES,
    MESSAGES_ROWS_MAX,
)
from taskraft_service.api.feed.read_pace import ReadPace
from taskraft_service.api.feed.service import FeedService
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.machine.feed_waits import FeedWaits
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.feed.chunk import ROW_BYTES
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.kick_bury_delete import Delete
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.tubes import CreateTube, DropTube
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.memory import MemoryStore
from tests.turns import turns_until

COLUMNS = pb.ReadChangesRequest.COLUMNS


class Reading:
    def __init__(self, queue):
        self.applied = queue


class Context:
    def __init__(self):
        self.answers = []

    async def write(self, raw):
        self.answers.append(pb.ReadChangesResponse.FromString(raw))


class PacedTime:
    """Virtual time in which each reading of the CPU clock shows two more milliseconds of work."""

    def __init__(self):
        self.now, self.cpu, self.rests = 0.0, 0.0, []

    def seconds(self):
        return self.now

    def cpu_seconds(self):
        self.cpu += 0.002
        self.now += 0.002
        return self.cpu

    async def rest(self, seconds):
        self.rests.append(seconds)
        self.now += seconds


class Bench:
    def __init__(self):
        self.queue = Queue(MemoryStore(), Limits())
        self.waits = FeedWaits(lambda: self.queue.feed)
        self.time = PacedTime()
        pace = ReadPace(self.time.cpu_seconds, self.time.seconds, self.time.rest)
        reading = Reading(self.queue)
        self.api = FeedService(None, None, None, reading, self.waits, list, pace)
        self.context = Context()
        self.apply(Startup(1, 0, "feed", 1))
        self.apply(CreateTube("t", TubeKind.FIFOTTL, TubeOptions()))

    def apply(self, *commands):
        index = self.queue.applied_index + 1
        self.queue.apply(index, index * 10, commands)
        self.waits.applied(0)

    def put(self, count):
        """Put tasks; each put is one event."""
        self.apply(Put("t", [NewTask(b"x", 1)] * count))

    def read(self, **fields):
        request = pb.ReadChangesRequest(**fields)
        return self.api.read_changes(request.SerializeToString(), self.context, ANONYMOUS)

    def begin(self, **fields):
        return asyncio.ensure_future(self.read(**fields))

    @property
    def seqs(self):
        return [event.seq for answer in self.context.answers for event in answer.events]

    async def refusal(self, **fields):
        with pytest.raises(CallRefused) as caught:
            await self.read(**fields)
        return caught.value


async def turn():
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def bench():
    one = Bench()
    one.put(5)
    return one


async def test_a_range_is_read_and_nothing_beyond_it(bench):
    await bench.read(from_seq=1, to_seq=4)
    assert bench.seqs == [1, 2, 3]


async def test_all_reads_together_leave_half_of_the_time_to_other_work(bench):
    bench.put(400)
    read = {"from_seq": 1, "to_seq": 400, "chunk_bytes_max": limits.CHUNK_BYTES_MIN}
    await asyncio.gather(bench.read(**read), bench.read(**read))
    works = len(bench.context.answers)
    assert works > 10
    assert bench.time.rests == pytest.approx([0.002] * (works - 1))


async def test_an_empty_range_at_the_end_is_read_at_once(bench):
    await bench.read(from_seq=5, to_seq=5)
    assert bench.seqs == []


async def test_a_read_waits_for_a_range_that_this_node_has_not_applied(bench):
    reading = bench.begin(from_seq=3, to_seq=7, wait_ms=60_000)
    await turns_until(lambda: bench.seqs == [3, 4])
    bench.apply()
    await turn()
    bench.put(1)
    await turns_until(lambda: bench.seqs == [3, 4, 5])
    assert not reading.done()
    bench.put(5)
    await reading
    assert bench.seqs == [3, 4, 5, 6]


@pytest.mark.parametrize(("first", "to"), [(5, 6), (6, 7), (9, 0), (3, 6)])
async def test_a_wait_for_a_range_times_out_with_the_position_of_the_node(bench, first, to):
    refused = await bench.refusal(from_seq=first, to_seq=to)
    assert refused.reason == error_pb2.Error.NODE_BEHIND
    assert refused.metadata == {"partition": "0", "high": "5"}


async def test_a_read_without_an_end_follows_the_feed(bench):
    reading = bench.begin(from_seq=5)
    await turn()
    assert not reading.done()
    bench.put(2)
    await turns_until(lambda: bench.seqs == [5, 6])
    bench.waits.end()
    with pytest.raises(CallRefused) as caught:
        await reading
    assert caught.value.reason == error_pb2.Error.DRAINING


@pytest.mark.parametrize(
    ("encoding", "row_bytes"),
    [(pb.ReadChangesRequest.MESSAGES, MESSAGE_ROW_BYTES), (COLUMNS, ROW_BYTES)],
)
async def test_chunks_are_filled_up_to_their_limit(bench, encoding, row_bytes):
    bench.put(95)
    await bench.read(to_seq=100, chunk_bytes_max=limits.CHUNK_BYTES_MIN, encoding=encoding)
    rows = [answer.rows for answer in bench.context.answers]
    assert sum(rows) == 100
    # The message itself uses the space of one row.
    assert max(rows) in (
        limits.CHUNK_BYTES_MIN // row_bytes - 1,
        limits.CHUNK_BYTES_MIN // row_bytes,
    )


@pytest.mark.parametrize("encoding", [pb.ReadChangesRequest.MESSAGES, COLUMNS])
async def test_a_chunk_with_long_texts_still_has_the_requested_size(bench, encoding):
    bench.apply(
        Put("t", [NewTask(b"x", 1, type=f"{number:0128}") for number in range(95)]),
        Put("t", [NewTask(b"x", 1, type="x" * limits.CHUNK_BYTES_MIN)]),
    )
    await bench.read(to_seq=101, chunk_bytes_max=limits.CHUNK_BYTES_MIN, encoding=encoding)
    answers = bench.context.answers
    assert [answer.from_seq for answer in answers[1:]] == [one.next_seq for one in answers[:-1]]
    assert sum(answer.rows for answer in answers) == 101
    too_large = [one.rows for one in answers if one.ByteSize() > limits.CHUNK_BYTES_MIN]
    assert too_large == [1], "an event that alone exceeds the size has a chunk of its own"


def watch(bench, known, *, deadline=None, **fields):
    request = pb.WatchFeedRequest(cursor=pb.FeedCursor(next_seq={0: known}), **fields)
    call = UnaryCall(request, b"", deadline, ANONYMOUS, 0.0)
    return asyncio.ensure_future(bench.api.watch_feed(call))


async def test_a_watch_ends_when_there_are_new_events(bench):
    watching = watch(bench, 5, wait_ms=limits.WAIT_MAX_MS)
    await turn()
    assert not watching.done()
    bench.put(1)
    assert [view.high_seq for view in (await watching).partitions] == [6]
    assert [view.high_seq for view in (await watch(bench, 5)).partitions] == [6]


@pytest.mark.real_time
async def test_a_watch_ends_shortly_before_its_deadline(bench):
    now = asyncio.get_running_loop().time()
    deadline = now + limits.DEADLINE_MARGIN_MS / 1000 + 0.01
    answer = await watch(bench, 5, wait_ms=limits.WAIT_MAX_MS, deadline=deadline)
    assert [view.high_seq for view in answer.partitions] == [5]
    watching = watch(bench, 5, wait_ms=1, deadline=now + 3_600)
    assert [view.high_seq for view in (await watching).partitions] == [5]


async def test_a_wait_is_limited_to_the_maximum(bench, monkeypatch):
    waits = []

    async def wait(_partition, _positions, seconds):
        waits.append(seconds)
        return False

    monkeypatch.setattr(bench.waits, "_wait", wait)
    longest = 2**63 - 1
    await watch(bench, 5, wait_ms=longest)
    refused = await bench.refusal(from_seq=5, to_seq=6, wait_ms=longest)
    assert refused.reason == error_pb2.Error.NODE_BEHIND
    assert waits == [limits.WAIT_MAX_MS / 1000] * 2


async def test_columns_contain_the_same_events_as_messages(bench):
    await bench.read(to_seq=5)
    await bench.read(to_seq=5, encoding=COLUMNS)
    messages, columns = bench.context.answers
    assert not columns.events
    assert (columns.from_seq, columns.next_seq, columns.rows) == (0, 5, 5)
    assert len(columns.columns.seq) in {0, 5 * 8}
    assert [event.payload_bytes for event in messages.events] == [1] * 5


@pytest.mark.parametrize(
    ("encoding", "rows_max"),
    [(pb.ReadChangesRequest.MESSAGES, MESSAGES_ROWS_MAX), (COLUMNS, COLUMNS_ROWS_MAX)],
)
async def test_the_largest_chunk_has_a_bounded_number_of_events(bench, encoding, rows_max):
    bench.put(rows_max)
    await bench.read(to_seq=rows_max + 1, encoding=encoding, chunk_bytes_max=limits.CHUNK_BYTES_MAX)
    assert bench.context.answers[0].rows == rows_max
    assert sum(answer.rows for answer in bench.context.answers) == rows_max + 1


@pytest.mark.parametrize(
    ("wanted", "arrays"),
    [
        (["seq"], set()),
        (["kind", "task_id"], {"kind", "task_id"}),
        (["tube"], {"tube", "tubes"}),
        (["reason"], {"reason", "texts"}),
    ],
)
async def test_only_the_wanted_arrays_are_sent(bench, wanted, arrays):
    await bench.read(to_seq=5, encoding=COLUMNS)
    await bench.read(to_seq=5, encoding=COLUMNS, columns=wanted)
    whole, part = (answer.columns for answer in bench.context.answers)
    assert {field.name for field, _ in part.ListFields()} == arrays
    assert all(getattr(part, name) == getattr(whole, name) for name in arrays)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"partition": 1}, "partition"),
        ({"from_seq": 3, "to_seq": 2}, "to_seq"),
        ({"chunk_bytes_max": limits.CHUNK_BYTES_MIN - 1}, "chunk_bytes_max"),
        ({"chunk_bytes_max": limits.CHUNK_BYTES_MAX + 1}, "chunk_bytes_max"),
        ({"wait_ms": -1}, "wait_ms"),
        ({"tubes": ["t"] * (limits.NAMES_MAX + 1)}, "tubes"),
        ({"kinds": [0]}, "kinds[0]"),
        ({"columns": ["kind"]}, "encoding"),
        ({"columns": ["kind", "tubes"], "encoding": COLUMNS}, "columns[1]"),
        ({"columns": ["kind"] * (limits.NAMES_MAX + 1), "encoding": COLUMNS}, "columns"),
    ],
)
async def test_a_value_beyond_a_limit_is_named(bench, fields, wrong):
    refused = await bench.refusal(**fields)
    assert [field for field, _ in refused.violations] == [wrong]


@pytest.mark.parametrize(
    ("fields", "seqs"),
    [
        ({"from_seq": 2, "to_seq": 2}, []),
        ({"to_seq": 1, "chunk_bytes_max": limits.CHUNK_BYTES_MAX}, [0]),
        ({"to_seq": 1, "wait_ms": limits.WAIT_MAX_MS}, [0]),
        ({"to_seq": 1, "tubes": ["t"] * limits.NAMES_MAX}, [0]),
    ],
)
async def test_a_value_at_a_limit_is_accepted(bench, fields, seqs):
    await bench.read(**fields)
    assert bench.seqs == seqs


async def test_a_position_of_another_feed_is_refused(bench):
    refused = await bench.refusal(feed_id="other")
    assert refused.reason == error_pb2.Error.FEED_MISMATCH
    assert refused.metadata == {"feed_id": "feed"}


CONTENT = pb.ReadChangesRequest


def content(bench, payload, key="", header=b""):
    headers = {"trace": header} if header else {}
    spec = task_pb2.TaskSpec(payload=payload, unique_key=[key] if key else [], headers=headers)
    unique_key = (key,) if key else ()
    task = NewTask(spec.SerializeToString(), len(payload), unique_key=unique_key)
    bench.apply(Put("t", [task]))


async def test_events_carry_the_requested_parts_of_tasks_that_exist():
    bench = Bench()
    content(bench, b"one", key="order-1", header=b"abc")
    content(bench, b"two")
    bench.apply(Delete("t", ByIds((2,))))
    await bench.read(to_seq=3, contents=[CONTENT.KEY, CONTENT.HEADERS, CONTENT.PAYLOAD])
    first, *others = [event for answer in bench.context.answers for event in answer.events]
    assert list(first.content.unique_key) == ["order-1"]
    assert (first.content.payload, first.content.headers["trace"]) == (b"one", b"abc")
    assert [event.HasField("content") for event in others] == [False, False]
    bench.context.answers.clear()
    await bench.read(to_seq=1, contents=[CONTENT.KEY])
    assert bench.context.answers[0].events[0].content == task_pb2.TaskSpec(unique_key=["order-1"])


async def test_a_chunk_with_content_ends_at_the_requested_size():
    bench = Bench()
    for _ in range(3):
        content(bench, bytes(3_000))
    await bench.read(to_seq=3, contents=[CONTENT.PAYLOAD], chunk_bytes_max=4_096)
    ranges = [(one.from_seq, one.next_seq, one.rows) for one in bench.context.answers]
    assert ranges == [(0, 1, 1), (1, 2, 1), (2, 3, 1)]


async def test_a_chunk_with_content_ends_when_the_node_has_read_much(monkeypatch):
    """Only the keys are asked for, but the node reads the payloads too."""
    monkeypatch.setattr(event_content, "READ_BYTES_MAX", 2_500)
    bench = Bench()
    for key in ("a", "b", "c"):
        content(bench, bytes(1_000), key=key)
    await bench.read(to_seq=3, contents=[CONTENT.KEY])
    assert [one.rows for one in bench.context.answers] == [2, 1]


async def test_an_event_of_a_dropped_tube_carries_no_task_of_its_successor():
    bench = Bench()
    content(bench, b"old")
    bench.apply(DropTube("t"))
    bench.apply(CreateTube("t", TubeKind.FIFOTTL, TubeOptions()))
    content(bench, b"new")
    await bench.read(to_seq=bench.queue.feed.views()[0].high_seq, contents=[CONTENT.PAYLOAD])
    events = [event for answer in bench.context.answers for event in answer.events]
    assert [event.content.payload for event in events if event.kind == pb.ChangeEvent.PUT] == [
        b"",
        b"new",
    ]


async def test_content_is_refused_with_columns():
    bench = Bench()
    with pytest.raises(CallRefused) as refused:
        await bench.read(contents=[CONTENT.KEY, 9], encoding=COLUMNS)
    assert "contents[1]" in refused.value.message
    assert "not allowed with the encoding COLUMNS" in refused.value.message
