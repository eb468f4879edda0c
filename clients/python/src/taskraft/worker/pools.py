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
from taskraft._credit import CREDIT_TASKS_MAX
from taskraft._handler_slots import add_wait_hook
from taskraft.worker.attempt import Attempt
from taskraft.worker.batch_attempt import BatchAttempt
from taskraft.worker.errors import TaskInterrupted
from taskraft.worker.handler_run import HandlerRun, Surroundings
from taskraft.worker.options import CONSUMER_CONCURRENCY_DEFAULT, ConsumerOptions
from taskraft.worker.prefetch import PREFETCH_MAX
from taskraft.worker.slot_shares import SlotShare
from taskraft.worker.slots import AttemptSlot, PoolSlots
from taskraft.worker.task import TaskFunction

TYPES_PER_SUBSCRIPTION: Final = 64
"""Maximum number of task types in one subscription; the limit of the server."""


class Receiver(ABC):
    """Receives tasks and runs handlers for them."""

    def __init__(self) -> None:
        self.running: Final[dict[asyncio.Task[None], HandlerRun | Consumer]] = {}
        """Attempts by their asyncio task: the handler runs, or the settlement has no answer."""
        self._subscriptions: list[AsyncSubscription] = []

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
        await asyncio.gather(*(one.stop() for one in self._subscriptions))

    def _start(self, run: HandlerRun, slot: AttemptSlot) -> None:
        self.running[asyncio.create_task(self._run(run, slot))] = run

    async def _run(self, run: HandlerRun, slot: AttemptSlot) -> None:
        add_wait_hook(slot.handler)  # for the rest of this asyncio task
        try:
            await run.run(slot)
        finally:
            slot.end(run.thread)
            running = asyncio.current_task()
            assert running is not None
            del self.running[running]


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
        is_urgent = urgent_bound is not None
        self._shared = slots.urgent_shares if is_urgent else slots.common_shares
        own_slots = self._shared.count
        self._slots_max = min(own_slots, concurrency or own_slots)
        self._credit = self._slots_max
        if not (is_urgent or concurrency):
            self._credit = min(own_slots + PREFETCH_MAX, CREDIT_TASKS_MAX)
        self._ahead_max = 0 if is_urgent else PREFETCH_MAX
        self._shares: list[SlotShare] = []

    async def open(self, client: AsyncClient, stack: AsyncExitStack) -> None:
        """Subscribe to all types of the pool; more than 64 types need several subscriptions."""
        names = sorted(self._tasks)
        tubes = sorted({task.tube for task in self._tasks.values()})
        chunks = [
            names[start : start + TYPES_PER_SUBSCRIPTION]
            for start in range(0, len(names), TYPES_PER_SUBSCRIPTION)
        ]
        for types in chunks:
            options: SubscribeOptions = {"types": types, "credit": self._credit}
            if self._urgent_bound is not None:
                options["priority_bound"] = self._urgent_bound
            weighed = {tube: self._weights.get(tube, 1) for tube in tubes}
            subscription = client.subscribe(weighed if self._weights else tubes, **options)
            share = SlotShare(
                self._shared,
                subscription,
                slots_max=self._slots_max,
                size=1,
                free_max=self._slots_max,
                ahead_max=self._ahead_max // len(chunks),
            )
            self._shares.append(share)
            self._subscriptions.append(await stack.enter_async_context(subscription))

    async def work(self, surroundings: Surroundings) -> None:
        """Start an attempt for each task until `stop`."""
        async with asyncio.TaskGroup() as group:
            for share in self._shares:
                stuck = partial(self._slots.thread_is_stuck, share.subscription, 1)
                around = replace(surroundings, on_stuck_thread=stuck)
                group.create_task(self._receive(share, around))

    async def _receive(self, share: SlotShare, around: Surroundings) -> None:
        while (first := await share.subscription.first()) is not None:
            held = await share.take(first)
            if held is None:
                continue
            slot = AttemptSlot(self._slots, share, held)
            for taken in share.subscription.fetch(1):
                attempt = Attempt(self._tasks[taken.message.spec.type], taken, around)
                self._start(attempt, slot)
                break
            else:  # the task was handed back, or its lease has ended
                slot.end(None)


class BatchPool(Receiver):
    """Runs the batches of one task; each batch takes one slot of the pool.

    A batch is collected in its slot. A pool of short handlers receives one batch more, which waits
    for a slot.
    """

    def __init__(self, task: TaskFunction[..., Any], slots: PoolSlots) -> None:
        super().__init__()
        assert task.batch is not None
        self._task = task
        self._batch = task.batch
        self._slots = slots

    async def open(self, client: AsyncClient, stack: AsyncExitStack) -> None:
        """Subscribe to the type of the task."""
        shared, size = self._slots.common_shares, self._batch.size
        credit = min(size * (shared.count + 1), CREDIT_TASKS_MAX)
        subscription = client.subscribe(self._task.tube, types=self._task.name, credit=credit)
        self._share = SlotShare(
            shared,
            subscription,
            slots_max=shared.count,
            size=size,
            free_max=1,
            ahead_max=size,
        )
        self._subscriptions.append(await stack.enter_async_context(subscription))

    async def work(self, surroundings: Surroundings) -> None:
        """Start an attempt for each batch until `stop`."""
        share, subscription = self._share, self._share.subscription
        while (first := await subscription.first()) is not None:
            held = await share.take(first)
            if held is None:
                continue
            slot = AttemptSlot(self._slots, share, held)
            await subscription.linger(self._batch.size, self._batch.linger_seconds)
            batch = subscription.fetch(self._batch.size)
            if not batch:  # the tasks were handed back, or their leases have ended
                slot.end(None)
                continue
            slot.begins(len(batch))
            stuck = partial(self._slots.thread_is_stuck, subscription, len(batch))
            around = replace(surroundings, on_stuck_thread=stuck)
            self._start(BatchAttempt(self._task, subscription, batch, around), slot)


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
