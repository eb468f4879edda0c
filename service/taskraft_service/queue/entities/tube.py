"""Define a tube and its tasks, which refer to each other.

Both objects are mutable and stay inside the core; callers get ``TubeView`` and ``TaskView`` values.
Stored content refers to the number of a tube, not to its name. Truncating a tube creates a new
number with the same name, options and counters, so that the old content can be deleted in steps.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeAlias

from taskraft_service.queue.entities.instants import FOREVER_MS, NEVER_MS, shown
from taskraft_service.queue.entities.ready_tasks import ReadyAgeHistogram, ReadyOrder
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.entities.task_state import (
    DELAYED,
    DONE,
    GONE,
    READY,
    TAKEN,
    ZOMBIE,
    State,
)
from taskraft_service.queue.entities.task_view import NO_EXTRAS, Extras, TaskView
from taskraft_service.queue.entities.tube_driver import ArrivingTask
from taskraft_service.queue.entities.tube_limits import EffectiveTaskOptions, TubeLimits
from taskraft_service.queue.entities.tube_options import TubeView
from taskraft_service.queue.entities.tube_profiles import PROFILES
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.keys import (
    BURIED_ORDER,
    DELAY_TIMER,
    LEASE_TIMER,
    RETENTION_TIMER,
    TTL_TIMER,
    order_scan,
)
from taskraft_service.queue.store.ordered_index import OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store

BODY_INLINE_BYTES_MAX: Final = 1024
"""Maximum size of a body in the record of its task. A larger body has its own key, so that a change
of the record does not rewrite the body."""


class Stored(IntEnum):
    """State of the stored copy of a body that has its own key in the store."""

    NOTHING = 0
    CURRENT = 1
    OUTDATED = 2


StoredPosition: TypeAlias = "tuple[State, OrderKey, int, str, str]"
"""State, order, token, sub-queue and type of a task; these determine its keys in the indexes."""

Written: TypeAlias = "tuple[StoredPosition, OrderKey | None, Stored]"
"""Position and timer of a task when it was last written, and the state of its stored body.
A plain tuple, because one is created for each task that is read."""


class QueueTube(TubeLimits):
    """A tube with its tasks.

    ``tasks`` holds the tasks in memory: all taken tasks, all tasks that differ from the store
    (including removed tasks whose record must still be deleted), and some of the waiting tasks.
    """

    __slots__ = (
        "ages",
        "buried",
        "created_ms",
        "dirty",
        "leases",
        "memory",
        "next_id",
        "profile",
        "ready",
        "rules",
        "share",
        "tasks",
        "timer",
        "written",
        "written_at",
    )

    def __init__(self, number: int, view: TubeView, store: Store, limits: Limits) -> None:
        """Make an empty tube that is not in the store."""
        super().__init__(number, view, store)
        self.created_ms = view.created_ms
        self.profile = view.profile
        self.rules = PROFILES[view.profile]
        self.memory = b""
        """State that the driver returned last, passed to its next call; opaque to the queue."""
        self.timer: OrderKey | None = None
        self.written: bytes | None = b""
        """Key of the tube's timer in the store; empty: the store has none."""
        self.written_at = 0
        """Index of the last applied entry when the tube was written or read last."""
        self.next_id = 1
        self.share = 0
        """Stride-scheduling pass of the tube in takes by weight; see ``WeightedCandidates``."""
        self.ages = ReadyAgeHistogram()
        self.tasks: dict[int, QueueTask] = {}
        self.leases: dict[int, QueueTask] = {}
        """The taken tasks by lease token, the oldest lease first."""
        self.dirty = False
        self.ready: ReadyOrder[QueueTask]
        """The order of the ready tasks; ``state.tube_registry`` sets it."""
        self.buried = OrderedIndex(
            order_scan(store, BURIED_ORDER, number), limits.head_entries_max, stored=False
        )

    def refill(self, now_ms: int, subqueues_max: int) -> int:
        """Refill the token buckets and readmit sub-queues; return the amount of work."""
        if self.bucket is not None:
            self.bucket.use(0, now_ms)
        return 1 + self.ready.readmit(now_ms, subqueues_max)

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
            self.quarantined_at,
        )


