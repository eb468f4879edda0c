"""A task in the core.

The object is mutable and stays inside the core; callers get ``TaskView`` values.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from taskraft_service.queue.entities.instants import FOREVER_MS, NEVER_MS
from taskraft_service.queue.entities.life_cycle import (
    BURIED,
    DELAYED,
    DONE,
    GONE,
    READY,
    TAKEN,
    ZOMBIE,
    Operation,
)
from taskraft_service.queue.entities.task_view import NO_EXTRAS, Extras, State, TaskView
from taskraft_service.queue.store.keys import (
    DELAY_TIMER,
    LEASE_TIMER,
    RETENTION_TIMER,
    TTL_TIMER,
    buried_key,
    lease_key,
    ready_key,
    subqueue_prefix,
    typed_prefix,
    waiting_key,
)

if TYPE_CHECKING:
    from taskraft_service.queue.entities.session import QueueSession
    from taskraft_service.queue.entities.tube import QueueTube
    from taskraft_service.queue.store.ordered_index import OrderKey

BODY_INLINE_BYTES_MAX: Final = 1024
"""Larger bodies have a key of their own, so that a change of the record does not rewrite them."""


class Stored(IntEnum):
    """State of the stored copy of a body that has a key of its own."""

    NOTHING = 0
    CURRENT = 1
    OUTDATED = 2


StoredPosition: TypeAlias = "tuple[State, OrderKey, int, str, str]"
"""State, order, token, sub-queue and type of a task, from which its order keys follow."""
Written: TypeAlias = "tuple[StoredPosition, OrderKey | None, Stored]"
"""Position and timer of a task when it was last written, and the state of its stored body.
A plain tuple, because one is made for each task that is read."""


class EffectiveTaskOptions(NamedTuple):
    """Options of a task: the defaults of the tube merged with the attributes of the producer.

    ``operation`` puts the task: PUT, or PUT_DELAYED if the task is delayed.
    """

    operation: Operation
    lane: int
    rank: int
    priority: int
    ttl_ms: int
    ttr_ms: int
    visible_at_ms: int
    expire_at_ms: int


class QueueTask:
    """A task of a tube.

    Invariants: ``token`` is 0 and ``session`` is None unless the task is TAKEN. ``timer`` is the
    earliest deadline that applies in the state, or None. ``written`` is what the store has, or
    None. ``body`` None: the body is only in the store. ``extras`` is never changed in place.
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
        """Return whether the body has a key of its own."""
        return self.body is None or len(self.body) > BODY_INLINE_BYTES_MAX

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


def place_key(tube: QueueTube, where: StoredPosition) -> bytes:
    """Return the key of the task in an order, or of its lease; empty if it has none."""
    state, order, token, subqueue, _ = where
    if state is READY:
        if tube.has_subqueues:
            return waiting_key(subqueue_prefix(tube.number, subqueue), order)
        return ready_key(tube.number, order)
    if state is TAKEN:
        return lease_key(token)
    if state is BURIED:
        return buried_key(tube.number, (0, *order[1:]))
    return b""


def typed_key(tube: QueueTube, where: StoredPosition) -> bytes:
    """Return the key of a ready task in the order of its type; empty if it has none.

    Sub-queues write such keys for the tasks that they offer.
    """
    task_type = where[4]
    if not task_type or where[0] is not READY or tube.has_subqueues:
        return b""
    return waiting_key(typed_prefix(tube.number, task_type), where[1])
