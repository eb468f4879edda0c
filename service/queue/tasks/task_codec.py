"""Write tasks as records, and read them again."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from service.queue.commands import NO_EXTRAS
from service.queue.life_cycle import STATES
from service.queue.tasks.extras_codec import read_extras, write_extras
from service.queue.tasks.task import BODY_INLINE_BYTES_MAX, Stored, Task

if TYPE_CHECKING:
    from service.queue.tubes.tube import Tube

_record = Struct(">BBqqqqqqqqqIQQQIHH")
_BODY_APART: Final = 1
_HAS_EXTRAS: Final = 2


def write_task(task: Task) -> bytes:
    """Return a task as it is written under its key; the same bytes on all replicas."""
    extras, session, body = task.extras, task.session, task.body
    lane, rank, _ = task.order
    apart = body is None or len(body) > BODY_INLINE_BYTES_MAX
    task_type = task.type.encode()
    subqueue = task.subqueue.encode()
    head = _record.pack(
        task.state,
        (_BODY_APART if apart else 0) | (_HAS_EXTRAS if extras is not NO_EXTRAS else 0),
        task.priority,
        lane,
        rank,
        task.created_ms,
        task.since_ms,
        task.visible_at_ms,
        task.expire_at_ms,
        task.lease_until_ms,
        task.ttl_ms,
        task.attempt,
        task.ttr_ms,
        task.token,
        session.number if session is not None else 0,
        task.payload_bytes,
        len(task_type),
        len(subqueue),
    )
    rare = write_extras(extras) if extras is not NO_EXTRAS else b""
    return b"".join((head, task_type, subqueue, rare, b"" if body is None or apart else body))


def read_task(tube: Tube, task_id: int, record: bytes) -> tuple[Task, int]:
    """Return the task of a record, and the number of its session (0: none).

    The content of a task whose body is kept apart is not read. What waits behind more than memory
    holds is read one task after the other, so this is a hot path of consumers: the fields go from
    the record to their places without a stop at ``Task.__init__``.
    """
    task = Task.__new__(Task)
    (
        state,
        flags,
        task.priority,
        lane,
        rank,
        task.created_ms,
        task.since_ms,
        task.visible_at_ms,
        task.expire_at_ms,
        task.lease_until_ms,
        task.ttl_ms,
        task.attempt,
        task.ttr_ms,
        task.token,
        session_number,
        task.payload_bytes,
        type_bytes,
        subqueue_bytes,
    ) = _record.unpack_from(record)
    type_end = _record.size + type_bytes
    end = type_end + subqueue_bytes
    task.tube = tube
    task.id = task_id
    task.state = STATES[state]
    task.order = (lane, rank, task_id)
    task.type = record[_record.size : type_end].decode() if type_bytes else ""
    task.subqueue = record[type_end:end].decode() if subqueue_bytes else ""
    task.session = None
    task.extras = NO_EXTRAS
    task.dirty = False
    if flags & _HAS_EXTRAS:
        task.extras, end = read_extras(record, end)
    apart = flags & _BODY_APART
    task.body = None if apart else record[end:]
    task.timer = task.due()
    task.written = (*task.keys(), Stored.CURRENT if apart else Stored.NOTHING)
    return task, session_number
