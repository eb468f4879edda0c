"""The leases of a session are read and encoded in slices, and sent in bounded parts."""

import asyncio

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.streams import responses
from taskraft_service.api.streams.responses import encode_opened
from taskraft_service.api.tasks import answers
from taskraft_service.api.tasks.answers import LEASES_AT_ONCE
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from tests.service.counted_calls import runs_of
from tests.service.queue.memory_store import MemoryStore


def queue_with_leases(count, payload=b"x"):
    """Return a queue whose session ``anna`` holds tasks, and the lease tokens."""
    store = MemoryStore()
    queue = Queue(store, Limits())
    body = task_pb2.TaskSpec(payload=payload).SerializeToString()
    entries = [
        [
            Startup(1, 0, "feed", 1),
            CreateTube("mail", TubeKind.FIFOTTL, TubeOptions()),
            OpenSession("anna", "anna", 60_000),
            Put("mail", [NewTask(body, len(payload))] * count),
        ],
        [Take(["mail"], "anna", count, bytes_max=count * len(payload))],
    ]
    for index, commands in enumerate(entries, 1):
        results = queue.apply(index, 1_000, commands)
        store.write(queue.collect_writes())
    return queue, [task.token for task in results[0].tasks]


async def parts_of(queue, session="anna"):
    queues = QueueLocator(lambda: queue)
    return [part async for part in encode_opened(session, queues, 0)]


def read(part):
    return pb.SubscribeResponse.FromString(part).opened


def held(*parts):
    return [task.token for part in parts for task in read(part).held]


def test_many_leases_are_read_in_short_runs():
    queue, tokens = queue_with_leases(2_000)
    runs, parts = runs_of(parts_of(queue))
    assert held(*parts) == tokens
    assert max(runs) < sum(runs) / 3


def test_leases_with_large_payloads_are_read_in_short_runs():
    queue, tokens = queue_with_leases(32, b"x" * 600_000)
    runs, parts = runs_of(parts_of(queue))
    assert held(*parts) == tokens
    assert len(runs) > 32 / LEASES_AT_ONCE
    assert not any(task.spec.payload for task in read(parts[0]).held)


def test_the_parts_of_a_list_are_bounded_and_the_last_ends_it(monkeypatch):
    queue, tokens = queue_with_leases(20)
    (whole,) = runs_of(parts_of(queue))[1]
    monkeypatch.setattr(responses, "HELD_BYTES_MAX", len(whole) // 3)
    _, parts = runs_of(parts_of(queue))
    assert held(*parts) == tokens
    assert all(len(part) < len(whole) // 3 + 50 for part in parts)
    assert [read(part).held_continues for part in parts] == [True] * (len(parts) - 1) + [False]
    merged = b"".join(parts)
    assert (held(merged), read(merged).held_continues) == (tokens, False)


async def test_a_lease_that_ends_between_two_slices_is_left_out(monkeypatch):
    monkeypatch.setattr(answers, "CONTENT_SLICE_BYTES", 1)
    queue, tokens = queue_with_leases(20)
    reading = asyncio.ensure_future(parts_of(queue))
    await asyncio.sleep(0)
    queue.apply(3, 1_000, [Settle([Ack(tokens[-1:])])])
    assert held(*await reading) == tokens[:-1]


def test_a_session_without_leases_gets_one_response():
    queue, _ = queue_with_leases(1)
    queue.apply(3, 1_000, [OpenSession("other", "other", 60_000)])
    _, (part,) = runs_of(parts_of(queue, "other"))
    assert read(part) == pb.SubscribeResponse.Opened(session_id="other")
