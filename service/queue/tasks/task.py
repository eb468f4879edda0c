"""Hold one task, and write it as a record.

A task is a mutable object of the pure core; what leaves the core are ``TaskView`` values.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from service.queue.commands import FOREVER_MS, NO_EXTRAS, Extras, State, TaskView
from service.queue.instants import NEVER_MS
from service.queue.keys import (
    DELAY_TIMER,
    LEASE_TIMER,
    RETENTION_TIMER,
    TTL_TIMER,
    buried_key,
    lease_key,
    ready_key,
    subqueue_prefix,
    timer_key,
    waiting_key,
)
from service.queue.life_cycle import BURIED, DELAYED, DONE, READY, STATES, TAKEN, ZOMBIE
from service.queue.tasks.extras_codec import read_extras, write_extras

if TYPE_CHECKING:
    from service.queue.orders.ordered_index import Entry
    from service.queue.sessions.session import Session
    from service.queue.tubes.tube import Tube

BODY_INLINE_BYTES_MAX: Final = 1024
"""Longer content is kept under a key of its own: it is written once, the record at each change."""

_record = Struct(">BBqqqqqqqqqIQQQIHH")
_BODY_APART: Final = 1
_HAS_EXTRAS: Final = 2


class Stored(IntEnum):
    """What the store has of a content that is kept under a key of its own."""

    NOTHING = 0
    CURRENT = 1
    OUTDATED = 2


class Terms(NamedTuple):
    """What applies to a task: the tube's defaults and the producer's wishes put together."""

    state: State
    lane: int
    rank: int
    priority: int
    ttl_ms: int
    ttr_ms: int
    visible_at_ms: int
    expire_at_ms: int


class Task:
    """A task of a tube.

    Invariants: ``token`` is 0 and ``session`` None unless the task is taken; ``timer`` is the
    earliest deadline that matters in its state, or None; ``written`` is what the store knows: None
    for nothing, else the keys of the task's place (or lease) and of its timer, and whether its
    content has one. ``body`` None: it is in the store. ``extras`` is ``NO_EXTRAS`` for most tasks,
    and never changed in place.
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
        tube: Tube,
        task_id: int,
        terms: Terms,
        created_ms: int,
        body: bytes | None,
        payload_bytes: int,
        task_type: str,
        subqueue: str,
    ) -> None:
        """Make a task that nobody has taken yet and that the store does not know."""
        (
            self.state,
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
        self.order: Entry = (lane, rank, task_id)
        self.created_ms = created_ms
        self.since_ms = created_ms
        self.lease_until_ms = NEVER_MS
        self.body = body
        self.payload_bytes = payload_bytes
        self.type = task_type
        self.subqueue = subqueue
        self.attempt = 0
        self.token = 0
        self.session: Session | None = None
        self.extras: Extras = NO_EXTRAS
        self.timer: Entry | None = None
        self.dirty = True
        self.written: tuple[bytes, bytes, Stored] | None = None

    @property
    def buried_order(self) -> Entry:
        """Return the place among the buried tasks: by priority, then id."""
        return (0, *self.order[1:])

    @property
    def is_body_apart(self) -> bool:
        """Tell whether the content is kept under a key of its own."""
        return self.body is None or len(self.body) > BODY_INLINE_BYTES_MAX

    def due(self) -> Entry | None:
        """Return the timer that the task must have in its state."""
        state = self.state
        if state is TAKEN:
            due_ms, kind = self.lease_until_ms, LEASE_TIMER
        elif state is DELAYED:
            due_ms, kind = self.visible_at_ms, DELAY_TIMER
        elif state is DONE or state is ZOMBIE:
            due_ms, kind = self.extras.retain_until_ms or NEVER_MS, RETENTION_TIMER
        else:
            due_ms, kind = NEVER_MS, TTL_TIMER
        if self.expire_at_ms < due_ms and self.tube.ttl_ends[state]:
            due_ms, kind = self.expire_at_ms, TTL_TIMER
        return None if due_ms >= NEVER_MS else (due_ms, kind, self.tube.number, self.id)

    def keys(self) -> tuple[bytes, bytes]:
        """Return the keys of its place (or lease) and of its timer; empty where it has none."""
        state = self.state
        if state is READY:
            number = self.tube.number
            if self.tube.has_subqueues:
                place = waiting_key(subqueue_prefix(number, self.subqueue), self.order)
            else:
                place = ready_key(number, self.order)
        elif state is TAKEN:
            place = lease_key(self.token)
        elif state is BURIED:
            place = buried_key(self.tube.number, self.buried_order)
        else:
            place = b""
        return place, timer_key(self.timer) if self.timer is not None else b""

    def record(self) -> bytes:
        """Return the task as it is written under its key; the same bytes on all replicas."""
        extras = self.extras
        session = self.session
        lane, rank, _ = self.order
        apart = self.is_body_apart
        task_type = self.type.encode()
        subqueue = self.subqueue.encode()
        head = _record.pack(
            self.state,
            (_BODY_APART if apart else 0) | (_HAS_EXTRAS if extras is not NO_EXTRAS else 0),
            self.priority,
            lane,
            rank,
            self.created_ms,
            self.since_ms,
            self.visible_at_ms,
            self.expire_at_ms,
            self.lease_until_ms,
            self.ttl_ms,
            self.attempt,
            self.ttr_ms,
            self.token,
            session.number if session is not None else 0,
            self.payload_bytes,
            len(task_type),
            len(subqueue),
        )
        body = b"" if apart or self.body is None else self.body
        if extras is NO_EXTRAS:
            return b"".join((head, task_type, subqueue, body))
        return b"".join((head, task_type, subqueue, write_extras(extras), body))

    def view(self, body: bytes) -> TaskView:
        """Return the task as it is shown."""
        session = self.session
        # ``shown`` and ``shown_duration`` in place: this is done for each taken task.
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


def read_task(tube: Tube, task_id: int, record: bytes) -> tuple[Task, int]:
    """Return the task of a record, and the number of its session (0: none).

    The content of a task whose body is kept apart is not read.
    """
    (
        state,
        flags,
        priority,
        lane,
        rank,
        created_ms,
        since_ms,
        visible_at_ms,
        expire_at_ms,
        lease_until_ms,
        ttl_ms,
        attempt,
        ttr_ms,
        token,
        session_number,
        payload_bytes,
        type_bytes,
        subqueue_bytes,
    ) = _record.unpack_from(record)
    type_end = _record.size + type_bytes
    end = type_end + subqueue_bytes
    extras = NO_EXTRAS
    subqueue = record[type_end:end].decode() if subqueue_bytes else ""
    if flags & _HAS_EXTRAS:
        extras, end = read_extras(record, end)
    task = Task(
        tube,
        task_id,
        Terms(
            STATES[state],
            lane,
            rank,
            priority,
            ttl_ms,
            ttr_ms,
            visible_at_ms,
            expire_at_ms,
        ),
        created_ms,
        None if flags & _BODY_APART else record[end:],
        payload_bytes,
        record[_record.size : type_end].decode() if type_bytes else "",
        subqueue,
    )
    task.since_ms = since_ms
    task.lease_until_ms = lease_until_ms
    task.attempt = attempt
    task.token = token
    task.extras = extras
    task.timer = task.due()
    task.written = (*task.keys(), Stored.CURRENT if flags & _BODY_APART else Stored.NOTHING)
    task.dirty = False
    return task, session_number
