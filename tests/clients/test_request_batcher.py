"""Concurrent calls are combined into messages."""

import asyncio
import time

import pytest

from taskraft import _request_batcher, errors
from taskraft._request_batcher import RequestBatcher
from tests.turns import turns_until


class Wire:
    """Records messages; each waits until it is released."""

    def __init__(self):
        self.messages = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error = None

    async def send(self, items, deadline):
        self.messages.append(list(items))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [item * 10 for item in items]


def later():
    return time.monotonic() + 5


async def test_concurrent_calls_leave_in_one_message():
    wire = Wire()
    batcher = RequestBatcher(wire.send)
    answers = await asyncio.gather(*(batcher.submit([n], 1, later()) for n in range(5)))
    assert answers == [[0], [10], [20], [30], [40]]
    assert wire.messages == [[0, 1, 2, 3, 4]]


async def with_a_message_on_its_way():
    """Return a blocked wire, its batcher, and the call whose message is in flight."""
    wire = Wire()
    wire.gate.clear()
    batcher = RequestBatcher(wire.send)
    call = asyncio.create_task(batcher.submit([1], 1, later()))
    await turns_until(lambda: wire.messages)
    return wire, batcher, call


async def test_calls_during_a_message_in_flight_form_the_next_message():
    wire, batcher, first = await with_a_message_on_its_way()
    others = [asyncio.create_task(batcher.submit([n, n], 1, later())) for n in (2, 3)]
    await asyncio.sleep(0)
    wire.gate.set()
    assert await first == [10]
    assert await asyncio.gather(*others) == [[20, 20], [30, 30]]
    assert wire.messages == [[1], [2, 2, 3, 3]]


async def test_a_message_is_limited_in_items_and_bytes(monkeypatch):
    monkeypatch.setattr(_request_batcher, "MESSAGE_ITEMS_MAX", 3)
    monkeypatch.setattr(_request_batcher, "MESSAGE_BYTES_MAX", 100)
    wire = Wire()
    batcher = RequestBatcher(wire.send)
    sizes = [1, 1, 1, 1, 90, 20, 500]
    await asyncio.gather(*(batcher.submit([n], size, later()) for n, size in enumerate(sizes)))
    assert wire.messages == [[0, 1, 2], [3, 4], [5], [6]]


async def test_a_caller_that_gave_up_before_its_message_left_is_not_sent():
    wire = Wire()
    wire.gate.clear()
    batcher = RequestBatcher(wire.send)
    first = asyncio.create_task(batcher.submit([1], 1, later()))
    second = asyncio.create_task(batcher.submit([2], 1, later()))
    third = asyncio.create_task(batcher.submit([3], 1, later()))
    await turns_until(lambda: wire.messages)
    fourth = asyncio.create_task(batcher.submit([4], 1, later()))
    await asyncio.sleep(0)
    fourth.cancel()
    await asyncio.sleep(0)
    wire.gate.set()
    assert await asyncio.gather(first, second, third) == [[10], [20], [30]]
    assert wire.messages == [[1, 2, 3]]


async def test_a_message_that_fails_as_a_whole_fails_every_caller():
    wire = Wire()
    wire.error = errors.TubeNotFound("no such tube")
    batcher = RequestBatcher(wire.send)
    answers = await asyncio.gather(
        *(batcher.submit([n], 1, later()) for n in range(3)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [errors.TubeNotFound] * 3
    assert batcher.is_idle


@pytest.mark.real_time
async def test_a_caller_gets_deadline_passed_at_its_deadline():
    wire = Wire()
    wire.gate.clear()
    batcher = RequestBatcher(wire.send)
    with pytest.raises(errors.DeadlinePassed, match="may still take effect"):
        await batcher.submit([1], 1, time.monotonic() + 0.01)
    wire.gate.set()
    assert await batcher.submit([2], 1, later()) == [20]


async def test_the_number_of_waiting_items_is_limited(monkeypatch):
    monkeypatch.setattr(_request_batcher, "WAITING_ITEMS_MAX", 2)
    wire = Wire()
    wire.gate.clear()
    batcher = RequestBatcher(wire.send)
    calls = [asyncio.create_task(batcher.submit([n], 1, later())) for n in range(6)]
    wire.gate.set()
    assert [answer for (answer,) in await asyncio.gather(*calls)] == [0, 10, 20, 30, 40, 50]
    assert [len(message) for message in wire.messages] == [2, 2, 2]


async def test_closing_sends_waiting_items_first():
    wire = Wire()
    batcher = RequestBatcher(wire.send)
    call = asyncio.create_task(batcher.submit([1], 1, later()))
    await asyncio.sleep(0)
    await batcher.close(5)
    assert await call == [10]


async def test_closing_cancels_waiting_callers():
    _, batcher, call = await with_a_message_on_its_way()
    await batcher.close()
    with pytest.raises(asyncio.CancelledError):
        await call
