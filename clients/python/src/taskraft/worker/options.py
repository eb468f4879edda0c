"""Options of tasks, of single puts, and of workers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypedDict

from taskraft._arguments import check_known, choice, whole_number
from taskraft._durations import Duration, milliseconds
from taskraft._put_options import Headers, OnConflict
from taskraft._retry import Position, Retry
from taskraft.worker.errors import InvalidTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from taskraft._arguments import Texts
    from taskraft._dependencies import DependsOn
    from taskraft._schedules import CatchUp, Overlap
    from taskraft.worker.codecs import Codec

Pool: TypeAlias = Literal["async", "thread", "process"]
PayloadForm: TypeAlias = Literal["arguments", "single"]

TIME_LIMIT_DEFAULT: Final = "10m"
KEEP_RESULT_DEFAULT: Final = "1h"
GRACE_DEFAULT: Final = "22s"
"""Default time for handlers to finish."""
CANCEL_GRACE_DEFAULT: Final = "5s"
"""Default time for interrupted handlers to clean up. Kubernetes kills a container 30 s after
SIGTERM, so both graces together leave 3 s for the end of the process."""
START_TIMEOUT_DEFAULT: Final = "60s"
"""Default time to reach the cluster at the start; longer than a rolling restart of three nodes."""
ASYNC_SLOTS_DEFAULT: Final = 100
THREADS_DEFAULT: Final = 8
BATCH_SIZE_DEFAULT: Final = 100
"""Default maximum number of tasks of a batch; the cost per task hardly falls beyond 100 tasks."""
BATCH_SIZE_MAX: Final = 10_000
LINGER_DEFAULT: Final = "50ms"
CONSUMER_CONCURRENCY_DEFAULT: Final = 32
CONCURRENCY_MAX: Final = 100_000


class TaskOptions(TypedDict, total=False):
    """Options of a task; absent options of the put are taken from the tube."""

    name: str
    """Type of the task on the server; default: module and name of the function."""
    version: int
    """Version of the signature, from 1; only workers of a version run its tasks."""
    tube: str
    """Name of the tube; default "default"."""
    retry: Retry
    """Retry policy, instead of the tube's policy."""
    fatal: tuple[type[Exception], ...]
    """Exceptions after which the task is rejected without further attempts."""
    key: Callable[..., str | Sequence[str]]
    """Returns the unique key of a task from the arguments that its parameters name."""
    on_conflict: OnConflict
    key_states: Texts
    key_window: Duration
    subqueue: Callable[..., str]
    """Returns the sub-queue of a task from the arguments that its parameters name."""
    priority: int
    ttl: Duration
    headers: Headers
    cron: str
    """Put the task at each time of this cron expression: minute, hour, day of month, month, day of
    week, as in crontab(5). All parameters need defaults."""
    time_zone: str
    jitter: Duration
    overlap: Overlap
    catch_up: CatchUp
    """Options of the schedule, see `ScheduleOptions`; only with `cron`."""
    pool: Pool
    """Place in which handlers run; default: "async" for coroutine functions, else "thread";
    "process" for functions that need a processor of their own, or a hard time limit.
    """
    concurrency: int
    """Maximum number of attempts of this task at once in one worker; default: the slots of the
    pool. Not for batch handlers. A task with this option does not use the `urgent_slots`."""
    time_limit: Duration | None
    """Maximum time of one attempt; default 10 minutes; None: no limit."""
    keep_result: Duration
    """Time for which a result is kept; default: one hour, 0 for handlers that return None."""
    payload: PayloadForm
    """Form of the payload. "arguments" (default): an object with one member per parameter.

    "single": the value of the only parameter.
    """
    codec: Codec
    """Encodes arguments and result; default: the codec of the app, or that of the types."""
    also_reads: Sequence[Codec]
    """Codecs of other media types, which decode payloads of older or other producers."""


class BatchOptions(NamedTuple):
    """Size of a batch, and the wait for more tasks, for one call of a batch handler."""

    size: int
    """Maximum number of tasks."""
    linger_seconds: float
    """Maximum wait for more tasks after the first one, in seconds."""


class ConsumerOptions(TypedDict, total=False):
    """Options of a consumer, see `App.consumer`."""

    concurrency: int
    """Maximum number of handlers at once; default 32."""
    types: Texts
    """Only tasks of these types; default: all."""
    priority_bound: int
    """Only tasks at least as urgent as this priority."""


class CallOptions(TypedDict, total=False):
    """Options of single puts, see `TaskFunction.options`."""

    priority: int
    delay: Duration
    visible_at: datetime
    visible_at_ms: int
    ttl: Duration
    ttr: Duration
    headers: Headers
    key: str | Sequence[str]
    on_conflict: OnConflict
    key_states: Texts
    key_window: Duration
    subqueue: str
    position: Position
    depends_on: Sequence[DependsOn]
    on_dependency_failure: Literal["cancel", "run"]
    timeout: Duration
    """Time limit of the put, retries included."""


