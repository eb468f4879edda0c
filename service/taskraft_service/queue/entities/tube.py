"""A tube in the core: options, orders and counters.

Stored content refers to the number of a tube, not to its name. Truncating a tube creates a new
number with the same name, options and counters, so that the old content can be deleted in steps.
"""

from __future__ import annotations

from taskraft_service.queue.entities.life_cycle import (
    STATES,
    TAKEN,
    TTL_ENDS,
)
from taskraft_service.queue.entities.rates import SubqueueRates, TokenBucket
from taskraft_service.queue.entities.ready_tasks import ReadyAgeHistogram, ReadyOrder
from taskraft_service.queue.entities.refusal import Reason, Refusal, invalid
from taskraft_service.queue.entities.retry_policy import NO_RETRY, Position
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.tube_counters import TubeCounters
from taskraft_service.queue.entities.tube_driver import TubeDriver
from taskraft_service.queue.entities.tube_options import (
    SUBQUEUE_KINDS,
    TIMED_KINDS,
    TubeOptions,
    TubeView,
)
from taskraft_service.queue.entities.tube_profiles import PROFILES
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.keys import BURIED_ORDER, RATE_TIMER, order_scan
from taskraft_service.queue.store.ordered_index import OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store


class QueueTube:
    """A tube.

    ``tasks`` holds the tasks in memory: all taken tasks, all tasks that differ from the store (also
    removed tasks whose record must still be deleted), and some of the waiting tasks.
    """

    __slots__ = (
        "ages",
        "bucket",
        "buried",
        "counters",
        "created_ms",
        "custom",
        "dirty",
        "driver",
        "driver_version",
        "has_capacity",
        "has_limits",
        "has_options",
        "has_rate",
        "has_retry",
        "has_subqueues",
        "is_temporary",
        "kind",
        "lane_max",
        "lane_min",
        "memory",
        "name",
        "next_id",
        "number",
        "options",
        "profile",
        "ready",
        "rules",
        "share",
        "subqueue_rates",
        "tasks",
        "timer",
        "ttl_ends",
        "written",
    )

    def __init__(self, number: int, view: TubeView, store: Store, limits: Limits) -> None:
        """Make an empty tube that is not in the store."""
        self.number = number
        self.name = view.name
        self.kind = view.kind
        self.has_options = view.kind in TIMED_KINDS
        """Whether tasks of this kind of tube may have priority, delay, ttl and ttr."""
        self.has_subqueues = view.kind in SUBQUEUE_KINDS
        """Whether tasks of this kind of tube may have a sub-queue."""
        self.created_ms = view.created_ms
        self.bucket: TokenBucket | None = None
        self.profile = view.profile
        self.rules = PROFILES[view.profile]
        self.driver = view.driver
        self.driver_version = view.driver_version
        self.custom: TubeDriver | None = None
        """Driver of a tube of kind CUSTOM; the tube registry sets it."""
        self.memory = b""
        """State that the driver returned last, passed to its next call; opaque to the queue."""
        self.timer: OrderKey | None = None
        self.written = b""
        """Key of the tube's timer in the store; empty: the store has none."""
        self.set_options(view.options, view.created_ms)
        self.next_id = 1
        self.lane_min = 0
        self.lane_max = 0
        self.share = 0
        """Pass of the tube in takes by weight; see ``WeightedCandidates``."""
        self.counters = TubeCounters()
        self.ages = ReadyAgeHistogram()
        self.tasks: dict[int, QueueTask] = {}
        self.dirty = False
        self.subqueue_rates = SubqueueRates(number, store, view.options)
        self.ready: ReadyOrder
        """The order of the ready tasks; ``orders.tube_orders`` sets it."""
        self.buried = OrderedIndex(
            order_scan(store, BURIED_ORDER, number), limits.head_entries_max, stored=False
        )

    def set_options(self, options: TubeOptions, now_ms: int) -> None:
        """Set the options, and cache values that are needed for each task."""
        self.options = options
        self.is_temporary = options.is_temporary
        self.has_retry = options.retry != NO_RETRY
        self.has_capacity = options.capacity_tasks > 0 or options.capacity_bytes > 0
        self.has_limits = options.concurrency > 0 or options.rate_per_second > 0
        """Whether limits of the tube may allow fewer takes than tasks are ready."""
        self.has_rate = options.rate_per_second > 0 or options.subqueue_rate_per_second > 0
        """Whether a rate limit may delay takes."""
        ends = TTL_ENDS[options.ttl_scope]
        self.ttl_ends = tuple(state in ends for state in STATES)
        """By state: whether the end of the time to live ends a task in this state."""
        rate, burst = options.rate_per_second, options.rate_burst or options.rate_per_second
        if not rate:
            self.bucket = None
        elif self.bucket is None:
            self.bucket = TokenBucket(rate, burst, now_ms)
        else:
            self.bucket.change(rate, burst, now_ms)

    def takeable(self, now_ms: int) -> int | None:
        """Return the number of tasks that the limits allow to take now; None: unlimited."""
        bucket, concurrency = self.bucket, self.options.concurrency
        if not concurrency:
            return None if bucket is None else bucket.left(now_ms)
        free = max(concurrency - self.counters.states[TAKEN], 0)
        return free if bucket is None else min(free, bucket.left(now_ms))

    def due(self) -> OrderKey | None:
        """Return the timer of the instant at which the limits allow more takes, or None."""
        instants = (
            None if self.bucket is None else self.bucket.due_ms(),
            self.subqueue_rates.due_ms(),
        )
        due_ms = min((at_ms for at_ms in instants if at_ms is not None), default=None)
        return None if due_ms is None else (due_ms, RATE_TIMER, self.number, 0)

    def refill(self, now_ms: int, subqueues_max: int) -> int:
        """Allow the takes that the rates permit again; return the amount of work."""
        if self.bucket is not None:
            self.bucket.use(0, now_ms)
        return 1 + self.ready.readmit(now_ms, subqueues_max)

    def full(self, tasks: int, payload_bytes: int) -> Refusal | None:
        """Return why the tube lacks capacity for more, or None; only growth is checked."""
        options, counters = self.options, self.counters
        bounds = (
            ("capacity_tasks", options.capacity_tasks, sum(counters.states), tasks),
            ("capacity_bytes", options.capacity_bytes, counters.payload_bytes, payload_bytes),
        )
        for name, most, held, more in bounds:
            wanted = held + more
            if 0 < most < wanted and (more > 0 or tasks > 0):
                return Refusal(
                    Reason.TUBE_FULL,
                    f"the tube would hold {wanted}, more than its {name}, {most}",
                    {"tube": self.name, "limit": name, "value": str(most)},
                )
        return None

    def rank(self, priority: int) -> int:
        """Return the rank of a priority: lower ranks come first, and ``~`` cannot overflow."""
        return ~priority if self.options.higher_first else priority

    def priority_refusal(self, field: str, priority: int) -> Refusal | None:
        """Return why a priority is outside the range of the tube, or None."""
        low, high = self.options.priority_min, self.options.priority_max
        if low <= priority <= high:
            return None
        text = f"{priority} is not from {low} to {high}"
        limits = {"value": str(priority), "limit": f"{low}..{high}"}
        return invalid(field, text, limits)

    def lane(self, position: Position) -> int:
        """Return the lane of a task that is put at a position now."""
        if position is Position.IN_ORDER:
            return 0
        return self.front_lane() if position is Position.FRONT else self.back_lane()

    def front_lane(self) -> int:
        """Return a lane before all ready tasks."""
        self.lane_min -= 1
        return self.lane_min

    def back_lane(self) -> int:
        """Return a lane behind all ready tasks."""
        self.lane_max += 1
        return self.lane_max

    def view(self) -> TubeView:
        """Return the tube as callers see it."""
        return TubeView(
            self.name,
            self.kind,
            self.options,
            self.created_ms,
            self.profile,
            self.driver,
            self.driver_version,
        )


