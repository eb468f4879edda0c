"""The test kit for coroutines: a cluster with a clock, a client and a worker."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from taskraft._async_client import AsyncClient
from taskraft._durations import Duration, seconds
from taskraft.testing._memory_backend import TARGET, MemoryBackend
from taskraft.testing._real_backend import RealBackend
from taskraft.testing._worker_run import CrashPoint, WorkerRun
from taskraft.testing.clock import Clock, instant_from
from taskraft.testing.errors import TasksLeft, not_in_real

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime
    from types import TracebackType

    from taskraft import Client, Task
    from taskraft.testing._backend import Backend
    from taskraft.testing.real_cluster import RealCluster
    from taskraft.worker import App
    from taskraft.worker.handle import Handle
    from taskraft.worker.task import TaskFunction

P = ParamSpec("P")
R = TypeVar("R")

_UNFINISHED: Final = frozenset({"READY", "DELAYED", "TAKEN", "HELD"})


@dataclass(frozen=True, slots=True)
class RunReport:
    """Attempts and expected failures of handlers while the kit ran."""

    attempts: int
    """Number of attempts that handlers of the app began."""
    failures: tuple[Exception, ...]
    """Exceptions of handlers that `expect_failures` expected."""


class AsyncKit:
    """A cluster in memory with a virtual clock, or a real node.

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
        cluster: RealCluster | None = None,
    ) -> None:
        """Configure the kit; `async with` starts the cluster.

        Args:
            app: the app whose worker `run_until_idle` and `advance` run.
            start: time of day at the beginning; default: now.
            auto_create_tubes: whether the first put creates a missing tube.
            wait_max: maximum virtual time that a waiting call may skip.
            cluster: use this real node, with the real clock; the node is emptied first.

        Raises:
            NotInReal: a real node has the real time.
        """
        began = instant_from(start, "start")
        wait_seconds_max = seconds(wait_max, "wait_max")
        self._backend: Backend
        if cluster is None:
            self._backend = MemoryBackend(
                began, auto_create_tubes=auto_create_tubes, wait_seconds_max=wait_seconds_max
            )
        elif start is None:
            self._backend = RealBackend(cluster, auto_create_tubes=auto_create_tubes)
        else:
            raise not_in_real("a given start of the clock")
        self._app = app
        self._worker: WorkerRun | None = None
        self._expected: list[tuple[tuple[type[Exception], ...], list[Exception]]] = []

    async def __aenter__(self) -> Self:
        await self._backend.open()
        self._time = self._backend.time
        self.clock = Clock(self._backend.start, self._time.time)
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
        await self._backend.close()

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
        self._worker = WorkerRun(app, self._backend, self.client)
        self._worker.install(client)
        await app.acreate_tubes()

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
        await self._backend.run_until(self._time.time(), self._worker)
        while left := await self._unfinished():
            due = await self._backend.next_due(end)
            if due is None:
                shown = ", ".join(f"{task} {task.state}" for task in left[:10])
                raise TasksLeft(f"{len(left)} tasks are not finished: {shown}")
            await self._backend.run_until(due, self._worker)
        return await self._end(before)

    async def run_task(self, task: TaskFunction[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Put a call of a task, run until idle, and return the result."""
        handle = await task.aput(*args, **kwargs)
        await self.run_until_idle()
        return await handle.aresult(0)

    async def _run_until(self, until: float) -> RunReport:
        before = self._begin()
        await self._backend.run_until(until, self._worker)
        return await self._end(before)

    def _begin(self) -> int:
        """Start the worker; return the number of its attempts so far."""
        if self._worker is None:
            return 0
        self._worker.start()
        return self._worker.attempts

    async def _end(self, before: int) -> RunReport:
        """Stop the worker, unless a handler runs."""
        await self._backend.keep_house()
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
        """Return all tasks of a tube in their states; finished tasks only if they were kept."""
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
            return [task for task in self._backend.sent.tasks if of in (None, task.tube)]
        return [task for task in self._backend.sent.tasks if task.message.spec.type == of.name]

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
        """Kill the worker in the first attempt of this block.

        Args:
            at: before the handler runs (`before_run`), at its first pause (`in_run`), after its
                end (`before_ack`), or after its outcome has reached the cluster (`after_ack`).

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

    async def lose_lease(self, task: Handle[Any] | Task) -> None:
        """Take a TAKEN task from its holder; the task is READY again.

        Raises:
            WrongState: the task is not TAKEN.
        """
        await self.client.tube(task.tube).snatch(task.id)

    async def change_leader(self, after: Duration = 0) -> None:
        """Lose the leader and elect the next one `after` some time.

        Streams end, and waiting calls go to the next leader. Tasks of temporary tubes are lost. A
        real node is stopped and started again.
        """
        await self._backend.change_leader(seconds(after, "after"))

    def threads_ignored(self) -> AbstractContextManager[None]:
        """Let the clock move in this block although handlers in threads and processes run.

        Use the block for handlers that hang until their time limit.
        """
        return self._backend.threads_ignored()

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Break the connections of all clients, and refuse new ones in this block."""
        self._backend.cut()
        try:
            yield
        finally:
            self._backend.restore()

    @contextmanager
    def lost_answers(self) -> Iterator[None]:
        """Execute the calls of this block and lose their answers."""
        self._backend.lose_answers(is_lossy=True)
        try:
            yield
        finally:
            self._backend.lose_answers(is_lossy=False)
