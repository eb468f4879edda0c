"""Define and check the options of a tube: ranges, consistency, and support by the kind of tube."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.refusal import Refusal, first_of, invalid
from taskraft_service.queue.entities.retry_policy import NO_RETRY, RetryPolicy, refusal_of_retry
from taskraft_service.queue.entities.task_state import BURIED, DELAYED, HELD, READY, TAKEN, State
from taskraft_service.queue.values import value


class TubeKind(IntEnum):
    """Kinds of tubes; numbers are those of taskraft.v1.Tube.Kind."""

    FIFO = 1
    FIFOTTL = 2
    LIMFIFOTTL = 3
    UTUBE = 4
    UTUBETTL = 5
    CUSTOM = 6


class TtlScope(IntEnum):
    """States in which the time to live ends a task; numbers are those of the contract."""

    UNTAKEN = 1
    READY_ONLY = 2
    ALL = 3


class TtlPolicy(IntEnum):
    """Effect of a release with delay on the time to live; numbers are those of the contract."""

    ADD_DELAY = 1
    KEEP_DEADLINE = 2
    RESET = 3


class OnAck(IntEnum):
    """Treatment of acknowledged tasks: removed or kept; numbers are those of the contract."""

    REMOVE = 1
    KEEP = 2
    RETAIN = 3


class Durability(IntEnum):
    """Storage of the tasks of a tube; numbers are those of the contract."""

    REPLICATED = 1
    TEMPORARY = 2


PRIORITY_MIN: Final = -(1 << 63)
PRIORITY_MAX: Final = (1 << 63) - 1


@value
class TubeOptions:
    """Options of a tube with all defaults applied, as in taskraft.v1.TubeOptions.

    A count or limit of 0 means unlimited. ``subqueue_weights`` has pairs of a sub-queue and its
    weight, in order of the names; without weights, sub-queues are served in the order of their
    first tasks.
    """

    higher_first: bool = False
    priority: int = 0
    delay_ms: int = 0
    ttl_ms: int = FOREVER_MS
    ttr_ms: int = FOREVER_MS
    put_paused: bool = False
    take_paused: bool = False
    priority_min: int = PRIORITY_MIN
    priority_max: int = PRIORITY_MAX
    ttl_scope: TtlScope = TtlScope.UNTAKEN
    ttl_policy: TtlPolicy = TtlPolicy.ADD_DELAY
    on_ack: OnAck = OnAck.REMOVE
    retain_ms: int = FOREVER_MS
    capacity_tasks: int = 0
    capacity_bytes: int = 0
    buried_max: int = 0
    retry: RetryPolicy = NO_RETRY
    dead_letter_tube: str = ""
    concurrency: int = 0
    subqueue_concurrency: int = 1
    rate_per_second: int = 0
    rate_burst: int = 0
    subqueue_rate_per_second: int = 0
    subqueue_rate_burst: int = 0
    subqueue_weights: tuple[tuple[str, int], ...] = ()
    durability: Durability = Durability.REPLICATED

    @property
    def is_temporary(self) -> bool:
        """Return whether the tasks live in the leader's memory, not in the replicated state."""
        return self.durability is Durability.TEMPORARY


@value
class TubeView:
    """A tube as callers see it; ``profile``: the older system whose defaults the tube has."""

    name: str
    kind: TubeKind
    options: TubeOptions
    created_ms: int
    profile: str = ""
    driver: str = ""
    driver_version: int = 0
    quarantined_at: int = 0
    """Index of the entry at which the driver failed; 0: the tube is not in quarantine."""


TIMED_KINDS: Final = (TubeKind.FIFOTTL, TubeKind.LIMFIFOTTL, TubeKind.UTUBETTL, TubeKind.CUSTOM)
"""Kinds whose tasks can have a priority, a delay, a time to live and a time to run."""

SUBQUEUE_KINDS: Final = (TubeKind.UTUBE, TubeKind.UTUBETTL)
"""Kinds whose tasks can have a sub-queue."""

COUNT_MAX: Final = (1 << 31) - 1
"""Maximum of a concurrency, a rate and a weight."""

SUBQUEUE_WEIGHTS_MAX: Final = 1_000
SUBQUEUE_BYTES_MAX: Final = 128
TIMED_OPTIONS: Final = (
    "higher_first",
    "priority",
    "priority_min",
    "priority_max",
    "delay_ms",
    "ttl_ms",
    "ttr_ms",
    "ttl_scope",
    "ttl_policy",
)
"""Options of kinds whose tasks can have a priority and times."""

SUBQUEUE_OPTIONS: Final = (
    "subqueue_concurrency",
    "subqueue_weights",
    "subqueue_rate_per_second",
    "subqueue_rate_burst",
)
"""Options of kinds with sub-queues."""

_DURATIONS: Final = ("delay_ms", "ttl_ms", "ttr_ms", "retain_ms")
_COUNTS: Final = ("capacity_tasks", "capacity_bytes", "buried_max")
_SMALL_COUNTS: Final = (
    "concurrency",
    "rate_per_second",
    "rate_burst",
    "subqueue_rate_per_second",
    "subqueue_rate_burst",
)
_NAMES: Final = {"higher_first": "priority_order"}
"""Options whose name in the contract differs."""

_PLAIN: Final = TubeOptions()


