"""An application: its tasks, its tubes, and the connection to the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from taskraft import errors
from taskraft.worker.clients import AppClients
from taskraft.worker.declarations import Declarations, Lifespan
from taskraft.worker.deployment import Change, Deployment, UnknownType
from taskraft.worker.flows import AppGroup
from taskraft.worker.life_cycle import ExitReason, StoppedEarly
from taskraft.worker.options import TaskOptions, WorkerOptions
from taskraft.worker.task import Plan, TaskFunction

if TYPE_CHECKING:
    from types import TracebackType

    from taskraft import AsyncClient, Client, Duration
    from taskraft.credentials import AccessOptions
    from taskraft.worker.codecs import Codec
    from taskraft.worker.handle import Handle
    from taskraft.worker.middleware import Middleware
    from taskraft.worker.worker import Worker

R = TypeVar("R")
log = logging.getLogger("taskraft.worker")


class App(Declarations):
    """Tasks of one program, which producers put and workers run.

    Creating an app connects to nothing. Use an app as a context manager, or call `close` or
    `aclose`, in a program that puts tasks; `run` closes the connections that it opens.
    """

    def __init__(
        self,
        name: str,
        *,
        target: str | None = None,
        client: Client | AsyncClient | None = None,
        codec: Codec | None = None,
        middleware: Sequence[Middleware] = (),
        defaults: TaskOptions | None = None,
        **access: Unpack[AccessOptions],
    ) -> None:
        """Configure the app.

        Args:
            name: shown in logs.
            target: addresses of nodes; default: TASKRAFT_TARGET, else 127.0.0.1:7401.
            client: used instead of a new client; the caller closes it.
            codec: encodes arguments and results; default: chosen by the types of each task.
            middleware: wraps all puts and handlers; the first one is the outermost.
            defaults: options of tasks that do not set them.
            **access: certificates and token, see `AccessOptions`.
        """
        super().__init__(name, AppClients(target, access), codec, middleware, defaults or {})
        if client is not None:
            self.clients.use(client)
        self._worker: Worker | None = None
        self._is_stop_requested = False

    # --------------------------------------------------------------------------- deployment

    async def acreate_tubes(self, *, timeout: Duration | None = None) -> None:  # noqa: ASYNC109 - sent to the server
        """Create the tubes of the tasks that do not exist; a worker does so at its start.

        Existing tubes stay as they are. Without the right to create tubes, all tubes must exist.
        """
        await Deployment(self, self.clients.here(), timeout).create_tubes()

    def create_tubes(self, *, timeout: Duration | None = None) -> None:
        """Do the same as `acreate_tubes`, without an event loop."""
        self.clients.run(Deployment(self, self.clients.blocking_inner(), timeout).create_tubes())

    async def aapply(
        self,
        *,
        prune: bool = False,
        dry_run: bool = False,
        timeout: Duration | None = None,  # noqa: ASYNC109 - sent to the server
    ) -> list[Change]:
        """Bring the declared tubes and schedules into force; return what has changed.

        Call it once per deployment: a worker only creates what is missing, because workers of two
        versions would undo each other's changes. Tubes are never deleted, and a paused schedule
        stays paused.

        Args:
            prune: True: delete the schedules that this app has created and does not declare any
                more; False: keep them.
            dry_run: True: change nothing; return what would change.
            timeout: time limit of each call, retries included.
        """
        deployment = Deployment(self, self.clients.here(), timeout)
        return await deployment.apply(prune=prune, dry_run=dry_run)

    def apply(
        self, *, prune: bool = False, dry_run: bool = False, timeout: Duration | None = None
    ) -> list[Change]:
        """Do the same as `aapply`, without an event loop."""
        deployment = Deployment(self, self.clients.blocking_inner(), timeout)
        return self.clients.run(deployment.apply(prune=prune, dry_run=dry_run))

    async def aunknown_types(self, *, timeout: Duration | None = None) -> list[UnknownType]:  # noqa: ASYNC109 - sent to the server
        """Return the types of READY tasks in the app's tubes that the app does not declare.

        No worker of this app takes such tasks. The call reads all READY tasks of these tubes.
        """
        return await Deployment(self, self.clients.here(), timeout).unknown_types()

    def unknown_types(self, *, timeout: Duration | None = None) -> list[UnknownType]:
        """Do the same as `aunknown_types`, without an event loop."""
        return self.clients.run(
            Deployment(self, self.clients.blocking_inner(), timeout).unknown_types()
        )

    # -------------------------------------------------------------------------------- puts

    def put_many(
        self, plans: Iterable[Plan[R]], *, timeout: Duration | None = None
    ) -> list[Handle[R]]:
        """Put planned calls in few messages, and return their handles in order.

        The calls may be of several tasks. Each call is put on its own: if some are refused, the
        others are put. Middlewares see no planned calls.

        Args:
            plans: made by `TaskFunction.plan`.
            timeout: time limit of each message, retries included.

        Raises:
            ItemsRefused: some calls were refused.
            RuntimeError: an event loop runs in this thread; use `aput_many`.
        """
        return self.clients.run(self._put_many(self.clients.blocking_inner(), plans, timeout))

    async def aput_many(
        self,
        plans: Iterable[Plan[R]],
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - sent to the server
    ) -> list[Handle[R]]:
        """Do the same as `put_many`, in asyncio."""
        return await self._put_many(self.clients.here(), plans, timeout)

    async def _put_many(
        self,
        client: AsyncClient,
        plans: Iterable[Plan[R]],
        timeout: Duration | None,  # noqa: ASYNC109 - sent to the server
    ) -> list[Handle[R]]:
        planned = list(plans)
        by_tube: dict[str, list[int]] = {}
        for place, plan in enumerate(planned):
            by_tube.setdefault(plan.tube, []).append(place)
        ids = [0] * len(planned)
        refused: dict[int, errors.TaskraftError] = {}
        for tube, places in by_tube.items():
            try:
                put = await client.tube(tube).put_many(
                    [planned[place] for place in places], timeout=timeout
                )
            except errors.ItemsRefused as some:
                put = list(some.task_ids)
                refused |= {places[item]: error for item, error in some.refused.items()}
            for place, task_id in zip(places, put, strict=True):
                ids[place] = task_id
        if refused:
            raise errors.ItemsRefused(refused, task_ids=ids, items=len(planned))
        return [plan.task.handle(task_id) for plan, task_id in zip(planned, ids, strict=True)]

    def group(
        self, name: str, *, then: Plan[Any] | None = None, on_failure: Plan[Any] | None = None
    ) -> AppGroup:
        """Return a group of tasks of any number, as `async with app.group("book-1", then=...)`.

        The tasks that are put in the block start at its end. An exception in the block cancels
        them. The server puts the end task together with the end of the last task.

        Args:
            name: name of the group, new in the cluster for one day.
            then: call to put when all tasks have ended; with `on_failure`, only if all of them were
                acknowledged.
            on_failure: call to put instead if a task has failed or the group was cancelled.
        """
        return AppGroup(self, name, then, on_failure)

    def use(self, client: Client | AsyncClient) -> None:
        """Use this client from now on; the caller closes it."""
        self.clients.use(client)

    # ------------------------------------------------------------------------------ running

    def handle(self, reference: str, task: TaskFunction[..., R]) -> Handle[R]:
        """Return the handle of a task from its text form, such as "mail/17"."""
        tube, _, task_id = reference.rpartition("/")
        if tube != task.tube or not task_id.isdecimal():
            raise ValueError(f"{reference!r} is no task of {task.name}: expected {task.tube}/ID")
        return task.handle(int(task_id))

    def run(self, **options: Unpack[WorkerOptions]) -> Coroutine[Any, Any, ExitReason]:
        """Run a worker until a signal, and return why it ended; see `WorkerOptions`.

        Raises:
            TypeError: an option is unknown.
            ValueError: an option cannot be used, or no task of the app is chosen.
            TaskraftError: the cluster was not reachable at the start, or a subscription failed.
        """
        from taskraft.worker.worker import Worker  # noqa: PLC0415 - producers need no worker

        # The worker exists before the coroutine begins, so that `stop` reaches a scheduled run.
        worker = self._worker = Worker(self, options)
        if self._is_stop_requested:
            self._is_stop_requested = False
            worker.stop()
        return self._run(worker)

    async def _run(self, worker: Worker) -> ExitReason:
        with worker.watched():
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self.clients.close_here)
                with suppress(StoppedEarly):  # inside of the stack: no lifespan sees an exception
                    async with worker.until_stopped():
                        for lifespan in self.lifespans:
                            await stack.enter_async_context(_managed(lifespan, self))
                    return await worker.run()
                log.info("%s: stopped before the worker took tasks", self.name)
                return ExitReason.DRAINED

    @asynccontextmanager
    async def running(self, **options: Unpack[WorkerOptions]) -> AsyncIterator[None]:
        """Run a worker in the background of the block; at the end of the block, it drains.

        The block begins when the worker takes tasks. Signals are left to the program, unless
        `signals=True`. A worker that fails during the block is logged; the end of the block raises
        its error.

        Raises:
            TypeError: an option is unknown.
            ValueError: an option cannot be used, or no task of the app is chosen.
            TaskraftError: the cluster was not reachable at the start, or a subscription failed.
        """
        options.setdefault("signals", False)
        run = asyncio.create_task(self.run(**options))
        assert self._worker is not None  # `run` creates the worker at once
        worker = self._worker
        started = asyncio.create_task(worker.started.wait())
        try:
            await asyncio.wait([run, started], return_when=asyncio.FIRST_COMPLETED)
            if run.done():
                run.result()  # raises the error of a failed start
            run.add_done_callback(self._log_failure)
            yield
        finally:
            started.cancel()
            worker.stop()
            await run

    def _log_failure(self, run: asyncio.Task[ExitReason]) -> None:
        if not run.cancelled() and run.exception() is not None:
            log.error("%s: the worker has failed", self.name, exc_info=run.exception())

    def stop(self) -> None:
        """Ask the worker of this app to drain and to end; call it on the worker's event loop.

        A call before the first `run` ends that run at once. A call after the end of a run has no
        effect.
        """
        if self._worker is None:
            self._is_stop_requested = True
        else:
            self._worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close the connections that the app has opened for programs without an event loop."""
        self.clients.close()

    async def aclose(self) -> None:
        """Close the connection that the app has opened for this event loop."""
        await self.clients.close_here()


def _managed(lifespan: Lifespan, app: App) -> AbstractAsyncContextManager[None]:
    return asynccontextmanager(lifespan)(app)
