"""Declarations of an application: tasks, tubes, consumers and lifespans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from taskraft._arguments import check_known, texts, whole_number
from taskraft._async_work import AsyncHandler
from taskraft._durations import seconds
from taskraft._tube_settings import Kind, TubeSettings, create_request
from taskraft.worker.clients import AppClients
from taskraft.worker.context import Context
from taskraft.worker.errors import InvalidTask
from taskraft.worker.options import (
    BATCH_SIZE_DEFAULT,
    BATCH_SIZE_MAX,
    CONCURRENCY_MAX,
    LINGER_DEFAULT,
    BatchOptions,
    ConsumerOptions,
    TaskOptions,
    check_tube_name,
)
from taskraft.worker.signature import check_runs
from taskraft.worker.task import BatchDecorator, TaskDecorator, TaskFunction

if TYPE_CHECKING:
    from taskraft import Duration
    from taskraft.worker.app import App
    from taskraft.worker.codecs import Codec
    from taskraft.worker.middleware import Middleware

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Lifespan: TypeAlias = "Callable[[App], AsyncIterator[None]]"


class Declarations:
    """The tasks, tubes, consumers and lifespans that a program declares; the base of `App`."""

    def __init__(
        self,
        name: str,
        clients: AppClients,
        codec: Codec | None,
        middleware: Sequence[Middleware],
        defaults: TaskOptions,
    ) -> None:
        """Store the clients of handles and the options of tasks; see `App`."""
        self.name: Final = name
        self.clients: Final = clients
        self.codec: Final = codec
        self.middleware: Final = tuple(middleware)
        self.defaults: Final = defaults
        self.tasks: Final[dict[str, TaskFunction[..., Any]]] = {}
        """Tasks by the type that the server knows."""
        self.tubes: Final[dict[str, tuple[Kind, TubeSettings]]] = {}
        """Kind and settings of the declared tubes by name."""
        self.consumers: Final[list[tuple[str, AsyncHandler, ConsumerOptions]]] = []
        """Tubes with the handlers of untyped tasks."""
        self.overrides: Final[dict[Callable[..., Any], Callable[..., Any]]] = {}
        """Providers to use instead of others, for tests."""
        self.lifespans: Final[list[Lifespan]] = []
        """Async generators to run around a worker, and around each process of its pool."""

    @overload
    def task(self, f: Callable[Concatenate[Context, P], Awaitable[R]], /) -> TaskFunction[P, R]: ...
    @overload
    def task(self, f: Callable[Concatenate[Context, P], R], /) -> TaskFunction[P, R]: ...
    @overload
    def task(self, f: Callable[P, Awaitable[R]], /) -> TaskFunction[P, R]: ...
    @overload
    def task(self, f: Callable[P, R], /) -> TaskFunction[P, R]: ...
    @overload
    def task(self, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(  # type: ignore[misc]  # mypy does not match options with an absent function
        self, f: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]
    ) -> Any:
        """Turn a function into a task, as `@app.task` or `@app.task(tube="mail")`.

        The worker does not retry by itself: the retry policy of the tube or of the task decides.

        Raises:
            InvalidTask: the function or an option cannot be used, or the name is in use.
        """
        if f is not None:
            return self._add(f, options)
        return lambda function: self._add(function, options)

    @overload
    def batch_task(
        self, f: Callable[[Context, list[T]], Awaitable[list[R]]], /
    ) -> TaskFunction[[T], R]: ...
    @overload
    def batch_task(
        self, f: Callable[[Context, list[T]], Awaitable[None]], /
    ) -> TaskFunction[[T], None]: ...
    @overload
    def batch_task(self, f: Callable[[Context, list[T]], list[R]], /) -> TaskFunction[[T], R]: ...
    @overload
    def batch_task(self, f: Callable[[Context, list[T]], None], /) -> TaskFunction[[T], None]: ...
    @overload
    def batch_task(self, f: Callable[[list[T]], Awaitable[list[R]]], /) -> TaskFunction[[T], R]: ...
    @overload
    def batch_task(self, f: Callable[[list[T]], Awaitable[None]], /) -> TaskFunction[[T], None]: ...
    @overload
    def batch_task(self, f: Callable[[list[T]], list[R]], /) -> TaskFunction[[T], R]: ...
    @overload
    def batch_task(self, f: Callable[[list[T]], None], /) -> TaskFunction[[T], None]: ...
    @overload
    def batch_task(
        self, *, size: int = ..., linger: Duration = ..., **options: Unpack[TaskOptions]
    ) -> BatchDecorator: ...
    def batch_task(  # type: ignore[misc]  # mypy does not match options with an absent function
        self,
        f: Callable[..., Any] | None = None,
        /,
        *,
        size: int = BATCH_SIZE_DEFAULT,
        linger: Duration = LINGER_DEFAULT,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """Turn a function over a list into a task of one item; the worker collects the items.

        Use it as `@app.batch_task` or `@app.batch_task(size=10)`.

        The function returns None, or a list with one result for each item. It raises `BatchError`
        if only some items have failed; any other exception fails all items of the batch.

        Args:
            f: the function, if the decorator has no options.
            size: maximum number of items of one call.
            linger: maximum wait for more items after the first one.
            **options: see `TaskOptions`; `payload` and the pool "process" cannot be used.

        Raises:
            InvalidTask: the function or an option cannot be used, or the name is in use.
        """
        try:
            batch = BatchOptions(
                whole_number("size", size, 1, BATCH_SIZE_MAX), seconds(linger, "linger")
            )
        except (TypeError, ValueError) as error:
            raise InvalidTask(f"a batch task: {error}") from error

        def decorate(function: Callable[..., Any]) -> TaskFunction[..., Any]:
            return self._add(function, options, batch)

        return decorate if f is None else decorate(f)

    def consumer(
        self, tube: str, **options: Unpack[ConsumerOptions]
    ) -> Callable[[AsyncHandler], AsyncHandler]:
        """Run a coroutine function for tasks of other programs, as `@app.consumer("orders")`.

        The function gets the leased task, whose payload is not decoded. The return value is stored
        as the result; see `AsyncSubscription.work`. Retries and time limits are those of the tube.
        A consumer takes tasks of all types unless `types` names some, also those of `app.task`.

        Raises:
            InvalidTask: the name of the tube or an option is not valid, or the function is a
                generator.
        """
        _check_tube_name(tube)
        try:
            _check_consumer(options)
        except (TypeError, ValueError) as error:
            raise InvalidTask(f"the consumer of {tube}: {error}") from error

        def decorate(handler: AsyncHandler) -> AsyncHandler:
            check_runs(handler, f"the consumer of {tube}")
            self.consumers.append((tube, handler, options))
            return handler

        return decorate

    def _add(
        self,
        function: Callable[..., Any],
        options: TaskOptions,
        batch: BatchOptions | None = None,
    ) -> TaskFunction[..., Any]:
        merged = cast("TaskOptions", {**self.defaults, **options})
        task: TaskFunction[..., Any] = TaskFunction(self, function, merged, batch)
        if task.name in self.tasks:
            raise InvalidTask(f"a task with the name {task.name} exists already")
        self.tasks[task.name] = task
        return task

    def tube(self, name: str, kind: Kind = "fifottl", **settings: Unpack[TubeSettings]) -> None:
        """Declare a tube; a worker creates the tube at its start if it does not exist.

        Raises:
            InvalidTask: the name, the kind or an option is not valid.
        """
        _check_tube_name(name)
        try:
            create_request(name, kind, driver="", if_not_exists=True, profile="", settings=settings)
        except (TypeError, ValueError) as error:
            raise InvalidTask(f"the tube {name}: {error}") from error
        self.tubes[name] = (kind, settings)

    def lifespan(self, f: Lifespan) -> Lifespan:
        """Run an async generator around the run of a worker: set up, yield, clean up.

        Each process of the process pool runs the generator too.
        """
        self.lifespans.append(f)
        return f

    def include(self, other: App, *, prefix: str = "") -> None:
        """Add the tasks, tubes, consumers and lifespans of another app.

        Its tasks are put through this app from now on.

        Args:
            other: app of another module.
            prefix: put in front of the names of its tasks, such as "billing.".

        Raises:
            InvalidTask: a name is in use.
        """
        taken = [name for name in other.tasks if prefix + name in self.tasks]
        if taken:
            raise InvalidTask(f"a task with the name {prefix + taken[0]} exists already")
        for task in other.tasks.values():
            task.move_to(self, prefix)
            self.tasks[task.name] = task
        self.tubes.update(other.tubes)
        self.consumers.extend(other.consumers)
        self.lifespans.extend(other.lifespans)

    def used_tubes(self) -> list[str]:
        """Return the names of all tubes that are declared, or that tasks and consumers use."""
        of_tasks = (task.tube for task in self.tasks.values())
        of_consumers = (tube for tube, _, _ in self.consumers)
        return list(dict.fromkeys([*self.tubes, *of_tasks, *of_consumers]))


def _check_tube_name(name: str) -> None:
    try:
        check_tube_name(name)
    except ValueError as error:
        raise InvalidTask(str(error)) from error


def _check_consumer(options: ConsumerOptions) -> None:
    """Raise TypeError or ValueError if an option of a consumer is unknown or not valid."""
    check_known(options, ConsumerOptions, "a consumer has no option")
    if "concurrency" in options:
        whole_number("concurrency", options["concurrency"], 1, CONCURRENCY_MAX)
    texts("types", options.get("types", ()))
    if "priority_bound" in options:
        whole_number("priority_bound", options["priority_bound"], -(1 << 63), (1 << 63) - 1)