def refusal_of_options(
    name: str, kind: TubeKind, options: TubeOptions, path: str, *, needs_capacity: bool = True
) -> Refusal | None:
    """Return which options of a tube are invalid, or None; ``path`` prefixes the field names.

    ``name`` is the name of the tube. ``needs_capacity``: a tube of kind LIMFIFOTTL must have a
    capacity. The violations name the options as the contract does.
    """
    found = [
        *_unsupported_options(kind, options),
        *_out_of_range(options),
        *_contradictory(name, options),
        *(_without_capacity(kind, options) if needs_capacity else ()),
    ]
    refusals = [invalid(f"{path}.{field}", text, {"kind": kind.name}) for field, text in found]
    retry = refusal_of_retry(options.retry, options.dead_letter_tube, f"{path}.retry")
    if retry is not None:
        refusals.append(retry)
    return first_of(refusals) if refusals else None


def is_period(retain_ms: int) -> bool:
    """Return whether a retention period is valid for a ZOMBIE: greater than 0 ms and finite."""
    return 0 < retain_ms < FOREVER_MS


def _unsupported_options(kind: TubeKind, options: TubeOptions) -> Iterator[tuple[str, str]]:
    """Yield options that the kind of the tube does not support."""
    names: tuple[str, ...] = ()
    if kind not in TIMED_KINDS:
        names += TIMED_OPTIONS
    if kind not in SUBQUEUE_KINDS:
        names += SUBQUEUE_OPTIONS
    for name in names:
        given = getattr(options, name)
        if given != getattr(_PLAIN, name):
            text = f"{_shown(given)} is not supported in a tube of kind {kind.name}"
            yield _NAMES.get(name, name), text


def _shown(given: object) -> str:
    """Return a value by its name in the contract."""
    if given is True:  # the only bool option that some kinds do not support
        return "HIGHER_FIRST"
    if isinstance(given, tuple):  # shorten weights, because there can be many with long names
        (name, weight), *more = given
        return f"{name[:32]!r}: {weight}" + (f" and {len(more)} more" if more else "")
    return given.name if isinstance(given, IntEnum) else str(given)


def _out_of_range(options: TubeOptions) -> Iterator[tuple[str, str]]:
    for name in _DURATIONS + _COUNTS:
        number = getattr(options, name)
        if number < 0:
            yield name, f"{number} is less than 0"
    for name in _SMALL_COUNTS:
        number = getattr(options, name)
        if not 0 <= number <= COUNT_MAX:
            yield name, f"{number} is not from 0 to {COUNT_MAX}"
    if not 1 <= options.subqueue_concurrency <= COUNT_MAX:
        yield (
            "subqueue_concurrency",
            f"{options.subqueue_concurrency} is not from 1 to {COUNT_MAX}",
        )
    if len(options.subqueue_weights) > SUBQUEUE_WEIGHTS_MAX:
        count = len(options.subqueue_weights)
        yield "subqueue_weights", f"{count} items, more than {SUBQUEUE_WEIGHTS_MAX}"
    for subqueue, weight in options.subqueue_weights:
        path = f"subqueue_weights[{subqueue[:32]}]"
        if not 1 <= weight <= COUNT_MAX:
            yield path, f"{weight} is not from 1 to {COUNT_MAX}"
        if len(subqueue.encode()) > SUBQUEUE_BYTES_MAX:
            yield path, f"{len(subqueue.encode())} bytes, more than {SUBQUEUE_BYTES_MAX}"


def _contradictory(name: str, options: TubeOptions) -> Iterator[tuple[str, str]]:
    """Yield options that contradict other options."""
    low, high = options.priority_min, options.priority_max
    if low > high:
        yield "priority_min", f"{low} is more than priority_max, {high}"
    elif not low <= options.priority <= high:
        yield "priority", f"{options.priority} is not from {low} to {high}"
    is_given = options.retain_ms >= 0
    if options.on_ack is OnAck.RETAIN and is_given and not is_period(options.retain_ms):
        yield "retain_ms", "RETAIN needs a period (KEEP is forever)"
    if options.rate_burst and not options.rate_per_second:
        yield "rate_burst", "needs rate_per_second as well"
    if options.subqueue_rate_burst and not options.subqueue_rate_per_second:
        yield "subqueue_rate_burst", "needs subqueue_rate_per_second as well"
    if name and options.dead_letter_tube == name:
        yield "dead_letter_tube", "is the tube itself"


def _without_capacity(kind: TubeKind, options: TubeOptions) -> Iterator[tuple[str, str]]:
    if kind is TubeKind.LIMFIFOTTL and not (options.capacity_tasks or options.capacity_bytes):
        yield "capacity_tasks", "a tube of kind LIMFIFOTTL needs capacity_tasks or capacity_bytes"


TTL_ENDS: Final[Mapping[TtlScope, frozenset[State]]] = {
    TtlScope.UNTAKEN: frozenset({READY, BURIED}),
    TtlScope.READY_ONLY: frozenset({READY}),
    TtlScope.ALL: frozenset({READY, DELAYED, TAKEN, BURIED, HELD}),
}
"""States in which the end of the time to live ends a task.

UNTAKEN excludes TAKEN and DELAYED: the task does not end during a lease or a delay.
"""
