"""A function that workers run: put calls of it, and plan them for later."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from taskraft._arguments import check_known, text
from taskraft._durations import milliseconds, seconds
from taskraft._planned_task import PlannedTask, plan_task
from taskraft._put_options import spec_template
from taskraft._schedules import ScheduleOptions, schedule_message
from taskraft.worker.context import Context
from taskraft.worker.errors import DecodeError, EncodeError, InvalidTask
from taskraft.worker.handle import Handle
from taskraft.worker.middleware import PutRequest, around_put
from taskraft.worker.options import (
    KEEP_RESULT_DEFAULT,
    KEY_STATES_DEFAULT,
    NAME_BYTES_MAX,
    PUT_OPTIONS,
    SCHEDULE_OPTIONS,
    TIME_LIMIT_DEFAULT,
    BatchOptions,
    CallOptions,
    TaskOptions,
    check_task_options,
)
from taskraft.worker.payloads import Payloads
from taskraft.worker.signature import Signature, item_signature, signature_of

if TYPE_CHECKING:
    from taskraft import AsyncClient
    from taskraft.v1.task_pb2 import TaskSpec
    from taskraft.worker.declarations import Declarations

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
OldT = ParamSpec("OldT")
Upgrade: TypeAlias = Callable[OldT, Mapping[str, object]]
"""Returns arguments by name."""


@dataclass(frozen=True, slots=True)
class Plan(PlannedTask, Generic[R_co]):
    """A call that is not put yet; goes wherever a `PlannedTask` goes."""

    task: TaskFunction[..., Any] = field(kw_only=True, repr=False)
    """Task that is called."""

    def __reduce__(self) -> tuple[type[PlannedTask], tuple[object, ...]]:
        return PlannedTask, (self.tube, self.spec, self.after)


class TaskFunction(Generic[P, R]):
    """A function that workers run; made by `App.task`."""

    def __init__(
        self,
        app: Declarations,
        function: Callable[..., Any],
        options: TaskOptions,
        batch: BatchOptions | None = None,
    ) -> None:
        """Resolve the signature and the options; `batch`: the function handles several tasks.

        Raises:
            InvalidTask: the function or an option cannot be used.
        """
        signature = signature_of(function)
        check_task_options(signature.name, options, is_batch=batch is not None)
        self.signature: Final[Signature] = signature if batch is None else item_signature(signature)
        """Parameters and result of one task."""
        self.batch: Final = batch
        """Options for collecting the tasks of a batch handler; None: one call for each task."""
        self.definition: Final = options
        self.version: Final[int] = options.get("version", 1)
        """Version of the signature."""
        plain = options.get("name", self.signature.name)
        self.name: str = plain if self.version == 1 else f"{plain}@{self.version}"
        """Type of the task on the server."""
        self.tube: Final[str] = options.get("tube", "default")
        """Name of the tube."""
        self.pool: Final = options.get("pool") or ("async" if self.signature.is_async else "thread")
        """Kind of pool in which handlers run."""
        if (self.pool == "async") is not self.signature.is_async:
            raise InvalidTask(
                f"{self.name}: an async def function runs in the pool 'async', and a plain "
                f"function in 'thread' or 'process'; not in {self.pool!r}"
            )
        self.concurrency: Final[int | None] = options.get("concurrency")
        """Maximum number of attempts at once in one worker; None: the slots of the pool."""
        limit = options.get("time_limit", TIME_LIMIT_DEFAULT)
        self.time_limit: Final = None if limit is None else seconds(limit, "time_limit")
        """Maximum time of one attempt in seconds; None: no limit."""
        keep = options.get("keep_result", KEEP_RESULT_DEFAULT if self.signature.returns else 0)
        self.keep_ms: Final = milliseconds(keep, "keep_result")
        """Time for which a result is kept, in ms."""
        self.payloads: Final = Payloads(
            self.signature,
            "single" if batch else options.get("payload", "arguments"),
            options.get("codec") or app.codec,
            options.get("also_reads", ()),
        )
        """Encodes arguments and results."""
        self.fatal: Final = options.get("fatal", ())
        """Exceptions after which the task is rejected."""
        self.upgrades: dict[str, tuple[Payloads, Callable[..., Mapping[str, object]]]] = {}
        """Older types that this task runs too, with their payloads and their upgrades."""
        self.app = app
        """App that declares the task or includes it."""
        self._key = _ArgumentFunction(self, "key")
        self._subqueue = _ArgumentFunction(self, "subqueue")
        self._call: Mapping[str, Any] = {}
        self._base: dict[str, Any] = {
            name: options[name] for name in PUT_OPTIONS if name in options
        }
        self._base |= {"type": self.name, "content_type": self.payloads.codec.content_type}
        if self._key:
            self._base.setdefault("key_states", KEY_STATES_DEFAULT)
        self._check_base()
        self.schedule: Final = self._schedule(options)
        """Cron expression and options of the schedule; None: the task has no schedule."""

    def _check_base(self) -> None:
        """Raise InvalidTask if no task can be put with the options."""
        try:
            size_bytes = len(text("name", self.name).encode())
            spec_template(self._base, self.tube)  # type: ignore[arg-type]  # checked there
        except (TypeError, ValueError) as error:
            raise InvalidTask(f"{self.signature.name}: {error}") from error
        if not 1 <= size_bytes <= NAME_BYTES_MAX:
            limits = f"1 to {NAME_BYTES_MAX} bytes, not {size_bytes}"
            raise InvalidTask(f"{self.signature.name}: name must have {limits}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401 - a coroutine or R
        """Call the plain function, for unit tests; a batch handler gets a batch of one."""
        if self.batch is None:
            return self.signature.function(*args, **kwargs)
        given = self.signature.arguments(args, kwargs)
        returned = self.signature.function([*given.values()])
        return _first_later(returned) if self.signature.is_async else _first(returned)

    def options(self, **options: Unpack[CallOptions]) -> TaskFunction[P, R]:
        """Return a copy with options for its puts.

        Raises:
            TypeError: an option is unknown.
        """
        check_known(options, CallOptions, "a call has no option")
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied._call = {**self._call, **options}
        return copied

    def put(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Put a call as a task, and return its handle.

        Raises:
            EncodeError: an argument does not fit the signature.
            RuntimeError: an event loop runs in this thread; use `aput`.
            TaskraftError: the put was refused or failed.
        """
        request = self._request(args, kwargs)
        clients = self.app.clients
        return clients.run(self._put(clients.blocking_inner(), request))

    async def aput(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Do the same as `put`, in asyncio."""
        return await self._put(self.app.clients.here(), self._request(args, kwargs))

    def scheduled(self) -> Plan[R]:
        """Return the call that the schedule of the task puts."""
        return self._plan((), {})

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> Plan[R]:
        """Return a call that is put later, by a batch, a group, a schedule or a handler."""
        return self._plan(args, kwargs)

    def _plan(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Plan[R]:
        request = self._request(args, kwargs)
        request.options.pop("timeout", None)
        planned = plan_task(self.tube, request.payload, request.options)  # type: ignore[arg-type]  # checked by `plan_task`
        return Plan(planned.tube, planned.spec, planned.after, task=self)

    def handle(self, task_id: int) -> Handle[R]:
        """Return the handle of a task that was put earlier."""
        return Handle(self.app.clients, self.payloads, self.tube, task_id)

    def upgrade(self, from_version: int) -> Callable[[Upgrade[OldT]], Upgrade[OldT]]:
        """Declare the conversion of an older version's arguments to the arguments of this version.

        The decorated function has the parameters of the older version, with their types, and
        returns the arguments of this version by name. Workers then run tasks of both versions.

        Args:
            from_version: the older version, from 1.

        Raises:
            InvalidTask: the version is not older, or the function cannot be used.
        """

        def decorate(function: Upgrade[OldT]) -> Upgrade[OldT]:
            if not 1 <= from_version < self.version or self.batch is not None:
                raise InvalidTask(
                    f"{self.name}: an upgrade must start from a version from 1 to "
                    f"{self.version - 1}, not from {from_version!r}; a batch task has no upgrades"
                )
            plain = self.name.removesuffix(f"@{self.version}")
            older = plain if from_version == 1 else f"{plain}@{from_version}"
            payloads = Payloads(signature_of(function), "arguments", self.payloads.codec)
            self.upgrades[older] = (payloads, function)
            return function

        return decorate

    def decode(self, spec: TaskSpec) -> dict[str, Any]:
        """Return the arguments of a task of this version, or of one that is upgraded.

        Raises:
            DecodeError: the payload does not fit the signature.
        """
        upgrade = self.upgrades.get(spec.type)
        if upgrade is None:
            return self.payloads.decode(spec.payload, spec.content_type)
        payloads, function = upgrade
        arguments = function(**payloads.decode(spec.payload, spec.content_type))
        try:
            current = self.payloads.encode((), dict(arguments))
        except EncodeError as error:
            raise DecodeError(f"the upgrade from {spec.type} failed: {error}") from error
        return self.payloads.decode(current, "")

    def move_to(self, app: Declarations, prefix: str) -> None:
        """Put this task through another app from now on, with a name prefix; see `App.include`."""
        self.app = app
        self.name = self._base["type"] = f"{prefix}{self.name}"
        self.upgrades = {f"{prefix}{name}": one for name, one in self.upgrades.items()}

    def _schedule(self, options: TaskOptions) -> tuple[str, ScheduleOptions] | None:
        """Return the schedule of the task.

        Raises:
            InvalidTask: the task cannot be put without arguments, or the server would refuse the
                cron expression or the time zone.
        """
        if "cron" not in options:
            return None
        if self.signature.required:
            missing = ", ".join(sorted(self.signature.required))
            raise InvalidTask(f"{self.name}: with cron, these parameters need defaults: {missing}")
        given: Any = {name: options[name] for name in SCHEDULE_OPTIONS if name in options}
        from taskraft.worker.schedule_times import (  # noqa: PLC0415 - most tasks have no schedule
            check_cron,
            check_time_zone,
        )

        try:
            message = schedule_message(self.name, options["cron"], self._plan((), {}), given)
            check_cron(message.cron)
            check_time_zone(message.time_zone)
        except (TypeError, ValueError) as error:
            raise InvalidTask(f"{self.name}: {error}") from error
        return options["cron"], given

    def _request(self, args: Sequence[object], kwargs: Mapping[str, object]) -> PutRequest:
        options = {**self._base, **self._call}
        for name, function in (("key", self._key), ("subqueue", self._subqueue)):
            if function and name not in self._call:
                options[name] = function.of(self.signature.arguments(args, kwargs))
        return PutRequest(self.name, self.tube, self.payloads.encode(args, kwargs), options)

    async def _put(self, client: AsyncClient, request: PutRequest) -> Handle[R]:
        async def innermost(last: PutRequest) -> Handle[R]:
            task_id = await client.tube(last.tube).put(last.payload, **last.options)
            return Handle(self.app.clients, self.payloads, last.tube, task_id)

        if not self.app.middleware:
            return await innermost(request)
        return await around_put(self.app.middleware, innermost)(request)


def _first(results: Sequence[Any] | None) -> Any:  # noqa: ANN401 - the type of the handler's result
    return None if results is None else results[0]


async def _first_later(results: Awaitable[Sequence[Any] | None]) -> Any:  # noqa: ANN401 - as above
    return _first(await results)


class _ArgumentFunction:
    """An option that is computed from the arguments of a call, such as `key`."""

    def __init__(self, task: TaskFunction[Any, Any], option: str) -> None:
        self._function = cast("Callable[..., Any] | None", task.definition.get(option))
        self._names: list[str] = []
        if self._function is None:
            return
        signature = task.signature
        try:
            parameters = inspect.signature(self._function).parameters
        except (TypeError, ValueError) as error:
            raise InvalidTask(
                f"{task.name}: {option} must be a function of named arguments, not "
                f"{self._function!r:.200}"
            ) from error
        unknown = [name for name in parameters if name not in signature.types]
        if unknown:
            raise InvalidTask(
                f"{task.name}: {option} names {', '.join(unknown)}, but the task has no such "
                "parameter"
            )
        self._names = list(parameters)
        defaults = inspect.signature(signature.function).parameters
        self._defaults = {name: defaults[name].default for name in self._names}

    def __bool__(self) -> bool:
        return self._function is not None

    def of(self, arguments: Mapping[str, object]) -> Any:  # noqa: ANN401 - a name or several
        assert self._function is not None
        given = {name: arguments.get(name, self._defaults[name]) for name in self._names}
        return self._function(**given)


class TaskDecorator(Protocol):
    """Turns a function into a task; a first parameter of the type `Context` is hidden from puts."""

    @overload
    def __call__(
        self, f: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> TaskFunction[P, R]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[Context, P], R], /) -> TaskFunction[P, R]: ...
    @overload
    def __call__(self, f: Callable[P, Awaitable[R]], /) -> TaskFunction[P, R]: ...
    @overload
    def __call__(self, f: Callable[P, R], /) -> TaskFunction[P, R]: ...


T = TypeVar("T")


class BatchDecorator(Protocol):
    """Turns a function over a list into a task of one item."""

    @overload
    def __call__(
        self, f: Callable[[Context, list[T]], Awaitable[list[R]]], /
    ) -> TaskFunction[[T], R]: ...
    @overload
    def __call__(
        self, f: Callable[[Context, list[T]], Awaitable[None]], /
    ) -> TaskFunction[[T], None]: ...
    @overload
    def __call__(self, f: Callable[[Context, list[T]], list[R]], /) -> TaskFunction[[T], R]: ...
    @overload
    def __call__(self, f: Callable[[Context, list[T]], None], /) -> TaskFunction[[T], None]: ...
    @overload
    def __call__(self, f: Callable[[list[T]], Awaitable[list[R]]], /) -> TaskFunction[[T], R]: ...
    @overload
    def __call__(self, f: Callable[[list[T]], Awaitable[None]], /) -> TaskFunction[[T], None]: ...
    @overload
    def __call__(self, f: Callable[[list[T]], list[R]], /) -> TaskFunction[[T], R]: ...
    @overload
    def __call__(self, f: Callable[[list[T]], None], /) -> TaskFunction[[T], None]: ...
