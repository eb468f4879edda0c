"""The test kit for coroutines: a cluster in memory with a clock, a client and a worker."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from taskraft import _network
from taskraft._async_client import AsyncClient
from taskraft._durations import Duration, seconds
from taskraft.testing._memory_network import MemoryNetwork
from taskraft.testing._sent_tasks import SentTasks
from taskraft.testing._server import memory_node, quiet_server
from taskraft.testing._virtual_time import VirtualTime
from taskraft.testing._worker_run import CrashPoint, WorkerRun
from taskraft.testing.clock import Clock, instant_from
from taskraft.testing.errors import TasksLeft

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from types import TracebackType

    from taskraft import Client, Task
    from taskraft.worker import App
    from taskraft.worker.task import TaskFunction

P = ParamSpec("P")
R = TypeVar("R")

TARGET: Final = "memory:7401"
CANCELLATIONS_MAX: Final = 1_000
"""Maximum number of cancellations of each coroutine at the end of a test."""
_UNFINISHED: Final = frozenset({"READY", "DELAYED", "TAKEN", "BLOCKED", "WAITING"})


@dataclass(frozen=True, slots=True)
class RunReport:
    """What happened while the kit ran."""

    attempts: int
    """Number of attempts that handlers of the app began."""
    failures: tuple[Exception, ...]
    """Exceptions of handlers that `expect_failures` expected."""


class AsyncKit:
    """A cluster in memory with a virtual clock.

    Queue, leader and API are the code of the server. The kit replaces the clock of the running
    event loop. While the kit is open, all clients that are created connect to it, whatever their
    target. A call that waits moves the clock, because nothing else can happen.
    """

    def __init__(
        self,
        app: App | None = None,
        *,
        start: datetime | str | None = None,
        auto_create_tubes: bool = False,
        wait_max: Duration = "1d",
    ) -> None:
        """Configure the kit; `async with` starts the cluster.

        Args:
            app: the app whose worker `run_until_idle` and `advance` run.
            start: time of day at the beginning; default: now.
            auto_create_tubes: whether the first put creates a missing tube.
            wait_max: maximum virtual time that a waiting call may skip.
        """
        self._start = instant_from(start, "start")
        self._auto_create_tubes = auto_create_tubes
        self._wait_seconds_max = seconds(wait_max, "wait_max")
        self._app = app
        self._worker: WorkerRun | None = None
        self._expected: list[tuple[tuple[type[Exception], ...], list[Exception]]] = []
        self._undo = ExitStack()

    async def __aenter__(self) -> Self:
        time = self._time = VirtualTime(asyncio.get_running_loop())
        time.wait_seconds_max = self._wait_seconds_max
        time.install()
        self._undo.callback(time.uninstall)
        self._others = asyncio.all_tasks()
        self._undo.enter_context(quiet_server())
        began = time.time()
        self.clock = Clock(self._start, lambda: time.time() - began)
        start_ms = round((self._start.timestamp() - began) * 1_000)
        self.node = memory_node(time, start_ms, auto_create_tubes=self._auto_create_tubes)
        """The node; tests of the kit itself look at it."""
        self._sent = SentTasks(self.node)
        self.network = MemoryNetwork(time, self.node.channel)
        self._networks = [self.network]
        self._undo.enter_context(_network.using(self.network))
        await self.node.start()
        self.client = AsyncClient(TARGET, name="test")
        """A client on the cluster."""
        if self._app is not None:
            await self.use_app(self._app)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the cluster and everything that runs on it."""
        if self._worker is not None:
            self._worker.uninstall()
        for network in self._networks:
            network.kill()
        self.node.depose()
        try:
            await self._cancel_all()
        finally:
            self._undo.close()
        if self.node.broken_by is not None:
            raise self.node.broken_by

    async def _cancel_all(self) -> None:
        """Cancel all coroutines on the cluster; cancel a coroutine again while it still runs.

        Raises:
            RuntimeError: a coroutine ignores its cancellations.
        """
        kept = {*self._others, asyncio.current_task()}
        for _ in range(CANCELLATIONS_MAX):
            left = asyncio.all_tasks() - kept
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.sleep(0)
        raise RuntimeError(f"these coroutines ignore their cancellation: {left}")

    # ------------------------------------------------------------------------------ app

    @property
    def app(self) -> App:
        """The app of the test.

        Raises:
            RuntimeError: the kit has no app.
        """
        return self._run.app

    @property
    def _run(self) -> WorkerRun:
        if self._worker is None:
            raise RuntimeError(
                "the kit has no app; set the option taskraft_app of pytest, mark the test with "
                '@pytest.mark.taskraft(app="module:app"), or call use_app'
            )
        return self._worker

    async def use_app(self, app: App, client: Client | None = None) -> None:
        """Run the worker of this app, and let the app put its tasks into this cluster.

        The tubes of the app are created.
        """
        if self._worker is not None:
            raise RuntimeError("the kit has an app already; include the other app in it")
        self._worker = WorkerRun(app, self._connect)
        self._worker.install(client)
        await app.acreate_tubes()

    def _connect(self) -> tuple[MemoryNetwork, AsyncClient]:
        network = MemoryNetwork(self._time, self.node.channel)
        self._networks.append(network)
        with _network.using(network):
            return network, AsyncClient(TARGET, name="worker")

    # ------------------------------------------------------------------------------ run

    async def run_until_idle(self) -> RunReport:
        """Run everything that can run now, with the worker of the app; the clock stands still.

        Raises:
            ExceptionGroup: exceptions of handlers that `expect_failures` does not name.
            ClockStuck: a handler has run for 30 s of real time.
        """
        return await self._run_until(self._time.time())

    async def advance(self, by: Duration) -> RunReport:
        """Move the clock, and run everything that is due on the way at its time.

        Raises:
            ExceptionGroup, ClockStuck: as for `run_until_idle`.
        """
        return await self._run_until(self._time.time() + seconds(by, "by"))

    async def advance_to(self, instant: datetime | str) -> RunReport:
        """Move the clock to a time of day; see `advance`.

        Raises:
            ValueError: the instant has passed.
        """
        return await self.advance(self.clock.until(instant))

    async def run_until_empty(self, limit: Duration = "30d") -> RunReport:
        """Move the clock from deadline to deadline until no unfinished task is left.

        Raises:
            TasksLeft: tasks are left after `limit`, or nothing will happen to them.
            ExceptionGroup, ClockStuck: as for `run_until_idle`.
        """
        end = self._time.time() + seconds(limit, "limit")
        before = self._begin()
        await self._time.run_until(self._time.time())
        checked = -1
        while True:
            index = self.node.machine.applied_index
            if index != checked:  # something has changed
                left, checked = await self._unfinished(), index
                if not left:
                    break
            due = self._time.next_timer()
            if due is None or due > end:
                shown = ", ".join(f"{task} {task.state}" for task in left[:10])
                raise TasksLeft(f"{len(left)} tasks are not finished: {shown}")
            await self._time.run_until(due)
        return await self._end(before)

    async def run_task(self, task: TaskFunction[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Put a call of a task, run until idle, and return the result."""
        handle = await task.aput(*args, **kwargs)
        await self.run_until_idle()
        return await handle.aresult(0)

    async def _run_until(self, until: float) -> RunReport:
        before = self._begin()
        await self._time.run_until(until)
        return await self._end(before)

    def _begin(self) -> int:
        """Start the worker; return the number of its attempts so far."""
        if self._worker is None:
            return 0
        self._worker.start()
        return self._worker.attempts

    async def _end(self, before: int) -> RunReport:
        """Stop the worker, unless a handler runs."""
        await self.node.keep_house()
        run = self._worker
        if run is None:
            return RunReport(0, ())
        await run.stop_if_idle()
        return RunReport(run.attempts - before, self._check_failures(run.fetch_failures()))

    def _check_failures(self, failures: list[Exception]) -> tuple[Exception, ...]:
        """Return the expected failures; raise the others."""
        unexpected = []
        for failure in failures:
            for kinds, found in self._expected:
                if isinstance(failure, kinds):
                    found.append(failure)
                    break
            else:
                unexpected.append(failure)
        if unexpected:
            raise ExceptionGroup("handlers have failed", unexpected)
        return tuple(failures)

    @contextmanager
    def expect_failures(self, *kinds: type[Exception]) -> Iterator[list[Exception]]:
        """Expect handlers to fail with these exceptions in this block; yields the exceptions.

        Raises:
            AssertionError: no handler has failed with such an exception.
        """
        found: list[Exception] = []
        self._expected.append((kinds or (Exception,), found))
        try:
            yield found
        finally:
            self._expected.pop()
        if not found:
            names = ", ".join(kind.__name__ for kind in kinds)
            raise AssertionError(f"no handler has failed with {names or 'an exception'}")

    # ------------------------------------------------------------------------------ what is there

    async def tasks(self, tube: str) -> list[Task]:
        """Return all tasks of a tube, in their states; finished tasks are there only if kept."""
        return [task async for task in self.client.tube(tube).list()]

    async def states(self, tube: str) -> dict[str, int]:
        """Return the number of tasks of a tube by state; states without tasks are left out."""
        counts: dict[str, int] = {}
        for task in await self.tasks(tube):
            counts[task.state] = counts.get(task.state, 0) + 1
        return counts

    async def _unfinished(self) -> list[Task]:
        names = [tube.name for tube in await self.client.list_tubes()]
        return [
            task for name in names for task in await self.tasks(name) if task.state in _UNFINISHED
        ]

    def sent(self, of: TaskFunction[..., Any] | str | None = None) -> list[Task]:
        """Return the tasks that clients put, in order, finished ones included.

        Args:
            of: only tasks of this function of the app, or of this tube; default: all.
        """
        if of is None or isinstance(of, str):
            return [task for task in self._sent.tasks if of in (None, task.tube)]
        return [task for task in self._sent.tasks if task.message.spec.type == of.name]

    def assert_sent(self, task: TaskFunction[P, Any], *args: P.args, **kwargs: P.kwargs) -> None:
        """Check that a call of a task was put with these arguments.

        Raises:
            AssertionError: no such call was put.
        """
        payload = task.payloads.encode(args, kwargs)
        found = [each.payload for each in self.sent(task)]
        assert payload in found, f"{task.name} was not put with {payload!r}, only with {found!r}"

    # ------------------------------------------------------------------------------ faults

    def crash_worker(self) -> None:
        """Kill the worker of the app now; its tasks stay TAKEN until its session has expired."""
        self._run.kill()

    @contextmanager
    def crash(self, at: CrashPoint) -> Iterator[None]:
        """Kill the worker in the first attempt of this block, before or after its handler.

        Raises:
            AssertionError: no attempt reached this point.
        """
        run = self._run
        run.crash_at = at
        try:
            yield
        finally:
            was_reached, run.crash_at = run.crash_at is None, None
        assert was_reached, f"no attempt has reached {at}"

    def fail(self, task: TaskFunction[..., Any], *errors: Exception) -> None:
        """Raise errors in the next attempts of a task, one in each, instead of its handler."""
        self._run.inject(task, errors)

    async def change_leader(self, after: Duration = 0) -> None:
        """Lose the leader and elect the next one `after` some time.

        Streams end, and waiting calls go to the next leader. Tasks of temporary tubes are lost.
        """
        self.node.depose()
        if pause := seconds(after, "after"):
            await self._time.run_until(self._time.time() + pause)
        self.node.elect()
        await self.node.wait_until_serving()

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Break the connections of all clients, and refuse new ones in this block."""
        for network in self._networks:
            network.cut()
        try:
            yield
        finally:
            for network in self._networks:
                network.restore()

    @contextmanager
    def lost_answers(self) -> Iterator[None]:
        """Execute the calls of this block and lose their answers."""
        for network in self._networks:
            network.lose_answers(is_lossy=True)
        try:
            yield
        finally:
            for network in self._networks:
                network.lose_answers(is_lossy=False)
