"""The test kit for plain functions: runs an `AsyncKit` on an event loop of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from taskraft._blocking_facade import blocking
from taskraft._sync_client import Client
from taskraft.testing._memory_backend import TARGET
from taskraft.testing.async_kit import AsyncKit

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AbstractContextManager
    from datetime import datetime
    from types import TracebackType

    from taskraft import Duration, Task
    from taskraft.testing._worker_run import CrashPoint
    from taskraft.testing.clock import Clock
    from taskraft.testing.real_cluster import RealCluster
    from taskraft.worker import App
    from taskraft.worker.task import TaskFunction

P = ParamSpec("P")
R = TypeVar("R")
Result = TypeVar("Result")


class Kit:
    """A cluster in memory with a virtual clock, or a real node; a context manager.

        with Kit(app) as taskraft:
            welcome.put("a@example.org")
            taskraft.run_until_idle()

    While the kit is open, all clients that are created connect to it, whatever their target. A call
    that waits moves the clock, because nothing else can happen.
    """

    def __init__(
        self,
        app: App | None = None,
        *,
        start: datetime | str | None = None,
        auto_create_tubes: bool = False,
        wait_max: Duration = "1d",
        cluster: RealCluster | None = None,
    ) -> None:
        """Configure the kit; the arguments are those of `AsyncKit`."""
        self._inner = AsyncKit(
            start=start, auto_create_tubes=auto_create_tubes, wait_max=wait_max, cluster=cluster
        )
        self._app = app

    def __enter__(self) -> Self:
        self._loop = asyncio.SelectorEventLoop()
        try:
            self._loop.run_until_complete(self._inner.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        self.client = Client(TARGET, name="test")
        """A client on the cluster."""
        self._portal = self.client._portal  # noqa: SLF001 - the same wheel
        if self._app is not None:
            self.use_app(self._app)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the cluster and everything that runs on it."""
        if self._loop.is_closed():
            return
        try:
            self._loop.run_until_complete(self._inner.close())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    @property
    def clock(self) -> Clock:
        """The clock of the cluster and of all clients."""
        return self._inner.clock

    @property
    def app(self) -> App:
        """The app of the test; see `AsyncKit.app`."""
        return self._inner.app

    def use_app(self, app: App) -> None:
        """Run the worker of this app, and let the app put its tasks into this cluster."""
        self.run(self._inner.use_app(app, self.client))

    def run(self, coroutine: Coroutine[object, object, Result]) -> Result:
        """Run a coroutine on the loop of the kit, where asyncio clients can be used."""
        return self._portal.run(coroutine)

    run_until_idle = blocking(AsyncKit.run_until_idle)
    advance = blocking(AsyncKit.advance)
    advance_to = blocking(AsyncKit.advance_to)
    run_until_empty = blocking(AsyncKit.run_until_empty)
    tasks = blocking(AsyncKit.tasks)
    states = blocking(AsyncKit.states)
    change_leader = blocking(AsyncKit.change_leader)
    lose_lease = blocking(AsyncKit.lose_lease)

    def run_task(self, task: TaskFunction[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Put a call of a task, run until idle, and return the result."""
        return self.run(self._inner.run_task(task, *args, **kwargs))

    def sent(self, of: TaskFunction[..., Any] | str | None = None) -> list[Task]:
        """Return the tasks that clients put; see `AsyncKit.sent`."""
        return self._inner.sent(of)

    def assert_sent(self, task: TaskFunction[P, Any], *args: P.args, **kwargs: P.kwargs) -> None:
        """Check that a call of a task was put with these arguments."""
        self._inner.assert_sent(task, *args, **kwargs)

    def expect_failures(self, *kinds: type[Exception]) -> AbstractContextManager[list[Exception]]:
        """Expect handlers to fail in a block; see `AsyncKit.expect_failures`."""
        return self._inner.expect_failures(*kinds)

    def crash_worker(self) -> None:
        """Kill the worker of the app now; its tasks stay TAKEN until its session has expired."""
        self.run(self._crash_worker())

    async def _crash_worker(self) -> None:
        self._inner.crash_worker()

    def crash(self, at: CrashPoint) -> AbstractContextManager[None]:
        """Kill the worker in the first attempt of a block; see `AsyncKit.crash`."""
        return self._inner.crash(at)

    def fail(self, task: TaskFunction[..., Any], *errors: Exception) -> None:
        """Raise errors in the next attempts of a task, one in each, instead of its handler."""
        self._inner.fail(task, *errors)

    def threads_ignored(self) -> AbstractContextManager[None]:
        """Let the clock move although threads work; see `AsyncKit.threads_ignored`."""
        return self._inner.threads_ignored()

    def unreachable(self) -> AbstractContextManager[None]:
        """Break all connections, and refuse new ones in a block."""
        return self._inner.unreachable()

    def lost_answers(self) -> AbstractContextManager[None]:
        """Execute the calls of a block and lose their answers."""
        return self._inner.lost_answers()
