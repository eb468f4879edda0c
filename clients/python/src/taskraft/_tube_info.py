"""A tube as the server describes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from taskraft._contract_values import choice_name, converted, nested, value_of
from taskraft._instants import instant_of
from taskraft._retry import Retry
from taskraft.v1 import tube_service_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_Message = tube_service_pb2.TubeOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TubeOptions:
    """The options of a tube in force, with defaults applied; durations are in ms.

    None and, for counts, 0 mean "no limit".
    """

    priority_order: str = field(metadata=choice_name(_Message.PriorityOrder))
    """Order of urgency of the priorities: "lower_first" or "higher_first"."""
    priority: int = 0
    """Default priority of tasks."""
    priority_min: int | None = None
    """Lowest number that a priority may have."""
    priority_max: int | None = None
    """Highest number that a priority may have."""
    delay_ms: int = 0
    """Default delay of tasks."""
    ttl_ms: int | None = None
    """Default TTL of tasks."""
    ttr_ms: int | None = None
    """Default TTR of tasks; None: a lease lasts as long as its session."""
    ttl_scope: str = field(metadata=choice_name(_Message.TtlScope))
    """States in which the TTL can end a task: "untaken", "ready_only" or "all"."""
    ttl_policy: str = field(metadata=choice_name(_Message.TtlPolicy))
    """Effect of a delay on the TTL: "add_delay", "keep_deadline" or "reset"."""
    on_ack: str = field(metadata=choice_name(_Message.OnAck))
    """Treatment of acknowledged tasks: "remove", "keep" or "retain"."""
    retain_ms: int | None = None
    """Time for which finished tasks are kept, in milliseconds; None: no limit is set."""
    capacity_tasks: int = 0
    """Maximum number of tasks in all states."""
    capacity_bytes: int = 0
    """Maximum payload bytes of all tasks."""
    buried_max: int = 0
    """Maximum number of buried tasks."""
    retry: Retry = field(metadata=converted(Retry.of))
    """Retry policy of tasks without a policy of their own."""
    dead_letter_tube: str = ""
    """Tube for exhausted and rejected tasks; empty: none."""
    concurrency: int = 0
    """Maximum number of TAKEN tasks."""
    subqueue_concurrency: int = 1
    """Maximum number of TAKEN tasks per sub-queue."""
    subqueue_weights: Mapping[str, int] = field(metadata=converted(dict))
    """Weights by sub-queue; empty: sub-queues are served in order of their first tasks."""
    rate_per_second: int = 0
    """Maximum takes per second, averaged."""
    rate_burst: int = 0
    """Maximum takes at once after a pause; 0: the takes of one second."""
    subqueue_rate_per_second: int = 0
    """Maximum takes per second from each sub-queue, averaged."""
    subqueue_rate_burst: int = 0
    """Maximum takes at once from a sub-queue after a pause; 0: the takes of one second."""
    put_paused: bool = False
    """True: puts are refused."""
    take_paused: bool = False
    """True: takes find no tasks."""
    durability: str = field(metadata=choice_name(_Message.Durability))
    """Storage of the tasks: "replicated" or "temporary"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TubeInfo:
    """A tube with its options in force."""

    name: str
    """Name of the tube."""
    kind: str = field(metadata=choice_name(tube_service_pb2.Tube.Kind))
    """Kind of the tube, for example "fifottl"; see docs/tubes.md."""
    options: TubeOptions = field(metadata=nested(TubeOptions))
    """The options in force."""
    created_ms: int
    """Time of the creation, in ms since the Unix epoch."""
    driver: str
    """Driver of a tube of the kind "custom"."""
    driver_version: int
    """Version of the driver."""
    profile: str
    """Profile with which the tube was created; empty: none."""
    quarantined_at: int
    """Log index at which the driver failed; 0: the tube is not in quarantine."""
    message: tube_service_pb2.Tube = field(repr=False, compare=False)
    """The tube as the server returned it, as a message."""

    @classmethod
    def of(cls, message: tube_service_pb2.Tube) -> TubeInfo:
        """Return the tube of a message."""
        return value_of(cls, message)

    @property
    def created(self) -> datetime | None:
        """Time of the creation."""
        return instant_of(self.created_ms)
