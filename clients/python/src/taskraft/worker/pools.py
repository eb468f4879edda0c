"""Receive tasks and start an attempt for each, as long as slots are free."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final

from taskraft import AsyncClient, AsyncSubscription, SubscribeOptions
from taskraft._async_work import AsyncHandler
from taskraft._handler_slots import HandlerSlot, HandlerSlots, wait_hook_set
from taskraft.worker.attempt import Attempt
from taskraft.worker.batch_attempt import BatchAttempt
from taskraft.worker.errors import TaskInterrupted
from taskraft.worker.handler_run import HandlerRun, Surroundings
from taskraft.worker.options import CONSUMER_CONCURRENCY_DEFAULT, ConsumerOptions
from taskraft.worker.task import TaskFunction
from taskraft.worker.thread_pool import ThreadCall

TYPES_PER_SUBSCRIPTION: Final = 64
"""Maximum number of task types in one subscription; the limit of the server."""


class PoolSlots:
    """The slots of one kind of handlers, and the threads that outlive their attempts.

    Args:
        slots: maximum number of handlers at once.
        urgent: number of these slots that only urgent tasks use.
    """

    def __init__(self, slots: int, urgent: int = 0) -> None:
        self.slots: Final = slots
        """Maximum number of handlers at once."""
        self.urgent: Final = urgent
        """Number of slots that only urgent tasks use."""
        self.common: Final = slots - urgent
        """Number of the other slots, which all tasks use."""
        self._free = HandlerSlots(self.common)
        self._free_urgent = HandlerSlots(urgent)
        self.used = 0
        """Number of running handlers, including handlers that wait for other tasks."""
        self.stuck = 0
        """Number of threads that still run although their attempt has ended."""
        self.half_is_stuck: Final = asyncio.Event()
        """Set when half of the slots are used by such threads."""

    async def take(self, *, is_urgent: bool = False) -> HandlerSlot:
        """Wait for a free slot, or for one of the urgent slots, and return it."""
        return await (self._free_urgent if is_urgent else self._free).take()

    def thread_is_stuck(
        self, subscription: AsyncSubscription, withheld: int, thread: ThreadCall
    ) -> None:
        """Count a thread that outlives its attempt, and ask for fewer tasks until it ends."""
        self.stuck += 1
        if self.stuck * 2 >= self.slots:
            self.half_is_stuck.set()
        subscription.withhold(withheld)

        def ended() -> None:
            self.stuck -= 1
            subscription.withhold(-withheld)

        thread.on_done.append(ended)


class Receiver(ABC):
    """Receives tasks and runs handlers for them."""

    def __init__(self) -> None:
        self.running: Final[dict[asyncio.Task[None], HandlerRun | Consumer]] = {}
        """Running handlers by their asyncio task."""
        self._subscriptions: list[AsyncSubscription] = []
        self._is_stopped = False

    @property
    def is_connected(self) -> bool:
        """True while all subscriptions have a stream to the cluster."""
        return all(one.is_connected for one in self._subscriptions)

    @property
    def reconnects(self) -> int:
        """Number of streams to the cluster that were opened again."""
        return sum(one.reconnects for one in self._subscriptions)

    @abstractmethod
    async def open(self, client: AsyncClient, stack: AsyncExitStack) -> None:
        """Subscribe to the tasks; `stack` closes the subscriptions."""

    @abstractmethod
    async def work(self, surroundings: Surroundings) -> None:
        """Start handlers until `stop`.

        Raises:
            TaskraftError: a subscription has failed.
        """

    async def stop(self) -> None:
        """Receive no more tasks; tasks that were not started are handed back uncounted."""
        self._is_stopped = True
        await asyncio.gather(*(one.stop() for one in self._subscriptions))

    def _start(self, run: HandlerRun, slot: HandlerSlot, slots: PoolSlots) -> asyncio.Task[None]:
        running = asyncio.create_task(_run(run, slot, slots))
        self.running[running] = run
        running.add_done_callback(self.running.pop)
        return running


class Pool(Receiver):
    """Runs tasks one by one; all their types share the slots of the pool.

    Args:
        tasks: tasks to run.
        slots: slots of the pool.
        weights: weights by tube; empty: no weights.
        concurrency: maximum number of attempts at once; None: the slots.
        urgent_bound: only tasks at least as urgent as this priority, in the urgent slots. None: all
            tasks, in the other slots.
    """

    def __init__(
        self,
        tasks: Sequence[TaskFunction[..., Any]],
        slots: PoolSlots,
        weights: Mapping[str, int],
        *,
        concurrency: int | None = None,
        urgent_bound: int | None = None,
    ) -> None:
        super().__init__()
        self._weights = weights
        self._tasks = {name: task for task in tasks for name in (task.name, *task.upgrades)}
        self._slots = slots
        self._urgent_bound = urgent_bound
        self._is_urgent = urgent_bound is not None
        own_slots = slots.urgent if self._is_urgent else slots.common
        self._credit = min(own_slots, concurrency or own_slots)

    async def open(self, client: AsyncClient, stack: AsyncExitStack) -> None:
        """Subscribe to all types of the pool; more than 64 types need several subscriptions."""
        names = sorted(self._tasks)
        tubes = sorted({task.tube for task in self._tasks.values()})
        chunks = [
            names[start : start + TYPES_PER_SUBSCRIPTION]
            for start in range(0, len(names), TYPES_PER_SUBSCRIPTION)
        ]
        for types in chunks:
            options: SubscribeOptions = {"types": types}
            options["credit"] = max(self._credit // len(chunks), 1)
            if self._urgent_bound is not None:
                options["priority_bound"] = self._urgent_bound
            weighed = {tube: self._weights.get(tube, 1) for tube in tubes}
            subscription = client.subscribe(weighed if self._weights else tubes, **options)
            self._subscriptions.append(await stack.enter_async_context(subscription))

    async def work(self, surroundings: Surroundings) -> None:
        """Start an attempt for each task until `stop`."""
        async with asyncio.TaskGroup() as group:
            for subscription in self._subscriptions:
                stuck = partial(self._slots.thread_is_stuck, subscription, 1)
                around = replace(surroundings, on_stuck_thread=stuck)
                group.create_task(self._receive(subscription, around))

    async def _receive(self, subscription: AsyncSubscription, around: Surroundings) -> None:
        async for taken in subscription:
            slot = await self._slots.take(is_urgent=self._is_urgent)
            if self._is_stopped:
                slot.close()
                await taken.release(0, uncounted=True)
                continue
            attempt = Attempt(self._tasks[taken.message.spec.type], taken, around)
            self._start(attempt, slot, self._slots)


class BatchPool(Receiver):
    """Runs the batches of one task; each batch takes one slot of the pool.

    The subscription receives one batch more than are running, so that the next batch is collected
    while handlers run.
    """

    def __init__(self, task: TaskFunction[..., Any], slots: PoolSlots) -> None:
        super().__init__()
        assert task.batch is not None
        self._task = task
        self._batch = task.batch
        self._slots = slots

    async def open(self, client: AsyncClient, stack: AsyncExitStack) -> None:
        """Subscribe to the type of the task."""
        credit = self._batch.size * (self._slots.common + 1)
        subscription = client.subscribe(self._task.tube, types=self._task.name, credit=credit)
        subscription.withhold(credit - self._batch.size)
        self._subscriptions.append(await stack.enter_async_context(subscription))

    async def work(self, surroundings: Surroundings) -> None:
        """Start an attempt for each batch until `stop`."""
        (subscription,) = self._subscriptions
        size = self._batch.size
        stuck = partial(self._slots.thread_is_stuck, subscription, size)
        around = replace(surroundings, on_stuck_thread=stuck)
        async for batch in subscription.batches(size, linger=self._batch.linger_seconds):
            slot = await self._slots.take()
            if self._is_stopped:
                slot.close()
                await subscription.stop(batch)
                return
            subscription.withhold(-size)
            attempt = BatchAttempt(self._task, subscription, batch, around)
            running = self._start(attempt, slot, self._slots)
            running.add_done_callback(lambda _: subscription.withhold(size))


class Consumer(Receiver):
    """Runs a handler for the tasks of a tube, whatever their types are; see `App.consumer`."""

    def __init__(self, tube: str, handler: AsyncHandler, options: ConsumerOptions) -> None:
        super().__init__()
        self.tube: Final = tube
        """Name of the tube."""
        self._handler = handler
        self._options = options
        self._working: asyncio.Task[None] | None = None

    async def open(self, client: AsyncClient, stack: AsyncExitStack) -> None:
        """Subscribe to the tube."""
        options = dict(self._options)
        credit = options.pop("concurrency", CONSUMER_CONCURRENCY_DEFAULT)
        subscription = client.subscribe(self.tube, credit=credit, **options)  # type: ignore[arg-type]  # checked by `subscribe`
        self._subscriptions.append(await stack.enter_async_context(subscription))

    async def work(self, surroundings: Surroundings) -> None:
        """Run the handler for each task until `stop`."""
        (subscription,) = self._subscriptions
        self._working = asyncio.create_task(subscription.work(self._handler))
        self.running[self._working] = self
        self._working.add_done_callback(self.running.pop)
        await self._working

    def note_stopping(self) -> None:
        """Do nothing, because a consumer's handler has no context."""

    def interrupt(self, _cause: TaskInterrupted) -> None:
        """Cancel the handlers; their tasks are handed back uncounted."""
        if self._working is not None:
            self._working.cancel()


async def _run(run: HandlerRun, slot: HandlerSlot, slots: PoolSlots) -> None:
    def close() -> None:
        slots.used -= 1
        slot.close()

    slots.used += 1
    try:
        with wait_hook_set(slot):
            await run.run()
    finally:
        if run.thread is None or run.thread.is_done:
            close()
        else:  # the thread keeps its slot until it ends
            run.thread.on_done.append(close)
