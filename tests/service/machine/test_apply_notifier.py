"""Waits for conditions on the applied state: all are checked after an entry, in slices."""

import asyncio

from taskraft_service.machine.apply_notifier import CHECKED_AT_ONCE, ApplyNotifier
from tests.turns import turns_until

WAITS = 3 * CHECKED_AT_ONCE + 50


class Stage:
    """Coroutines that wait until ``is_so``; ``checks`` counts the checks of the condition."""

    def __init__(self):
        self.notifier, self.is_so, self.checks = ApplyNotifier(), False, 0

    def check(self):
        self.checks += 1
        return self.is_so

    async def begin(self):
        tasks = [
            asyncio.ensure_future(self.notifier.wait_for(self.check, 60)) for _ in range(WAITS)
        ]
        await asyncio.sleep(0)
        self.checks = 0
        return tasks

    async def checks_in_turns(self, count):
        """Return the number of checks in each of the next turns of the event loop."""
        found = []
        for _ in range(count):
            before = self.checks
            await asyncio.sleep(0)
            found.append(self.checks - before)
        return found


async def test_conditions_are_checked_in_slices():
    stage = Stage()
    waits = await stage.begin()
    stage.notifier.applied(0)
    assert await stage.checks_in_turns(6) == [CHECKED_AT_ONCE] * 3 + [50, 0, 0]
    stage.is_so = True
    stage.notifier.applied(0)
    assert await asyncio.gather(*waits) == [True] * WAITS
    assert not stage.notifier.waiting


async def test_an_entry_during_the_checks_has_all_conditions_checked_again():
    stage = Stage()
    waits = await stage.begin()
    stage.notifier.applied(0)
    await asyncio.sleep(0)
    stage.is_so = True
    stage.notifier.applied(0)
    await turns_until(lambda: all(wait.done() for wait in waits))
    assert {wait.result() for wait in waits} == {True}


async def test_a_stopping_node_ends_all_waits():
    stage = Stage()
    waits = await stage.begin()
    stage.notifier.end()
    assert await asyncio.gather(*waits) == [False] * WAITS
    assert not await stage.notifier.wait_for(stage.check, 60)
