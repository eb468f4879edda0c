"""Each method of the client may be cancelled at each step; afterwards, nothing is held for good."""

from __future__ import annotations

import asyncio
import inspect
from itertools import count

import pytest

from taskraft import AsyncClient, AsyncTakenTask, AsyncTube, Batch, errors
from taskraft._async_subscription import AsyncSubscription
from taskraft._groups import AsyncGroups
from taskraft._schedules import AsyncSchedules
from taskraft.testing import AsyncKit
from taskraft.v1.task_service_pb2 import Settlement
from tests.turns import turns_until

KINDS = (AsyncClient, AsyncTube, AsyncTakenTask, AsyncSubscription, AsyncGroups, AsyncSchedules)
SPECIAL = frozenset({"__aenter__", "__aexit__", "__anext__"})
STEPS_MAX = 2_000
WAITS_AFTER = 60
"""Steps of a call that waits on the node until it is cancelled."""
RELEASE = Settlement(release=Settlement.Release(delay_ms=0, uncounted=True))


class Scene:
    """A node in memory with a few tasks, and a client whose call is cancelled."""

    def __init__(self, kit):
        self.kit = kit
        self.client = AsyncClient()
        self.tube = self.client.tube("emails")
        self.known = []
        """The tasks that the caller holds."""
        self.subscription = None

    async def set_up(self):
        """Create the tubes, two READY tasks, and a tube without room."""
        admin = self.kit.client
        await admin.create_tube("emails", "fifottl", on_ack="keep", dead_letter_tube="dead")
        await admin.create_tube("dead")
        await admin.create_tube("full", capacity_tasks=1)
        await admin.tube("full").put("x")
        await admin.tube("emails").put_many(["a", "b"])
        await admin.groups.create("group")
        await admin.schedules.create("hourly", "0 * * * *", admin.tube("emails").task("x"))

    async def taken(self):
        """Return a task that the caller has taken."""
        self.known.append(await self.tube.take(wait=0))
        return self.known[-1]

    async def block(self, task):
        """Run the block of a task, at whose end the caller knows the task no more."""
        async with task:
            self.known.remove(task)

    def note(self, ended):
        """Note the tasks that a call has returned to its caller."""
        found = ended and not ended.exception() and ended.result()
        for task in found if isinstance(found, list) else [found]:
            if isinstance(task, AsyncTakenTask):
                self.known.append(task)

    async def tasks(self):
        """Return all tasks."""
        admin = self.kit.client
        return [
            task for tube in await admin.list_tubes() async for task in admin.tube(tube.name).list()
        ]

    async def check(self, name, *, is_over):
        """Check that the client holds nothing unknown, and after its end nothing at all."""
        await turns_until(lambda: self.client._connection.abandoned_calls.is_idle)
        if self.subscription is not None:
            await turns_until(lambda: not self.subscription._buffer._releases)
        known = {task.id for task in self.known}
        unknown = [task for task in await self.tasks() if task.id not in known]
        if is_over or not name.startswith("AsyncSubscription."):
            assert "TAKEN" not in {task.state for task in unknown}
        await self.client.close()
        after = await self.tasks()
        assert "TAKEN" not in {task.state for task in after}
        counted = [task for task in after if task.state == "READY" and task.id not in known]
        assert {task.attempt for task in counted} <= {0}
        sessions = await self.kit.client.list_sessions()
        if sessions:  # a subscription was closed before the answer to its opening
            assert name.startswith("AsyncSubscription.")
            await self.kit.advance("15s")
            assert not await self.kit.client.list_sessions()


async def cancelled_after(call, steps):
    """Cancel a call after a number of turns of the event loop; return it if it had ended."""
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        if task.done():
            break
        await asyncio.sleep(0)
    has_ended = task.done()
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and not isinstance(task.exception(), errors.TaskraftError | None):
        raise task.exception()
    return task if has_ended else None


async def all_of(items):
    return [item async for item in items]


def awaited(result):
    """Return a coroutine with the result of a method."""
    return all_of(result) if hasattr(result, "__aiter__") else result


async def handled(_task):
    """Process a task of a subscription."""


def arguments(*args, **options):
    return lambda scene: (args, options)


