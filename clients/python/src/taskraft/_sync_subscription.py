"""Receive tasks as they become ready, for threads."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self

from taskraft._async_subscription import AsyncSubscription
from taskraft._blocking_facade import blocking
from taskraft._signals import DEFAULT_SIGNALS, ThreadSignalHandler
from taskraft._sync_taken_task import TakenTask
from taskraft._sync_work import Handler, work_in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from signal import Signals
    from types import TracebackType

    from taskraft._blocking_portal import BlockingPortal
    from taskraft._durations import Duration
    from taskraft._payload import Payload


class Subscription:
    """Tasks as they become ready, one by one or in batches; use it from one thread, but for `stop`.

        with client.subscribe("emails") as tasks:
            for task in tasks:
                with task:
                    send(task.json())

    The stream is kept going in the background, so that a slow handler loses nothing. At the end of
    the context unsettled tasks are handed back at once, and their attempts do not count.
    """

    def __init__(self, subscription: AsyncSubscription, portal: BlockingPortal) -> None:
        self._inner = subscription
        self._portal = portal
        self._ready: deque[TakenTask] = deque()
        self._signals = ThreadSignalHandler(self.stop)

    narrow = blocking(AsyncSubscription.narrow)

    @property
    def session_id(self) -> str:
        """The session that holds the leases; empty before the first connection."""
        return self._inner.session_id

    def __enter__(self) -> Self:
        self._portal.run(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TakenTask:
        while True:
            if not self._ready:
                self._ready.extend(self.next_batch())
            if not self._ready:
                raise StopIteration
            task = self._ready.popleft()
            if not task.is_lost:
                return task

    def batches(self, tasks_max: int = 1_000) -> Iterator[list[TakenTask]]:
        """Yield lists of the tasks that are there, never empty ones."""
        while batch := self.next_batch(tasks_max):
            yield batch

    def next_batch(self, tasks_max: int = 1_000) -> list[TakenTask]:
        """Wait for tasks and return them; an empty list means that there will be none."""
        taken = self._portal.run(self._inner.next_batch(tasks_max))
        return [TakenTask(task, self._portal) for task in taken]

    def work(self, handler: Handler) -> None:
        """Run `handler` for each task in a thread, as many at once as `credit` says, until `stop`.

        Each runs in the block of its task. What it returns is stored as the result. What it raises
        is logged and goes to the tube's retry policy. A handler that waits for other tasks (`wait`,
        `put_and_wait`) makes room for another one meanwhile, so that it may wait for tasks of its
        own kind. With Ctrl-C no more tasks are taken, and what is begun is finished; a second one
        leaves it.

        Raises:
            TaskraftError: The subscription is over.
            TypeError: The handler is for asyncio.
        """
        work_in_threads(self._inner, handler, self._portal, self.stop)

    def stop(self) -> None:
        """Take no more tasks, and let those in hand be finished: the iteration ends.

        What nobody has begun is handed back at once. Signal handlers and other threads may call it.
        """
        unbegun = [task.taken for task in self._ready]
        self._ready.clear()
        self._portal.run(self._inner.stop(unbegun))

    def ack(
        self,
        tasks: Sequence[TakenTask],
        result: Payload = None,
        *,
        timeout: Duration | None = None,
    ) -> None:
        """Finish several tasks at once.

        Raises:
            ItemsRefused: Some leases were over; all other tasks are finished.
        """
        inner = [task.taken for task in tasks]
        self._portal.run(self._inner.ack(inner, result, timeout=timeout))

    def stop_on(self, *signals: Signals) -> None:
        """Stop at the first of these signals, SIGTERM if none is named; call it in the main thread.

        A second one does what it did before, and ends the process as a rule. So do all of them
        after the end of the subscription.
        """
        self._signals.install(signals or DEFAULT_SIGNALS)

    def close(self) -> None:
        """Hand back what is not settled, and end the stream."""
        try:
            self._portal.run(self._inner.close())
        finally:
            self._signals.restore()
