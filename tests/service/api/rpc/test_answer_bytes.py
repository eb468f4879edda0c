"""The bytes of answers have a maximum, from the read of the content until the client has them."""

import asyncio

import pytest

from taskraft_service.api.rpc import answer_bytes
from taskraft_service.api.rpc.answer_bytes import (
    COUNTED_ANSWER_BYTES,
    answer_of_call,
    begun_answer,
    reserve_answer,
)
from taskraft_service.api.rpc.delivery import AnswerUndo, delivering
from taskraft_service.api.rpc.grpc_calls import ClientGone
from taskraft_service.api.rpc.status import CallRefused
from tests.service.api.rpc.call_loads import call_load

KIB = 1024
MIB = 1024 * KIB
MOST = 16 * MIB
SHARE = 12 * MIB


@pytest.fixture
def load():
    return call_load(bytes_max=4 * MOST)


async def begun(load, size, principal=""):
    """Start a task that holds an answer until its event is set."""
    done = asyncio.Event()

    async def serve():
        answer_of_call.set(load.answers)
        answer = begun_answer()
        answer.principal = principal
        try:
            await reserve_answer(size)
            await done.wait()
        finally:
            answer.set(0)

    task = asyncio.create_task(serve())
    for _ in range(3):
        await asyncio.sleep(0)
    return task, done


async def test_an_answer_waits_until_another_one_is_sent(load):
    first, sent = await begun(load, 10 * MIB)
    second, _ = await begun(load, 10 * MIB)
    assert (len(load.answers.held), load.held_bytes) == (10 * MIB, 10 * MIB)
    sent.set()
    await first
    assert len(load.answers.held) == 10 * MIB
    second.cancel()
    await asyncio.wait([second])
    assert (len(load.answers.held), load.held_bytes) == (0, 0)


async def test_one_answer_above_the_maximum_is_held_alone(load):
    large, sent = await begun(load, 2 * MOST)
    small, _ = await begun(load, MIB)
    assert len(load.answers.held) == 2 * MOST
    sent.set()
    await large
    assert len(load.answers.held) == MIB
    small.cancel()


async def test_a_principal_with_its_share_does_not_delay_others(load):
    held = [await begun(load, 6 * MIB, "greedy") for _ in range(3)]
    assert load.answers.held.count_with(0, "greedy")[1] == SHARE
    _, _ = await begun(load, 4 * MIB, "modest")
    assert len(load.answers.held) == MOST
    for task, _ in held:
        task.cancel()


async def test_the_principals_come_in_turns(load):
    first, sent = await begun(load, MOST, "a")
    order = []

    async def wait(principal):
        answer_of_call.set(load.answers)
        answer = begun_answer()
        answer.principal = principal
        await reserve_answer(9 * MIB)
        order.append(principal)
        answer.set(0)

    waiting = [asyncio.create_task(wait(principal)) for principal in ("b", "b", "c")]
    await asyncio.sleep(0)
    sent.set()
    await asyncio.gather(first, *waiting)
    assert order == ["b", "c", "b"]


async def test_a_cancelled_call_leaves_the_queue(load):
    first, sent = await begun(load, MOST)
    large, _ = await begun(load, 10 * MIB)
    small, _ = await begun(load, 2 * MIB)
    large.cancel()
    await asyncio.wait([large])
    sent.set()
    await first
    assert len(load.answers.held) == 2 * MIB
    small.cancel()


@pytest.mark.parametrize(
    ("principal", "limit"), [("", "answer_bytes_max"), ("own", "answer_bytes_share_max")]
)
async def test_a_call_without_room_is_refused(load, principal, limit, monkeypatch):
    monkeypatch.setattr(answer_bytes, "ROOM_WAIT_SECONDS", 0.0)
    held, sent = await begun(load, SHARE, principal)
    second, _ = await begun(load, 5 * MIB, principal)
    with pytest.raises(CallRefused) as caught:
        await second
    assert caught.value.metadata["limit"] == limit
    assert caught.value.metadata.get("principal", "") == principal
    sent.set()
    await held
    assert load.held_bytes == 0


# ------------------------------------------------------------------------------ sent answers


class Call:
    """A call whose client takes an answer when ``taken`` is set."""

    def __init__(self, error=None, hops="0"):
        self.taken = asyncio.Event()
        self.error = error
        self.initial = ()
        self.hops = hops

    def invocation_metadata(self):
        return (("x-taskraft-hops", self.hops),)

    def time_remaining(self):
        return None

    async def send_initial_metadata(self, metadata):
        self.initial = metadata

    async def write(self, _raw):
        await self.taken.wait()
        if self.error is not None:
            raise self.error


def serving(load, size, undo=None):
    async def handle(_raw, _context):
        return bytes(size)

    return delivering(handle, load.answers, undo)


async def test_a_large_answer_counts_until_the_transport_has_taken_it(load):
    call = Call()
    task = asyncio.create_task(serving(load, MIB)(b"", call))
    await asyncio.sleep(0)
    assert (load.held_bytes, len(load.answers.held)) == (MIB, MIB)
    call.taken.set()
    assert await task is None
    assert (load.held_bytes, len(load.answers.held)) == (0, 0)


async def test_a_small_answer_is_sent_with_the_status(load):
    call = Call()
    assert await serving(load, COUNTED_ANSWER_BYTES)(b"", call) == bytes(COUNTED_ANSWER_BYTES)
    assert load.held_bytes == 0


@pytest.mark.parametrize("undo", [None, AnswerUndo(lambda _raw: False, lambda *_undo: None)])
async def test_an_answer_to_a_client_that_has_gone_no_longer_counts(load, undo):
    call = Call(ClientGone("gone"))
    call.taken.set()
    with pytest.raises(asyncio.CancelledError):
        await serving(load, MIB, undo)(b"", call)
    assert load.held_bytes == 0


@pytest.mark.parametrize("hops", ["0", "1"])
async def test_only_a_node_is_told_the_size_of_an_answer(load, hops):
    call = Call(hops=hops)
    call.taken.set()
    await serving(load, MIB)(b"", call)
    assert call.initial == ((("x-taskraft-answer-bytes", str(MIB)),) if hops == "1" else ())