def planned(*args):
    """Return arguments that end with a task to put."""
    return lambda scene: ((*args, scene.tube.task("x")), {})


def a_batch(scene):
    return (Batch().put(scene.tube.task("x")).ack(scene.known[0]),), {}


def tokens(scene):
    return ([task.token for task in scene.known],), {}


def of_known(*more):
    """Return arguments that begin with the tasks that the caller holds."""
    return lambda scene: ((scene.known, *more), {})


NO_ERROR = arguments(None, None, None)
ONE = arguments(1)
CASES = {
    "AsyncClient.__aenter__": arguments(),
    "AsyncClient.__aexit__": NO_ERROR,
    "AsyncClient.add_member": arguments("n2", address="n2:7401", peer_address="n2:7402"),
    "AsyncClient.bulk_sweep": ONE,
    "AsyncClient.consumers": arguments("emails"),
    "AsyncClient.create_tube": arguments("new"),
    "AsyncClient.drop_tube": arguments("dead"),
    "AsyncClient.ensure_tube": arguments("dead", ttr="1s"),
    "AsyncClient.execute": a_batch,
    "AsyncClient.history": arguments(["emails"]),
    "AsyncClient.list_leases": arguments("00000000-0000-4000-8000-000000000000"),
    "AsyncClient.worst_tubes": arguments("ready"),
    "AsyncClient.session": arguments("00000000-0000-4000-8000-000000000000"),
    "AsyncClient.promote_member": arguments("n2"),
    "AsyncClient.remove_member": arguments("n2"),
    "AsyncClient.settle": tokens,
    "AsyncClient.settle_and_read": tokens,
    "AsyncClient.start_bulk_sweep": arguments("emails", "delete"),
    "AsyncClient.stop_bulk_sweep": ONE,
    "AsyncClient.take_many": arguments(["emails", "dead"], 5),
    "AsyncClient.truncate_tube": arguments("emails"),
    "AsyncClient.update_tube": arguments("dead", ttr="1s"),
    "AsyncGroups.cancel": arguments("group"),
    "AsyncGroups.create": arguments("new"),
    "AsyncGroups.get": arguments("group"),
    "AsyncGroups.set_end_task": lambda scene: (("group",), {"end_task": scene.tube.task("x")}),
    "AsyncGroups.start": arguments("group"),
    "AsyncSchedules.change": arguments("hourly", cron="1 * * * *"),
    "AsyncSchedules.create": planned("daily", "0 0 * * *"),
    "AsyncSchedules.delete": arguments("hourly"),
    "AsyncSchedules.get": arguments("hourly"),
    "AsyncSchedules.times": arguments("hourly"),
    "AsyncSchedules.update": lambda scene: ((scene.schedule,), {}),
    "AsyncSubscription.__aenter__": arguments(),
    "AsyncSubscription.__aexit__": NO_ERROR,
    "AsyncSubscription.ack": of_known(),
    "AsyncSubscription.batches": arguments(),
    "AsyncSubscription.linger": arguments(5, "1s"),
    "AsyncSubscription.settle": of_known([RELEASE, RELEASE]),
    "AsyncSubscription.work": arguments(handled),
    "AsyncTakenTask.__aenter__": arguments(),
    "AsyncTakenTask.settle": arguments(RELEASE),
    "AsyncTakenTask.settle_after": arguments(None),
    "AsyncTube.bury": ONE,
    "AsyncTube.cancel": ONE,
    "AsyncTube.delete": ONE,
    "AsyncTube.events": ONE,
    "AsyncTube.graph": ONE,
    "AsyncTube.move": arguments(1, "dead"),
    "AsyncTube.peek": ONE,
    "AsyncTube.put": arguments("x"),
    "AsyncTube.put_and_read": arguments("x"),
    "AsyncTube.put_and_wait": arguments("x"),
    "AsyncTube.put_atomic": arguments(["x", "y"], room_wait="20s"),
    "AsyncTube.put_many": arguments([str(n) for n in range(1_200)]),
    "AsyncTube.redrive": arguments(),
    "AsyncTube.restart": ONE,
    "AsyncTube.snatch": ONE,
    "AsyncTube.switch": arguments(1, "buried"),
    "AsyncTube.take_many": arguments(5),
    "AsyncTube.update": arguments(1, payload="y"),
    "AsyncTube.wait": ONE,
}
"""The arguments of each method; a method that is missing here has none."""
WAITING = {
    "AsyncClient.changes",
    "AsyncClient.transfer_leadership",
    "AsyncSubscription.batches",
    "AsyncSubscription.linger",
    "AsyncSubscription.work",
    "AsyncTube.put_and_wait",
    "AsyncTube.put_atomic",
    "AsyncTube.wait",
}
"""Calls that wait for an event or the clock; they are cancelled at their first steps."""
ENDS = {"AsyncSubscription.__aexit__", "AsyncSubscription.close", "AsyncSubscription.stop"}
"""Calls that give back the tasks that a subscription has received."""
METHODS = sorted(
    f"{kind.__name__}.{name}"
    for kind in KINDS
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if (name in SPECIAL or not name.startswith("_"))
    and (
        inspect.iscoroutinefunction(method)
        or "AsyncIterator" in str(inspect.signature(method).return_annotation)
    )
)


