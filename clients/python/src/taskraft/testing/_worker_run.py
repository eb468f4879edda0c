"""Run the worker of an app in the test, and make its attempts fail or its process die."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Literal

from taskraft.errors import TaskNotFound
from taskraft.worker.errors import RejectTask, RetryTask, Snooze, TaskInterrupted
from taskraft.worker.middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from taskraft import AsyncClient, Client, Task
    from taskraft.testing._backend import Backend
    from taskraft.worker import App, Context
    from taskraft.worker.task import TaskFunction

CrashPoint = Literal["before_run", "in_run", "before_ack", "after_ack"]
PAUSE_TURNS: Final = 10
"""Turns of the event loop until a new handler has reached its first pause, and some more."""
_INTENDED: Final = (RetryTask, RejectTask, Snooze, TaskInterrupted)
"""Exceptions that a handler raises on purpose to end its attempt; they do not count as failures."""


class WorkerRun(Middleware):
    """The worker of an app; the outermost middleware of its handlers.

    Args:
        app: the app.
        backend: the cluster.
        observer: a client that looks at tasks, and does not die with the worker.
    """

    def __init__(self, app: App, backend: Backend, observer: AsyncClient) -> None:
        self.app: Final = app
        self.attempts = 0
        """Number of attempts so far."""
        self.failures: Final[list[Exception]] = []
        """Exceptions of handlers since the last `fetch_failures`."""
        self.crash_at: CrashPoint | None = None
        """Point of the next attempt at which the process dies; None: the process does not die."""
        self._injected: defaultdict[str, deque[Exception]] = defaultdict(deque)
        self._backend = backend
        self._observer = observer
        self._watching: set[asyncio.Task[None]] = set()
        self.running = 0
        """Number of handlers that run."""
        self._worker: asyncio.Task[Any] | None = None
        self._undo = ExitStack()

    def install(self, client: Client | None) -> None:
        """Let the app use the kit; `client` is for calls outside of coroutines."""
        app = self.app
        self._undo.enter_context(app.clients.restored())
        self._undo.callback(setattr, app, "middleware", app.middleware)
        app.middleware = (self, *app.middleware)  # type: ignore[misc]  # restored by `uninstall`
        if client is not None:
            app.use(client)
        self._network, async_client = self._backend.connect("worker")
        app.use(async_client)

    def uninstall(self) -> None:
        """Undo `install`."""
        self._undo.close()

    @property
    def is_busy(self) -> bool:
        """Whether the worker starts, or a handler runs."""
        worker = self.app._worker  # noqa: SLF001 - the same wheel
        return self.running > 0 or (worker is not None and worker.is_starting)

    # ------------------------------------------------------------------------------ process

    def start(self) -> None:
        """Start the worker, unless it runs."""
        if self._worker is None:
            self._worker = asyncio.ensure_future(self.app.run(signals=False))

    async def stop_if_idle(self) -> None:
        """Stop the worker if no handler runs, so that later puts stay READY."""
        worker = self._worker
        if worker is None:
            return
        if worker.done():
            self._worker = None
            worker.result()  # raises the error of a failed worker
        elif not self.running:
            self._worker = None
            self.app.stop()
            await worker

    def kill(self) -> None:
        """End the worker without a shutdown: none of its later calls reaches the cluster."""
        worker, self._worker = self._worker, None
        self._network.kill()
        if worker is not None:
            worker.cancel()
        self.running = 0
        self.app.clients.end_loan()
        self._network, async_client = self._backend.connect("worker")
        self.app.use(async_client)

    # ------------------------------------------------------------------------------ handlers

    def inject(self, task: TaskFunction[..., Any], errors: tuple[Exception, ...]) -> None:
        """Raise errors in the next attempts of a task, one in each, instead of its handler."""
        self._injected[task.name].extend(errors)

    def fetch_failures(self) -> list[Exception]:
        """Return the exceptions of handlers since the last call."""
        found, self.failures[:] = list(self.failures), []
        return found

    async def run(self, ctx: Context, call_next: Callable[[], Awaitable[object]]) -> object:
        """Run a handler, sync or async; runs on the event loop of the worker."""
        worker = self._worker
        self.attempts += 1
        self.running += 1
        try:
            await self._crash("before_run")
            self._raise_injected(ctx.task.message.spec.type)
            if self.crash_at == "in_run":
                await self._crash_at_first_pause(call_next)
            result = await call_next()
            await self._crash("before_ack")
            if self.crash_at == "after_ack":
                self._watch(ctx.task)
        except Exception as error:
            if not isinstance(error, _INTENDED):
                self.failures.append(error)
            raise
        else:
            return result
        finally:
            if worker is self._worker:
                self.running -= 1

    def _raise_injected(self, name: str) -> None:
        if self._injected[name]:
            raise self._injected[name].popleft()

    async def _crash_at_first_pause(self, call_next: Callable[[], Awaitable[object]]) -> None:
        running = asyncio.ensure_future(call_next())
        for _ in range(PAUSE_TURNS):
            await asyncio.sleep(0)
        try:
            await self._crash("in_run")
        finally:
            running.cancel()

    def _watch(self, task: Task) -> None:
        """Kill the worker as soon as a task is settled."""
        self.crash_at = None
        watching = asyncio.create_task(self._kill_after_settlement(task))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)

    async def _kill_after_settlement(self, task: Task) -> None:
        tube = self._observer.tube(task.tube)
        try:
            while (await tube.peek(task.id)).state == "TAKEN":
                pass  # the call lets the worker settle
        except TaskNotFound:  # acknowledged, and not kept
            pass
        self.kill()

    async def _crash(self, point: CrashPoint) -> None:
        if self.crash_at != point:
            return
        self.crash_at = None
        self.kill()
        await asyncio.get_running_loop().create_future()  # the killed worker is cancelled
