"""The options of a tube."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.retry_policy import NO_RETRY, RetryPolicy
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
    """What happens to acknowledged tasks; numbers are those of the contract."""

    REMOVE = 1
    KEEP = 2
    RETAIN = 3


class Durability(IntEnum):
    """Where the tasks of a tube are stored; numbers are those of the contract."""

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