async def target_of(scene, name):
    """Return the object whose method is called; set up what the call needs."""
    match name.partition(".")[0]:
        case "AsyncClient":
            if CASES.get(name) in (a_batch, tokens, NO_ERROR) or name == "AsyncClient.close":
                await scene.taken()
            return scene.client
        case "AsyncTube":
            return scene.client.tube("full") if name == "AsyncTube.put_atomic" else scene.tube
        case "AsyncTakenTask":
            return await scene.taken()
        case "AsyncGroups":
            return scene.client.groups
        case "AsyncSchedules":
            (scene.schedule,) = await scene.client.schedules.list()
            return scene.client.schedules
    tasks = scene.subscription = scene.client.subscribe("emails")
    if name in ("AsyncSubscription.ack", "AsyncSubscription.settle"):
        scene.known += await tasks.next_batch()
    elif name in ENDS:
        await tasks.first()
    return tasks


@pytest.mark.parametrize("name", METHODS)
async def test_a_call_cancelled_at_any_step_holds_nothing_for_good(name):
    for steps in count():
        assert steps < STEPS_MAX
        async with AsyncKit() as kit:
            scene = Scene(kit)
            await scene.set_up()
            target = await target_of(scene, name)
            args, options = CASES.get(name, arguments())(scene)
            if name == "AsyncTakenTask.__aexit__":
                call = scene.block(target)
            else:
                call = awaited(getattr(target, name.partition(".")[2])(*args, **options))
            ended = await cancelled_after(call, steps)
            scene.note(ended)
            await scene.check(name, is_over=name in ENDS and steps > 0)
        if ended or (name in WAITING and steps >= WAITS_AFTER):
            break


def test_each_case_is_the_case_of_a_method():
    assert CASES.keys() | WAITING <= set(METHODS)


async def test_a_block_cancelled_before_its_settlement_was_sent_still_ends(
    async_calls, memory_client
):
    """The settlement waits for the answer to the settlement of another task."""
    emails = memory_client.tube("emails")
    await emails.put_many(["a", "b"])
    first, second = await emails.take_many(2, wait=0)
    async_calls.hold("SettleTasks")
    acknowledging = asyncio.ensure_future(first.ack())
    await turns_until(lambda: async_calls.requests("SettleTasks"))
    leaving = asyncio.ensure_future(second.settle_after(None))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    async_calls.let_go("SettleTasks")
    await acknowledging
    await turns_until(lambda: memory_client._connection.abandoned_calls.is_idle)
    assert [(task.state, task.attempt) async for task in emails.list()] == [("DONE", 1)] * 2
    assert second.is_settled


async def test_a_session_whose_opening_was_cancelled_serves_the_next_take(
    async_calls, memory_client
):
    emails = memory_client.tube("emails")
    await emails.put("a")
    async_calls.hold("OpenSession")
    taking = asyncio.ensure_future(emails.take())
    await turns_until(lambda: async_calls.requests("OpenSession"))
    taking.cancel()
    await asyncio.wait([taking])
    async_calls.let_go("OpenSession")
    await (await emails.take()).ack()
    assert len(async_calls.requests("OpenSession")) == 1