class QueueTask:
    """A task of a tube.

    Invariants: ``token`` is 0 and ``session`` is None unless the task is TAKEN. ``taker`` is the
    principal that has taken the task without a session, and otherwise empty. ``timer`` is the
    earliest deadline that applies in the state, or None. ``written`` describes the stored task, or
    is None. ``body`` None: the body is only in the store. ``extras`` is never changed in place.
    """

    __slots__ = (
        "attempt",
        "body",
        "created_ms",
        "dirty",
        "expire_at_ms",
        "extras",
        "id",
        "lease_until_ms",
        "order",
        "payload_bytes",
        "priority",
        "session",
        "since_ms",
        "state",
        "subqueue",
        "taker",
        "timer",
        "token",
        "ttl_ms",
        "ttr_ms",
        "tube",
        "type",
        "visible_at_ms",
        "written",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - one call per put task; keywords would cost 0.5 µs each
        self,
        tube: QueueTube,
        task_id: int,
        terms: EffectiveTaskOptions,
        created_ms: int,
        body: bytes | None,
        payload_bytes: int,
        task_type: str,
        subqueue: str,
    ) -> None:
        """Make a task in state GONE; a transition puts it into its tube."""
        self.state = GONE
        (
            _,
            lane,
            rank,
            self.priority,
            self.ttl_ms,
            self.ttr_ms,
            self.visible_at_ms,
            self.expire_at_ms,
        ) = terms
        self.tube = tube
        self.id = task_id
        self.order: OrderKey = (lane, rank, task_id)
        self.created_ms = created_ms
        self.since_ms = created_ms
        self.lease_until_ms = NEVER_MS
        self.body = body
        self.payload_bytes = payload_bytes
        self.type = task_type
        self.subqueue = subqueue
        self.attempt = 0
        self.token = 0
        self.session: QueueSession | None = None
        self.taker = ""
        self.extras: Extras = NO_EXTRAS
        self.timer: OrderKey | None = None
        self.dirty = True
        self.written: Written | None = None

    @property
    def buried_order(self) -> OrderKey:
        """Return the sort key among the buried tasks: priority, then id."""
        return (0, *self.order[1:])

    @property
    def is_body_apart(self) -> bool:
        """Return whether the body is stored under its own key."""
        return self.body is None or len(self.body) > BODY_INLINE_BYTES_MAX

    @property
    def content_bytes(self) -> int:
        """Return the size of the payload and the result."""
        return self.payload_bytes + len(self.extras.result or b"")

    @property
    def has_times(self) -> bool:
        """Return whether the task has a delay, a TTL or a TTR."""
        return (
            self.expire_at_ms < NEVER_MS
            or self.lease_until_ms < NEVER_MS
            or self.visible_at_ms < NEVER_MS
            or self.ttl_ms != FOREVER_MS
            or self.ttr_ms != FOREVER_MS
        )

    def due(self) -> OrderKey | None:
        """Return the timer that applies in the current state, or None."""
        state = self.state
        if (state is READY and self.expire_at_ms >= NEVER_MS) or state is GONE:
            return None
        if state is TAKEN:
            due_ms, kind = self.lease_until_ms, LEASE_TIMER
        elif state is DELAYED:
            due_ms, kind = self.visible_at_ms, DELAY_TIMER
        elif state is DONE or state is ZOMBIE:
            due_ms, kind = self.extras.retain_until_ms or NEVER_MS, RETENTION_TIMER
        else:
            due_ms, kind = NEVER_MS, TTL_TIMER
        if self.expire_at_ms <= due_ms and self.tube.ttl_ends[state]:  # the TTL ends first
            due_ms, kind = self.expire_at_ms, TTL_TIMER
        return None if due_ms >= NEVER_MS else (due_ms, kind, self.tube.number, self.id)

    def view(self, body: bytes) -> TaskView:
        """Return the task as callers see it."""
        session = self.session
        # ``shown`` is inlined here, also for durations, because this runs for each taken task.
        lease_until_ms, visible_at_ms = self.lease_until_ms, self.visible_at_ms
        expire_at_ms, ttr_ms, ttl_ms = self.expire_at_ms, self.ttr_ms, self.ttl_ms
        return TaskView(
            self.tube.name,
            self.id,
            body,
            self.state,
            self.token,
            lease_until_ms if lease_until_ms < NEVER_MS else 0,
            self.attempt,
            self.created_ms,
            self.since_ms,
            visible_at_ms if visible_at_ms < NEVER_MS else 0,
            expire_at_ms if expire_at_ms < NEVER_MS else 0,
            session.id if session is not None else "",
            self.priority,
            ttr_ms if ttr_ms < FOREVER_MS else 0,
            ttl_ms if ttl_ms < FOREVER_MS else 0,
            self.extras,
        )

    def arrival(self, now_ms: int) -> ArrivingTask:
        """Return the task as a driver sees it."""
        return ArrivingTask(
            self.id,
            self.priority,
            self.type,
            self.payload_bytes,
            self.attempt,
            self.created_ms,
            shown(self.expire_at_ms),
            now_ms,
        )


def wrong_state(task: QueueTask) -> Refusal:
    """Return the refusal of an operation that the state of the task does not allow."""
    return Refusal(
        Reason.WRONG_STATE,
        f"task {task.id} is {task.state.name}",
        {"task_id": str(task.id), "state": task.state.name},
    )
