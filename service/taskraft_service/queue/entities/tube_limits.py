"""Apply the options of a tube: limits, capacity, and the defaults of new tasks.

The options limit the number and the size of the tasks, the number of concurrent leases, and the
takes per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from taskraft_service.queue.entities.instants import FOREVER_MS, NEVER_MS, after, lengthened
from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.rates import SubqueueRates, TokenBucket
from taskraft_service.queue.entities.refusal import Reason, Refusal, invalid, together
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import STATES, TAKEN
from taskraft_service.queue.entities.tube_counters import TubeCounters
from taskraft_service.queue.entities.tube_driver import TubeDriver
from taskraft_service.queue.entities.tube_options import (
    SUBQUEUE_KINDS,
    TIMED_KINDS,
    TTL_ENDS,
    TubeOptions,
    TubeView,
)
from taskraft_service.queue.store.keys import RATE_TIMER
from taskraft_service.queue.store.ordered_index import OrderKey
from taskraft_service.queue.store.store import Store


class TubeLimits:
    """The options of a tube, the counters of its tasks, and the remaining capacity and takes.

    ``QueueTube`` adds the tasks.
    """

    __slots__ = (
        "bucket",
        "counters",
        "custom",
        "driver",
        "driver_version",
        "has_capacity",
        "has_limits",
        "has_options",
        "has_rate",
        "has_subqueues",
        "is_temporary",
        "kind",
        "lane_max",
        "lane_min",
        "name",
        "number",
        "options",
        "quarantined_at",
        "subqueue_rates",
        "ttl_ends",
    )

    def __init__(self, number: int, view: TubeView, store: Store) -> None:
        """Start with all counters 0 and full token buckets."""
        self.number = number
        self.name = view.name
        self.kind = view.kind
        self.has_options = view.kind in TIMED_KINDS
        """Whether tasks of this kind of tube may have priority, delay, ttl and ttr."""
        self.has_subqueues = view.kind in SUBQUEUE_KINDS
        """Whether tasks of this kind of tube may have a sub-queue."""
        self.driver = view.driver
        self.driver_version = view.driver_version
        self.custom: TubeDriver | None = None
        """Driver of a tube of kind CUSTOM; the tube registry sets it. None in quarantine."""
        self.quarantined_at = 0
        """Index of the entry at which the driver failed; 0: the tube is not in quarantine."""
        self.bucket: TokenBucket | None = None
        self.set_options(view.options, view.created_ms)
        self.lane_min = 0
        self.lane_max = 0
        self.counters = TubeCounters()
        self.subqueue_rates = SubqueueRates(number, store, view.options)

    def set_options(self, options: TubeOptions, now_ms: int) -> None:
        """Set the options, and cache values that are needed for each task."""
        self.options = options
        self.is_temporary = options.is_temporary
        self.has_capacity = options.capacity_tasks > 0 or options.capacity_bytes > 0
        self.has_limits = options.concurrency > 0 or options.rate_per_second > 0
        """Whether limits of the tube can keep ready tasks from being taken."""
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
        """Return the number of tasks that can be taken now under the limits; None: unlimited."""
        bucket, concurrency = self.bucket, self.options.concurrency
        if not concurrency:
            return None if bucket is None else bucket.left(now_ms)
        free = max(concurrency - self.counters.states[TAKEN], 0)
        return free if bucket is None else min(free, bucket.left(now_ms))

    def due(self) -> OrderKey | None:
        """Return the key of a timer that fires when the limits allow more takes; None: no wait."""
        instants = (
            None if self.bucket is None else self.bucket.due_ms(),
            self.subqueue_rates.due_ms(),
        )
        due_ms = min((at_ms for at_ms in instants if at_ms is not None), default=None)
        return None if due_ms is None else (due_ms, RATE_TIMER, self.number, 0)

    def refusal_to_grow(self, tasks: int, payload_bytes: int) -> Refusal | None:
        """Return why the tube lacks capacity for more tasks and bytes, or None if it has enough.

        A change that does not grow the tube is never refused.
        """
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

    def refusal_of_quarantine(self) -> Refusal | None:
        """Return why a tube in quarantine neither accepts nor leases out tasks, or None."""
        if not self.quarantined_at:
            return None
        return Refusal(
            Reason.TUBE_QUARANTINED,
            f"the driver {self.driver!r} failed, so the tube is in quarantine; move its tasks to"
            " another tube, or truncate or drop the tube",
            {"tube": self.name, "driver": self.driver},
        )

    def rank(self, priority: int) -> int:
        """Return the rank of a priority; tasks with lower ranks are taken first.

        If higher priorities go first, the rank is ``~priority``, which unlike ``-priority`` is a
        signed 64-bit number for each signed 64-bit priority.
        """
        return ~priority if self.options.higher_first else priority

    def refusal_of_priority(self, field: str, priority: int) -> Refusal | None:
        """Return why a priority is outside the range of the tube, or None."""
        low, high = self.options.priority_min, self.options.priority_max
        if low <= priority <= high:
            return None
        text = f"{priority} is not from {low} to {high}"
        limits = {"value": str(priority), "limit": f"{low}..{high}"}
        return invalid(field, text, limits)

    def lane(self, position: Position) -> int:
        """Return the lane of a task that is put now at the given position."""
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


class CapacityEstimate:
    """Net change of tasks and bytes per tube, for tubes with a capacity."""

    def __init__(self) -> None:
        """Start without changes."""
        self._wanted: dict[int, tuple[TubeLimits, int, int]] = {}

    def add(self, tube: TubeLimits, tasks: int, payload_bytes: int) -> None:
        """Add the tasks and bytes that enter a tube; negative numbers leave the tube."""
        if tube.has_capacity:
            _, more_tasks, more_bytes = self._wanted.get(tube.number, (tube, 0, 0))
            self._wanted[tube.number] = (tube, more_tasks + tasks, more_bytes + payload_bytes)

    def refusal_of(self, tube: TubeLimits, tasks: int, payload_bytes: int) -> Refusal | None:
        """Return why a tube has no capacity for a further change, or None."""
        _, more_tasks, more_bytes = self._wanted.get(tube.number, (tube, 0, 0))
        return tube.refusal_to_grow(more_tasks + tasks, more_bytes + payload_bytes)

    def claim(self, tube: TubeLimits, payload_bytes: int) -> Refusal | None:
        """Add the growth of a task, or return why its tube lacks the capacity."""
        refusal = self.refusal_of(tube, 0, payload_bytes) if payload_bytes > 0 else None
        if refusal is None:
            self.add(tube, 0, payload_bytes)
        return refusal

    def refusal(self) -> Refusal | None:
        """Return which tube lacks capacity for all changes, or None."""
        for tube, tasks, payload_bytes in self._wanted.values():
            full = tube.refusal_to_grow(tasks, payload_bytes)
            if full is not None:
                return full
        return None


class EffectiveTaskOptions(NamedTuple):
    """Options of a task: the defaults of the tube merged with the attributes of the producer.

    ``operation`` is the operation of the put: PUT, or PUT_DELAYED if the task is delayed.
    """

    operation: Operation
    lane: int
    rank: int
    priority: int
    ttl_ms: int
    ttr_ms: int
    visible_at_ms: int
    expire_at_ms: int


def effective_options(
    tube: TubeLimits, task: NewTask, now_ms: int, wall_ms: int
) -> EffectiveTaskOptions:
    """Return the attributes of a task that is put now.

    ``wall_ms`` is the same instant in wall time. ``visible_at_ms`` becomes a delay from now, so a
    later correction of the wall offset does not change when the task becomes READY.

    A delay extends the time to live, as in tarantool/queue. The position FRONT or BACK of a delayed
    task is ignored.
    """
    options = tube.options
    priority = options.priority if task.priority is None else task.priority
    delay_ms = options.delay_ms if task.delay_ms is None else task.delay_ms
    if task.visible_at_ms is not None:
        delay_ms = max(delay_ms, task.visible_at_ms - wall_ms)
    ttl_ms = options.ttl_ms if task.ttl_ms is None else task.ttl_ms
    if delay_ms > 0 or not 0 <= ttl_ms <= FOREVER_MS:
        ttl_ms = lengthened(ttl_ms, delay_ms)
    ttr_ms = options.ttr_ms if task.ttr_ms is None else task.ttr_ms
    lane = 0
    if delay_ms <= 0 and task.position is not Position.IN_ORDER:
        lane = tube.lane(task.position)
    return EffectiveTaskOptions(
        Operation.PUT_DELAYED if delay_ms > 0 else Operation.PUT,
        lane,
        ~priority if options.higher_first else priority,
        priority,
        ttl_ms,
        max(ttr_ms, 0),
        after(now_ms, delay_ms) if delay_ms > 0 else NEVER_MS,
        NEVER_MS if ttl_ms >= FOREVER_MS else now_ms + ttl_ms,
    )


def refusal_of_field(tube: TubeLimits, field: str, given: object) -> Refusal:
    """Return the refusal of a field that the kind of the tube does not support."""
    text = f"{given} is not supported in a tube of kind {tube.kind.name}"
    return invalid(field, text, {"kind": tube.kind.name, "value": str(given)})


def refusal_of_fields(tube: TubeLimits, fields: Mapping[str, int | None]) -> Refusal | None:
    """Return the refusal of the given fields if the kind of tube does not support them, or None.

    Kinds without priorities and times support none of the fields. ``fields`` has the values by
    field; the value None means that the field is not set.
    """
    if tube.has_options:
        return None
    return together(
        [
            refusal_of_field(tube, field, given)
            for field, given in fields.items()
            if given is not None
        ]
    )


def refusal_of_delay(tube: TubeLimits, field: str, delay_ms: int) -> Refusal | None:
    """Return the refusal of a delay in a kind of tube without delays, or None."""
    return refusal_of_fields(tube, {field: delay_ms if delay_ms > 0 else None})
