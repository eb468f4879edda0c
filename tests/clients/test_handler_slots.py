"""Handlers that wait for other tasks release their slots and take them again in FIFO order."""

import asyncio

import pytest

from taskraft._handler_slots import HandlerSlots, wait_hook_set, waiting_for_tasks


async def turns():
    """Let all runnable coroutines proceed."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_number_of_slots_is_limited():
    slots = HandlerSlots(2)
    first, _ = await slots.take(), await slots.take()
    third = asyncio.create_task(slots.take())
    await turns()
    assert not third.done()
    first.close()
    await third


async def test_a_waiting_handler_releases_its_slot_and_takes_it_again():
    slots = HandlerSlots(1)
    answered = asyncio.Event()

    async def parent():
        with wait_hook_set(await slots.take()):
            async with waiting_for_tasks():
                await answered.wait()
            return "went on"

    waiting = asyncio.create_task(parent())
    await turns()
    child = await slots.take()
    answered.set()
    await turns()
    assert not waiting.done(), "the child still has the slot"
    child.close()
    assert await waiting == "went on"


async def test_returning_handlers_get_slots_before_new_handlers():
    slots = HandlerSlots(1)
    order = []

    async def want(name):
        await slots.take()
        order.append(name)

    slot = await slots.take()
    slot.wait_started()
    other = await slots.take()
    back = asyncio.create_task(slot.wait_ended())
    await turns()
    new = asyncio.create_task(want("new"))
    await turns()
    other.close()
    await back
    order.append("back")
    slot.close()
    await new
    assert order == ["back", "new"]


async def test_a_handler_gets_its_slot_back_after_all_its_parts_have_stopped_waiting():
    slots = HandlerSlots(1)
    slot = await slots.take()
    slot.wait_started()
    slot.wait_started()
    child = await slots.take()
    await slot.wait_ended()
    child.close()
    grandchild = await slots.take()
    grandchild.close()
    await slot.wait_ended()
    other = asyncio.create_task(slots.take())
    await turns()
    assert not other.done()
    slot.close()
    await other


async def free(slots):
    """Count the free slots by taking all of them, and release them again."""
    taking = [asyncio.create_task(slots.take()) for _ in range(3)]
    await turns()
    taken = [await one for one in taking if one.done()]
    for one in taking:
        one.cancel()
    for slot in taken:
        slot.close()
    await turns()
    return len(taken)


@pytest.fixture
async def wanted_back():
    """Return the only slot, now held by another handler, and the task that waits for this slot."""
    slots = HandlerSlots(1)
    slot = await slots.take()
    slot.wait_started()
    child = await slots.take()
    back = asyncio.create_task(slot.wait_ended())
    await turns()
    return slots, slot, child, back


async def test_a_second_wait_before_the_slot_is_back_keeps_it_released(wanted_back):
    slots, slot, child, back = wanted_back
    slot.wait_started()  # The second wait is in another part of the same handler.
    child.close()
    await back
    assert await free(slots) == 1
    await slot.wait_ended()
    assert await free(slots) == 0


async def test_a_handler_that_ends_while_it_waits_takes_no_slot(wanted_back):
    slots, slot, child, back = wanted_back
    slot.close()
    child.close()
    await back
    assert await free(slots) == 1


async def test_a_wait_outside_a_handler_releases_no_slot():
    slots = HandlerSlots(1)
    with wait_hook_set(await slots.take()):
        pass
    async with waiting_for_tasks():
        assert await free(slots) == 0
