"""Define the options of a tube, one row for each, and the kinds of tubes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from enum import IntEnum
from typing import Final, TypeVar

from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.retry_policy import NO_RETRY, RetryPolicy
from taskraft_service.queue.entities.task_state import BURIED, DELAYED, HELD, READY, TAKEN, State
from taskraft_service.queue.values import value
from taskraft_service.versions import LOWEST, ClusterVersion

T = TypeVar("T")


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


COUNT_MAX: Final = (1 << 31) - 1
"""Maximum of a concurrency, a rate and a weight."""


@value
class OptionRow:
    """The properties of one option, for the code that treats all options alike."""

    name: str
    contract_name: str
    default: object
    code: str = ""
    """Character of ``struct`` with which the record of a tube stores the option; empty: the option
    is not a number, so ``state.tube_codec`` names it."""
    least: int | None = None
    """Minimum; None: not checked."""
    most: int | None = None
    """Maximum; None: no maximum."""
    omits_default: bool = False
    """Whether an answer leaves the option out while it has its default."""
    is_fixed: bool = False
    """Whether the option cannot change after the creation of the tube."""
    since: ClusterVersion = LOWEST
    """First cluster version with the option: requests may set it, and records store it."""

    @property
    def choices(self) -> type[IntEnum] | None:
        """Return the enumeration of the option, or None if the option is not an enumeration."""
        return type(self.default) if isinstance(self.default, IntEnum) else None


def _option(default: T, code: str = "", **row: object) -> T:
    """Return an option of ``TubeOptions``; ``row`` has the other fields of the ``OptionRow``."""
    return field(default=default, metadata={"code": code, **row})


def _flag(**row: object) -> bool:
    """Return an option that is False by default."""
    return _option(default=False, code="?", **row)


def _limit(default: T, code: str, least: int | None = 0, most: int | None = None) -> T:
    """Return an option that an answer leaves out while the option has its default."""
    return _option(default, code, least=least, most=most, omits_default=True)


@value
class TubeOptions:
    """Options of a tube with all defaults applied, as in taskraft.v1.TubeOptions.

    A count or limit of 0 means unlimited. ``subqueue_weights`` has pairs of a sub-queue and its
    weight, in order of the names; without weights, sub-queues are served in the order of their
    first tasks. The record of a tube stores the options in this order, so a new option is the last.
    """

    higher_first: bool = _flag(contract_name="priority_order", is_fixed=True)
    priority: int = _option(0, "q")
    delay_ms: int = _option(0, "q", least=0)
    ttl_ms: int = _limit(FOREVER_MS, "q")
    ttr_ms: int = _limit(FOREVER_MS, "q")
    put_paused: bool = _flag()
    take_paused: bool = _flag()
    priority_min: int = _limit(PRIORITY_MIN, "q", None)
    priority_max: int = _limit(PRIORITY_MAX, "q", None)
    ttl_scope: TtlScope = _option(TtlScope.UNTAKEN, "B")
    ttl_policy: TtlPolicy = _option(TtlPolicy.ADD_DELAY, "B")
    on_ack: OnAck = _option(OnAck.REMOVE, "B")
    retain_ms: int = _limit(FOREVER_MS, "q")
    capacity_tasks: int = _limit(0, "Q")
    capacity_bytes: int = _limit(0, "Q")
    buried_max: int = _limit(0, "Q")
    retry: RetryPolicy = _option(NO_RETRY)
    dead_letter_tube: str = _option("", omits_default=True)
    concurrency: int = _limit(0, "I", 0, COUNT_MAX)
    subqueue_concurrency: int = _limit(1, "I", 1, COUNT_MAX)
    rate_per_second: int = _limit(0, "I", 0, COUNT_MAX)
    rate_burst: int = _limit(0, "I", 0, COUNT_MAX)
    subqueue_rate_per_second: int = _limit(0, "I", 0, COUNT_MAX)
    subqueue_rate_burst: int = _limit(0, "I", 0, COUNT_MAX)
    subqueue_weights: tuple[tuple[str, int], ...] = _option(())
    durability: Durability = _option(Durability.REPLICATED, "B", is_fixed=True)

    @property
    def is_temporary(self) -> bool:
        """Return whether the tasks live in the leader's memory, not in the replicated state."""
        return self.durability is Durability.TEMPORARY


OPTION_ROWS: Final = tuple(
    OptionRow(each.name, default=each.default, **{"contract_name": each.name, **each.metadata})
    for each in fields(TubeOptions)
)
"""All options, in the order of ``TubeOptions``."""


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


def unsupported_options(kind: TubeKind) -> tuple[str, ...]:
    """Return the names of the options that a kind of tube does not support."""
    return (TIMED_OPTIONS if kind not in TIMED_KINDS else ()) + (
        SUBQUEUE_OPTIONS if kind not in SUBQUEUE_KINDS else ()
    )


TTL_ENDS: Final[Mapping[TtlScope, frozenset[State]]] = {
    TtlScope.UNTAKEN: frozenset({READY, BURIED}),
    TtlScope.READY_ONLY: frozenset({READY}),
    TtlScope.ALL: frozenset({READY, DELAYED, TAKEN, BURIED, HELD}),
}
"""States in which the end of the time to live ends a task.

UNTAKEN excludes TAKEN and DELAYED: the task does not end during a lease or a delay.
"""
