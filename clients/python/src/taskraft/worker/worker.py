"""The life of a worker: start, run, drain, end."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from typing import TYPE_CHECKING, Any, Final

from taskraft import _network
from taskraft._arguments import check_known, whole_number
from taskraft._clock import monotonic
from taskraft._credit import WAITING_HANDLERS_MAX
from taskraft._deadlines import Deadlines
from taskraft._durations import seconds
from taskraft._guarded_call import cancellation_of_current_task
from taskraft.worker.dependencies import Providers
from taskraft.worker.deployment import Deployment
from taskraft.worker.errors import WorkerStopping
from taskraft.worker.handler_run import HandlerRun, Surroundings
from taskraft.worker.health import (
    LoopWatch,
    Pages,
    ProbeServer,
    WorkerHealth,
    WorkerState,
    address_of,
    health_pages,
)
from taskraft.worker.life_cycle import (
    HAND_BACK_SECONDS,
    ExitReason,
    LifeCycle,
    Phase,
    StoppedEarly,
)
from taskraft.worker.options import (
    ASYNC_SLOTS_DEFAULT,
    CANCEL_GRACE_DEFAULT,
    GRACE_DEFAULT,
    START_TIMEOUT_DEFAULT,
    THREADS_DEFAULT,
    WorkerOptions,
)
from taskraft.worker.pools import BatchPool, Consumer, Pool, Receiver
from taskraft.worker.process_pool import ProcessLimits, ProcessPool
from taskraft.worker.selection import (
    chosen_consumers,
    chosen_tasks,
    chosen_urgency,
    chosen_weights,
    urgent_slots,
)
from taskraft.worker.slots import PoolSlots
from taskraft.worker.thread_pool import ThreadPool
from taskraft.worker.watchdog import Watchdog, worker_watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from taskraft import AsyncClient
    from taskraft.worker.app import App
    from taskraft.worker.metrics import WorkerMetrics

log = logging.getLogger("taskraft.worker")

LIFETIME_SHARE_MIN: Final = 0.9
"""Minimum share of `max_lifetime` that a worker runs. The share is random, so that workers that
start together end at different times."""


class Worker:
    """Runs the tasks of an app until it is asked to stop."""

    def __init__(self, app: App, options: WorkerOptions) -> None:
        """Choose the tasks to run.

        Raises:
            TypeError: an option is unknown.
            ValueError: no task of the app is chosen, or an option cannot be used.
        """
        check_known(options, WorkerOptions, "a worker has no option")
        self._app = app
        self._grace = seconds(options.get("grace", GRACE_DEFAULT), "grace")
        self._cancel_grace = seconds(
            options.get("cancel_grace", CANCEL_GRACE_DEFAULT), "cancel_grace"
        )
        self.life: Final = LifeCycle(self._grace, self._cancel_grace)
        """Life cycle of the run."""
        self._start_timeout = options.get("start_timeout", START_TIMEOUT_DEFAULT)
        self._lifetime = None
        if "max_lifetime" in options:
            self._lifetime = seconds(options["max_lifetime"], "max_lifetime")
        self._has_signals = options.get("signals", True)
        self._threads = whole_number("threads", options.get("threads", THREADS_DEFAULT), 1, 10_000)
        processes = whole_number("processes", options.get("processes", processors()), 1, 1_000)
        coroutines = options.get("async_slots", ASYNC_SLOTS_DEFAULT)
        sizes = {
            "async": whole_number("async_slots", coroutines, 1, 100_000),
            "thread": self._threads,
            "process": processes,
        }
        self._tasks = chosen_tasks(app, options)
        self._urgent_bound, urgent = chosen_urgency(options)
        self._slots = {
            pool: PoolSlots(slots, urgent_slots(self._tasks, pool, slots, urgent))
            for pool, slots in sizes.items()
        }
        self._weights = chosen_weights(self._tasks, options)
        self._receivers = self._receivers_of(chosen_consumers(app, options))
        if not self._receivers:
            raise ValueError(f"the app {app.name} has no task in these tubes")
        self._client: AsyncClient | None = None
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start: asyncio.Timeout | None = None
        self._watchdog: Watchdog | None = None
        self.started: Final = asyncio.Event()
        """Set when the worker takes tasks."""
        self.ports: Final[list[int]] = []
        """Ports of the probe servers, in the order health, metrics."""
        self._health = WorkerHealth(
            app.name,
            lambda: all(one.is_connected for one in self._receivers),
            lambda: self._processes is None or not self._processes.is_down,
        )
        self._metrics = self._metrics_of(options)
        self._servers = self._probe_servers(options)
        self._processes = self._process_pool(processes, options)

    def _metrics_of(self, options: WorkerOptions) -> WorkerMetrics | None:
        if "metrics" not in options:
            return None
        try:
            from taskraft.worker.metrics import WorkerMetrics  # noqa: PLC0415 - optional dependency
        except ImportError as error:
            raise ValueError(
                "metrics need prometheus_client: pip install 'taskraft[metrics]'"
            ) from error
        receivers = self._receivers
        return WorkerMetrics(
            self._health,
            self._slots,
            reconnects=lambda: sum(one.reconnects for one in receivers),
            failovers=lambda: self._client.failovers if self._client is not None else 0,
        )

    def _probe_servers(self, options: WorkerOptions) -> dict[tuple[str, int], Pages]:
        """Return the pages to serve, by address."""
        servers: dict[tuple[str, int], Pages] = {}
        if "health" in options:
            servers[address_of("health", options["health"])] = health_pages(self._health)
        if self._metrics is not None:
            pages = servers.setdefault(address_of("metrics", options["metrics"]), {})
            pages["/metrics"] = self._metrics.page
        return servers

    def _receivers_of(self, consumers: Sequence[Consumer]) -> list[Receiver]:
        receivers: list[Receiver] = list(consumers)
        for name, slots in self._slots.items():
            tasks = [task for task in self._tasks if task.pool == name]
            single = [task for task in tasks if task.batch is None]
            unlimited = [task for task in single if task.concurrency is None]
            if unlimited:
                receivers.append(Pool(unlimited, slots, self._weights))
            if unlimited and slots.urgent:
                bound = self._urgent_bound
                receivers.append(Pool(unlimited, slots, self._weights, urgent_bound=bound))
            receivers += [
                Pool([task], slots, self._weights, concurrency=task.concurrency)
                for task in single
                if task.concurrency is not None
            ]
            receivers += [BatchPool(task, slots) for task in tasks if task.batch is not None]
        return receivers

    def _process_pool(self, size: int, options: WorkerOptions) -> ProcessPool | None:
        tasks = [task for task in self._tasks if task.pool == "process"]
        if not tasks:
            return None
        limits = ProcessLimits(
            _limit("max_tasks", options.get("max_tasks")),
            _limit("max_memory", options.get("max_memory")),
        )
        return ProcessPool(self._app, tasks, size, limits, grace_seconds=self._cancel_grace)

    @property
    def is_starting(self) -> bool:
        """Whether the worker does not take tasks yet."""
        return self._health.state is WorkerState.STARTING

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was asked to end."""
        return self.life.is_stopping

    def watched(self) -> AbstractContextManager[Watchdog | None]:
        """While the block runs, let a signal stop the worker; not if `signals` is False.

        Raises:
            ValueError: this is not the main thread.
        """
        self._loop = asyncio.get_running_loop()
        if not self._has_signals:
            return nullcontext()
        return self._watched()

    @contextmanager
    def _watched(self) -> Iterator[Watchdog]:
        with worker_watched(self) as watchdog:
            self._watchdog = watchdog
            try:
                yield watchdog
            finally:
                self._watchdog = None

    @asynccontextmanager
    async def until_stopped(self) -> AsyncIterator[None]:
        """Cancel the block as soon as the worker is asked to stop.

        Raises:
            StoppedEarly: the worker was asked to stop before the end of the block.
        """
        if self.is_stopping:
            raise StoppedEarly
        try:
            async with asyncio.timeout(None) as self._start:
                yield
        except TimeoutError:
            if self._start is None or not self._start.expired():
                raise
        finally:
            self._start = None
        if self.is_stopping:
            raise StoppedEarly

    async def run(self) -> ExitReason:
        """Run until a signal, the end of the lifetime, or until half of the threads are stuck.

        A worker that was stopped before its run does not connect to the cluster.

        Raises:
            StoppedEarly: the worker was asked to stop before it took tasks.
            TaskraftError: the cluster was not reachable at the start, or a subscription failed.
        """
        if self.is_stopping:
            raise StoppedEarly
        self._reach(Phase.WAITING)
        threads = ThreadPool(self._threads + WAITING_HANDLERS_MAX)
        try:
            with ExitStack() as stack:
                for address, pages in self._servers.items():
                    server = stack.enter_context(ProbeServer(address, pages))
                    self.ports.append(server.port)
                if _network.current().is_watched:
                    stack.enter_context(LoopWatch(self._health, asyncio.get_running_loop()))
                client = stack.enter_context(self._app.clients.lent_to_threads())
                return await self._run(client, threads)
        finally:
            self._health.enter(WorkerState.STOPPED)
            threads.close()

    async def _run(self, client: AsyncClient, threads: ThreadPool) -> ExitReason:
        self._client = client
        providers = Providers(self._app.overrides)
        shared = Surroundings(
            client,
            providers,
            self._app.middleware,
            threads,
            self._processes,
            Deadlines(HandlerRun.time_limit_passed),
            self._cancel_grace,
            lambda _: None,
            self._metrics,
            cancellation_of_current_task(),
        )
        async with AsyncExitStack() as stack:
            stack.push_async_callback(providers.close)
            async with self.until_stopped():
                await self._open(client, stack)
            self._reach(Phase.WORKING)
            working = [asyncio.create_task(one.work(shared)) for one in self._receivers]
            log.info("%s: running %d tasks", self._app.name, len(self._tasks))
            self._health.enter(WorkerState.RUNNING)
            self.started.set()
            try:
                reason = await self._until_end(working)
            except BaseException:
                await self._interrupt("the worker was cancelled, or a subscription has failed")
                raise
            finally:
                for one in working:
                    one.cancel()
                await asyncio.gather(*working, return_exceptions=True)
            log.info("%s: %s", self._app.name, reason.name)
            return reason

    async def _open(self, client: AsyncClient, stack: AsyncExitStack) -> None:
        """Wait for the cluster, start the processes, and open the subscriptions."""
        deployment = Deployment(self._app, client, self._start_timeout)
        await deployment.create_tubes()
        await deployment.create_schedules()
        if self._processes is not None:
            stack.push_async_callback(self._processes.close)
            await self._processes.start()
        for receiver in self._receivers:
            await receiver.open(client, stack)

    async def _until_end(self, working: Sequence[asyncio.Task[None]]) -> ExitReason:
        stopping = asyncio.create_task(self._stopping.wait())
        stuck = [asyncio.create_task(slots.half_is_stuck.wait()) for slots in self._slots.values()]
        try:
            done, _ = await asyncio.wait(
                [stopping, *stuck, *working],
                timeout=self._lifetime_left(),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for waiting in (stopping, *stuck):
                waiting.cancel()
        if not done:
            log.info("%s: the maximum lifetime is over", self._app.name)
        for one in working:
            if one in done:
                one.result()  # raises the error of a failed subscription
        reason = await self._drain()
        return ExitReason.THREADS_STUCK if done.intersection(stuck) else reason

    def _lifetime_left(self) -> float | None:
        if self._lifetime is None:
            return None
        return self._lifetime * random.uniform(LIFETIME_SHARE_MIN, 1.0)  # noqa: S311 - no secret

    def stop(self) -> None:
        """Ask the worker to drain and to end; before it takes tasks, it ends at once."""
        self._note_stop()
        self._stopping.set()
        if self._start is not None and not self._start.expired():
            self._start.reschedule(monotonic())

    def _reach(self, phase: Phase) -> None:
        self.life.reach(phase)
        if self._watchdog is not None:  # code of the app has run since the phase before
            self._watchdog.take_pipe()

    def _note_stop(self) -> None:
        self.life.stop(monotonic())
        if self._watchdog is not None:
            self._watchdog.arm()

    def request_stop(self) -> None:
        """Call `stop` on the event loop of the worker, from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.stop)

    def kill_processes(self) -> None:
        """Kill the processes of the worker, from any thread, without waiting."""
        if self._processes is not None:
            self._processes.kill()

    def handlers(self) -> list[asyncio.Task[None]]:
        """Return the asyncio tasks of the handlers that have not ended."""
        return [task for receiver in self._receivers for task in tuple(receiver.running)]

    async def _drain(self) -> ExitReason:
        self._note_stop()
        self._health.enter(WorkerState.DRAINING)
        log.info("%s: draining, for at most %g s", self._app.name, self._grace)
        for receiver in self._receivers:
            for handler in receiver.running.values():
                handler.note_stopping()
        began = monotonic()
        receiving = asyncio.gather(*(receiver.stop() for receiver in self._receivers))
        waited: list[asyncio.Future[Any]] = [receiving]
        _, late = await asyncio.wait(waited, timeout=self._grace)
        if running := self.handlers():
            left = max(began + self._grace - monotonic(), 0)
            _, late = await asyncio.wait([*waited, *running], timeout=left)
        if receiving.done():
            receiving.result()  # raises the error of a failed subscription
        if not late:
            return ExitReason.DRAINED
        receiving.cancel()
        await self._interrupt("the worker stops, and its grace is over")
        return ExitReason.GRACE_OVER

    async def _interrupt(self, cause: str) -> None:
        """Interrupt all handlers, and wait until they have handed their tasks back."""
        self._note_stop()
        running = self.handlers()
        for receiver in self._receivers:
            for handler in list(receiver.running.values()):
                handler.interrupt(WorkerStopping(cause))
        if not running:
            return
        _, deaf = await asyncio.wait(running, timeout=self._cancel_grace + HAND_BACK_SECONDS)
        for one in deaf:
            log.warning("%s: a handler ignores its cancellation: %r", self._app.name, one)


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _limit(name: str, value: int | None) -> int | None:
    return None if value is None else whole_number(name, value, 1, 2**63)
