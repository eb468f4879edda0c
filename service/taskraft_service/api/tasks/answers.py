"""Encode tasks and settlements as messages of the contract.

A task is written around its stored TaskSpec without parsing it: in protobuf's wire format a message
is the concatenation of its fields, so the stored spec is one field (measured by bench/codec.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import Final

from taskraft.v1 import task_pb2, task_service_pb2
from taskraft_service import wire
from taskraft_service.access.leases import SHOWN_SESSION_ID_LENGTH
from taskraft_service.api.rpc.status import item_errors
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.limits import TAKE_BYTES_BESIDE, TAKE_BYTES_DEFAULT
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.event_cause import failure_cause
from taskraft_service.queue.entities.instants import FOREVER_MS, in_wall_time
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import (
    NO_EXTRAS,
    AttemptFailure,
    Extras,
    Failure,
    TaskView,
)
from taskraft_service.queue.operations.settlements import SettleResult
from taskraft_service.queue.operations.take import TakeResult
from taskraft_service.turns import next_turn

LEASES_AT_ONCE: Final = 8
"""Number of leases that are read before the size of their payloads counts."""
CONTENT_SLICE_BYTES: Final = 4 * 1024 * 1024
"""Content size of tasks after which the event loop gets a turn; for leases, at most
``LEASES_AT_ONCE`` leases later. Payloads are read from the store, though they are left out: about
0.5 ms for each MiB."""
LEASE_BYTES: Final = 8 * 1024
"""Content size that stands for reading and encoding one lease, about 4 us."""
_SPEC: Final = wire.tag(task_pb2.Task.SPEC_FIELD_NUMBER, wire.LENGTH)
_ID: Final = wire.tag(task_pb2.Task.ID_FIELD_NUMBER, wire.VARINT)
_TOKEN: Final = wire.tag(task_pb2.Task.TOKEN_FIELD_NUMBER, wire.VARINT)
_Response = task_service_pb2.TakeTasksResponse
_TAKEN: Final = _Response.TASKS_FIELD_NUMBER
_NOW: Final = wire.tag(_Response.NOW_MS_FIELD_NUMBER, wire.VARINT)
_REVISION: Final = wire.tag(_Response.REVISION_FIELD_NUMBER, wire.VARINT)
_CUT_SHORT: Final = wire.tag(_Response.CUT_SHORT_FIELD_NUMBER, wire.VARINT)


def settled_message(
    applied: AppliedCommand, result: SettleResult
) -> task_service_pb2.SettleTasksResponse:
    """Return the result of a settle request that was applied alone or in a batch."""
    return task_service_pb2.SettleTasksResponse(
        errors=item_errors(result.refused) if result.refused else (),
        touched=touched_leases(applied, result) if result.touched else (),
        revision=applied.index,
        given_up=given_up_leases(result) if result.given_up else (),
    )


def given_up_leases(result: SettleResult) -> Iterable[task_service_pb2.GivenUpLease]:
    """Yield the leases of a settle request that were given up as messages."""
    for lease in result.given_up:
        outcome = task_pb2.Task.Outcome.ValueType(lease.outcome)
        yield task_service_pb2.GivenUpLease(token=lease.token, outcome=outcome)


def touched_leases(
    applied: AppliedCommand, result: SettleResult
) -> Iterable[task_service_pb2.TouchedLease]:
    """Yield the touched leases of a settle request as messages."""
    for lease in result.touched:
        yield task_service_pb2.TouchedLease(
            token=lease.token,
            lease_until_ms=in_wall_time(lease.lease_until_ms, applied.wall_offset_ms),
            cancel_requested=lease.cancel_requested,
        )


def finite(duration_ms: int) -> int:
    """Return a duration in ms as shown by the contract: 0 for infinity."""
    return 0 if duration_ms >= FOREVER_MS else duration_ms


def _shared_fields(view: TaskView, wall_offset_ms: int, *, shorten_session: bool) -> bytes:
    """Return the encoded fields of a task except id, token and spec, with instants in wall time."""
    message = task_pb2.Task(
        tube=view.tube,
        state=task_pb2.Task.State.ValueType(view.state),
        lease_until_ms=in_wall_time(view.lease_until_ms, wall_offset_ms),
        attempt=view.attempt,
        created_ms=in_wall_time(view.created_ms, wall_offset_ms),
        since_ms=in_wall_time(view.since_ms, wall_offset_ms),
        visible_at_ms=in_wall_time(view.visible_at_ms, wall_offset_ms),
        expire_at_ms=in_wall_time(view.expire_at_ms, wall_offset_ms),
        session_id=view.session_id[:SHOWN_SESSION_ID_LENGTH]
        if shorten_session
        else view.session_id,
        priority=view.priority,
        ttr_ms=finite(view.ttr_ms),
        ttl_ms=finite(view.ttl_ms),
    )
    if view.extras is not NO_EXTRAS:
        _add_extras(message, view.extras, wall_offset_ms)
        message.retain_until_ms = in_wall_time(view.extras.retain_until_ms, wall_offset_ms)
    return message.SerializeToString()


def _add_extras(message: task_pb2.Task, extras: Extras, wall_offset_ms: int) -> None:
    """Add the fields that most tasks do not have."""
    message.times_buried = extras.times_buried
    message.outcome = task_pb2.Task.Outcome.ValueType(extras.outcome)
    message.result = extras.result or b""
    message.result_content_type = extras.result_content_type
    message.cancel_requested = extras.cancel_requested
    if extras.origin is not None:
        message.origin.tube = extras.origin.tube
        message.origin.task_id = extras.origin.task_id
        if extras.origin.unique_key:
            message.origin.key.parts[:] = extras.origin.unique_key
    if extras.failure is not None:
        _set_failure(message.failure, extras.failure)
    message.failed_attempts = extras.failed_attempts
    for one in extras.failures:
        at_ms = in_wall_time(one.at_ms, wall_offset_ms)
        _set_failure(message.failures.add(attempt=one.attempt, at_ms=at_ms).failure, one)
    if extras.progress is not None:
        message.progress.basis_points = extras.progress.basis_points
        message.progress.note = extras.progress.note
    if extras.waiting is not None:
        for awaited in extras.waiting.open:
            message.waits_for.add(tube=awaited.tube, id=awaited.id)


def _set_failure(message: task_pb2.Failure, failure: Failure | AttemptFailure) -> None:
    message.type = failure.type
    message.message = failure.message
    message.fatal = failure.fatal
    message.fingerprint = failure_cause(failure).fingerprint


_shared_values: Final = attrgetter(
    "created_ms",
    "lease_until_ms",
    "since_ms",
    "attempt",
    "priority",
    "expire_at_ms",
    "ttr_ms",
    "ttl_ms",
    "visible_at_ms",
    "extras",
    "state",
    "session_id",
    "tube",
)
"""The values that ``_shared_fields`` encodes, the most variable first."""


def encode_tasks(
    views: Iterable[TaskView],
    field: int,
    wall_offset_ms: int,
    *,
    payload_omit: bool = False,
    shorten_session: bool = False,
) -> list[bytes]:
    """Return each task encoded as an element of the repeated field ``field`` of an answer.

    Tasks that were put and taken together differ only in id, token and spec, so the other fields
    are encoded once for all of them.

    Args:
        views: the tasks.
        field: the number of the repeated field.
        wall_offset_ms: wall time minus cluster time.
        payload_omit: leave the payloads out.
        shorten_session: show only the prefix of session ids.
    """
    key = wire.tag(field, wire.LENGTH)
    varint = wire.varint
    encoded: list[bytes] = []
    shared_values: object = None
    shared = spec_head = b""
    spec_bytes = -1
    for view in views:
        values = _shared_values(view)
        if values != shared_values:
            shared_values = values
            shared = _shared_fields(view, wall_offset_ms, shorten_session=shorten_session)
        body = without_payload(view.body) if payload_omit else view.body
        if len(body) != spec_bytes:
            spec_bytes = len(body)
            spec_head = _SPEC + varint(spec_bytes)
        # One join per task, so that the payload is copied once.
        head = b"".join((_ID, varint(view.id), _TOKEN, varint(view.token), shared, spec_head))
        encoded.append(b"".join((key, varint(len(head) + spec_bytes), head, body)))
    return encoded


async def encode_leases(
    queues: QueueLocator,
    tokens: Sequence[int],
    field: int,
    wall_offset_ms: int,
    *,
    shorten_session: bool = False,
) -> AsyncIterator[list[bytes]]:
    """Yield the tasks of some leases without payloads, with a turn of the event loop in between.

    Leases that end meanwhile are left out. See ``encode_tasks``.
    """
    encode = partial(
        encode_tasks,
        field=field,
        wall_offset_ms=wall_offset_ms,
        payload_omit=True,
        shorten_session=shorten_session,
    )
    part: list[TaskView] = []
    size = 0
    for start in range(0, len(tokens), LEASES_AT_ONCE):
        leased = queues.leased(tokens[start : start + LEASES_AT_ONCE])
        part += leased
        size += sum(LEASE_BYTES + len(view.body) for view in leased)
        if size >= CONTENT_SLICE_BYTES:
            yield encode(part)
            part, size = [], 0
            await next_turn()
    yield encode(part)


def without_payload(body: bytes) -> bytes:
    """Return a TaskSpec without its payload."""
    spec = task_pb2.TaskSpec.FromString(body)
    spec.ClearField("payload")
    return spec.SerializeToString()


def with_unique_key(view: TaskView) -> TaskView:
    """Return the record of a deleted failed task with its unique key as content.

    Any other view is returned unchanged.
    """
    if view.body or view.state is not State.GONE:
        return view
    spec = task_pb2.TaskSpec(unique_key=view.extras.unique_key)
    return replace(view, body=spec.SerializeToString())


def encode_take(
    applied: AppliedCommand, result: TakeResult, request: task_service_pb2.TakeTasksRequest
) -> tuple[bytes, Sequence[TaskView]]:
    """Return an encoded TakeTasksResponse, and the leased tasks that did not fit into it.

    The response respects ``bytes_max`` of the request but always contains one task. The queue
    counted only payloads against ``bytes_max``; headers and other fields count here. Tasks of a
    response that the caller cannot receive would stay leased until the leases expire.
    """
    tasks = result.tasks
    wall_offset_ms = applied.wall_offset_ms
    parts = encode_tasks(tasks, _TAKEN, wall_offset_ms, payload_omit=request.payload_omit)
    undelivered: Sequence[TaskView] = ()
    bytes_max = (request.bytes_max or TAKE_BYTES_DEFAULT) + TAKE_BYTES_BESIDE
    if sum(map(len, parts)) > bytes_max:
        fitting = sum(total <= bytes_max for total in accumulate(map(len, parts)))
        kept = max(fitting, 1)
        undelivered = tasks[kept:]
        del parts[kept:]
    wall_now_ms = applied.now_ms + wall_offset_ms
    parts += (_NOW, wire.varint(wall_now_ms), _REVISION, wire.varint(applied.index))
    if result.cut_short:
        parts += (_CUT_SHORT, wire.varint(1))
    return b"".join(parts), undelivered