class WorkerOptions(TypedDict, total=False):
    """Options of `App.run`."""

    tubes: Texts
    """Only tasks of these tubes; default: all."""
    only: Texts
    """Only tasks with these names; default: all."""
    weights: Mapping[str, int]
    """Shares of tubes while several have READY tasks, from 1 to 1 000 000, by name of the tube. A
    tube without a weight has weight 1. Default: no weights; the most urgent task of all tubes runs
    first. Without effect on batch handlers and consumers, which have one tube each."""
    urgent_slots: int
    """Number of slots of each pool that run only tasks at least as urgent as `urgent_bound`, so
    that urgent tasks do not wait for long ones; default 0."""
    urgent_bound: int
    """Priority for `urgent_slots`."""
    async_slots: int
    """Maximum number of coroutines at once; default 100."""
    threads: int
    """Maximum number of handlers in threads at once; default 8."""
    processes: int
    """Number of processes for handlers of the pool "process"; default: number of processors."""
    max_tasks: int
    """Number of tasks after which a process is replaced; default: no limit."""
    max_memory: int
    """Bytes by which a process may grow after its start before it is replaced; default: no
    limit."""
    max_lifetime: Duration
    """Time after which the worker drains and ends, so that its supervisor starts a new one; minus a
    random part of up to a tenth. Default: no limit."""
    grace: Duration
    """Time that handlers have to finish after the worker was asked to stop; default 22 s."""
    cancel_grace: Duration
    """Time that an interrupted handler has to clean up; default 5 s. Afterwards, a process of
    the pool is killed, and 1 s later, the watchdog has ended the worker (see `signals`)."""
    start_timeout: Duration
    """Maximum time for which the worker tries to reach the cluster at its start; default 60 s."""
    health: str
    """Address such as "127.0.0.1:7490" at which /livez and /readyz answer probes."""
    metrics: str
    """Address at which /metrics serves Prometheus; may be the same as that of `health`. Needs the
    extra "metrics"."""
    signals: bool
    """Whether SIGTERM and SIGINT stop the worker; default True. Needs the main thread. A second
    signal ends the process at once. From the first signal on, the process has `grace` and
    `cancel_grace` to end; afterwards, a watchdog prints all stacks and ends it with status 9."""


SCHEDULE_OPTIONS: Final = ("time_zone", "jitter", "overlap", "catch_up")
"""Options of a task that belong to its schedule."""
KEY_STATES_DEFAULT: Final = ("HELD", "READY", "DELAYED", "TAKEN")
"""States in which a task blocks its key, by default. A BURIED task does not block its key, because
a BURIED task may never be kicked.
"""
NAME_BYTES_MAX: Final = 128
"""Limit of the server for the name of a task, which is the type of its tasks."""
_TUBE_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
"""Pattern of the names that the server accepts for tubes."""

PUT_OPTIONS: Final = (
    "retry",
    "on_conflict",
    "key_states",
    "key_window",
    "priority",
    "ttl",
    "headers",
)
"""Options of a task that the put takes unchanged."""


def check_task_options(name: str, options: Mapping[str, Any], *, is_batch: bool = False) -> None:
    """Check the options of a task, or of a batch task, at import.

    Raises:
        InvalidTask: an option is unknown or has an invalid value.
    """
    try:
        check_known(options, TaskOptions, "a task has no option")
        _check_values(options)
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"{name}: {error}") from error
    if is_batch and (options.get("pool") == "process" or "payload" in options):
        raise InvalidTask(
            f"{name}: a batch handler has no option payload, because the payload is one item of "
            f"its list, and it runs in the pool 'async' or 'thread'"
        )
    if is_batch and "concurrency" in options:
        raise InvalidTask(f"{name}: a batch handler has no option concurrency")
    _check_schedule(name, options)
    fatal = options.get("fatal", ())
    if not isinstance(fatal, tuple) or not all(
        isinstance(one, type) and issubclass(one, Exception) for one in fatal
    ):
        raise InvalidTask(f"{name}: fatal must be a tuple of exception classes, not {fatal!r}")
    version = options.get("version", 1)
    if not isinstance(version, int) or version < 1:
        raise InvalidTask(f"{name}: version must be an integer from 1, not {version!r}")


def check_tube_name(name: object) -> None:
    """Raise ValueError if the server would refuse the name of a tube."""
    if not isinstance(name, str) or _TUBE_NAME.fullmatch(name) is None:
        raise ValueError(
            f"tube must have 1 to 128 of the characters A-Z a-z 0-9 _ . : -, not {name!r}"
        )


def _check_values(options: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError if an option of a task has an invalid value."""
    if "pool" in options:
        choice("pool", options["pool"], {"async": 0, "thread": 1, "process": 2})
    if "payload" in options:
        choice("payload", options["payload"], {"arguments": 0, "single": 1})
    if "concurrency" in options:
        whole_number("concurrency", options["concurrency"], 1, CONCURRENCY_MAX)
    check_tube_name(options.get("tube", "default"))
    for option in ("time_limit", "keep_result", "ttl", "key_window"):
        if options.get(option) is not None:
            milliseconds(options[option], option)


def _check_schedule(name: str, options: Mapping[str, Any]) -> None:
    given = [option for option in SCHEDULE_OPTIONS if option in options]
    if given and "cron" not in options:
        raise InvalidTask(f"{name}: {', '.join(given)} without cron has no effect")