class CapacityEstimate:
    """Net change of tasks and bytes per tube, for tubes with a capacity."""

    def __init__(self) -> None:
        """Start without changes."""
        self._wanted: dict[int, tuple[QueueTube, int, int]] = {}

    def add(self, tube: QueueTube, tasks: int, payload_bytes: int) -> None:
        """Add the tasks and bytes that enter a tube; negative numbers leave the tube."""
        if tube.has_capacity:
            _, more_tasks, more_bytes = self._wanted.get(tube.number, (tube, 0, 0))
            self._wanted[tube.number] = (tube, more_tasks + tasks, more_bytes + payload_bytes)

    def refusal_of(self, tube: QueueTube, tasks: int, payload_bytes: int) -> Refusal | None:
        """Return why a tube lacks capacity for more beyond the added changes, or None."""
        _, more_tasks, more_bytes = self._wanted.get(tube.number, (tube, 0, 0))
        return tube.full(more_tasks + tasks, more_bytes + payload_bytes)

    def claim(self, tube: QueueTube, payload_bytes: int) -> Refusal | None:
        """Add the growth of a task of a tube, or return why the tube lacks capacity for it."""
        refusal = self.refusal_of(tube, 0, payload_bytes) if payload_bytes > 0 else None
        if refusal is None:
            self.add(tube, 0, payload_bytes)
        return refusal

    def refusal(self) -> Refusal | None:
        """Return which tube lacks capacity for all changes, or None."""
        for tube, tasks, payload_bytes in self._wanted.values():
            full = tube.full(tasks, payload_bytes)
            if full is not None:
                return full
        return None
