"""The subscription for threads: the server pushes tasks as they become READY."""

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
    """Tasks as they become READY; use it from one thread, except `stop`.

        with client.subscribe("emails") as tasks:
            for task in tasks:
                with task:
                    send(task.json())

    A background thread keeps the stream alive, so a slow handler loses no leases. At the end of the
    context, unsettled tasks are released at once, and their attempts do not count.
    """

    def __init__(self, subscription: AsyncSubscription, portal: BlockingPortal) -> None:
        self._inner = subscription
        self._portal = portal
        self._ready: deque[TakenTask] = deque()
        self._signals = ThreadSignalHandler(self.stop)

    narrow = blocking(AsyncSubscription.narrow)

    @property
    def session_id(self) -> str:
        """Id of the session that holds the leases; empty before the first connection."""
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

    def batches(self, tasks_max: int = 1_000, *, linger: Duration = 0) -> Iterator[list[TakenTask]]:
        """Yield non-empty lists of the tasks that have arrived; see `next_batch`."""
        while batch := self.next_batch(tasks_max, linger=linger):
            yield batch

    def next_batch(self, tasks_max: int = 1_000, *, linger: Duration = 0) -> list[TakenTask]:
        """Wait for tasks and return them; an empty list means that the subscription has stopped.

        Args:
            tasks_max: maximum length of the list; the credit of the subscription limits it too.
            linger: maximum wait for a full list after the first task; default: no wait.
        """
        taken = self._portal.run(self._inner.next_batch(tasks_max, linger=linger))
        return [TakenTask(task, self._portal) for task in taken]

    def work(self, handler: Handler) -> None:
        """Run `handler` for each task in a thread, with up to `credit` at once, until `stop`.

        Each handler runs in the block of its task. The return value is stored as the task's result.
        An exception is logged, and the tube's retry policy decides what happens to the task. A
        handler that waits for other tasks (`wait`, `put_and_wait`) releases its concurrency slot
        during the wait, so it may wait for tasks of its own kind. The first Ctrl-C stops the
        subscription and lets running handlers finish; the second one raises at once.

        Raises:
            TaskraftError: the subscription has failed.
            TypeError: the handler is a coroutine function.
        """
        work_in_threads(self._inner, handler, self._portal, self.stop)

    def stop(self) -> None:
        """Receive no more tasks, so that the iteration ends.

        Received tasks that no handler has started are released at once. Signal handlers and other
        threads may call this method.
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
        """Acknowledge several tasks in one call.

        Raises:
            ItemsRefused: some leases have ended; all other tasks are acknowledged.
        """
        inner = [task.taken for task in tasks]
        self._portal.run(self._inner.ack(inner, result, timeout=timeout))

    def stop_on(self, *signals: Signals) -> None:
        """Stop at the first of these signals, default SIGTERM; call it in the main thread.

        After the first signal and after the end of the subscription, each signal has its previous
        effect again. A second signal therefore usually ends the process.
        """
        self._signals.install(signals or DEFAULT_SIGNALS)

    def close(self) -> None:
        """Release unsettled tasks, and end the stream."""
        try:
            self._portal.run(self._inner.close())
        finally:
            self._signals.restore()
