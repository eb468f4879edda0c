"""Turn what the queue shows into the messages of the contract.

Tasks are written around the stored TaskSpec without parsing it: in protobuf's wire format a message
is the concatenation of its fields, so the spec is one of the parts (bench/codec.py measures it).
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from taskraft.v1 import session_service_pb2, task_pb2, task_service_pb2, tube_service_pb2
from taskraft_service import wire
from taskraft_service.api.rpc.status import item_errors
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.life_cycle import (
    BURIED,
    DELAYED,
    HELD,
    READY,
    TAKEN,
    EventKind,
)
from taskraft_service.queue.entities.session_view import SessionView
from taskraft_service.queue.entities.task_view import NO_EXTRAS, Extras, TaskView
from taskraft_service.queue.entities.tube_counters import CountedOperation, OperationCounts
from taskraft_service.queue.operations.settlements import SettleResult
from taskraft_service.queue.state.tube_statistics import TubeStatistics

_SPEC: Final = wire.tag(task_pb2.Task.SPEC_FIELD_NUMBER, wire.LENGTH)
_ID: Final = wire.tag(task_pb2.Task.ID_FIELD_NUMBER, wire.VARINT)
_TOKEN: Final = wire.tag(task_pb2.Task.TOKEN_FIELD_NUMBER, wire.VARINT)
_MORTAL: Final = (READY, DELAYED, TAKEN, BURIED, HELD)
"""States that the end of the time to live may end."""
SECRET_PREFIX: Final = 8
"""So many characters of a session id are shown to others than its owner."""


def settled_message(result: SettleResult, revision: int) -> task_service_pb2.SettleTasksResponse:
    """Return what became of settlements."""
    return task_service_pb2.SettleTasksResponse(
        errors=item_errors(result.refused),
        touched=[
            task_service_pb2.TouchedLease(
                token=lease.token,
                lease_until_ms=lease.lease_until_ms,
                cancel_requested=lease.cancel_requested,
            )
            for lease in result.touched
        ],
        revision=revision,
    )


def finite(duration_ms: int) -> int:
    """Return a duration as the contract shows it: 0 where there is no limit."""
    return 0 if duration_ms >= FOREVER_MS else duration_ms


def _rest_of(view: TaskView, *, secret: bool) -> bytes:
    """Return all fields of a task but id, token and spec."""
    message = task_pb2.Task(
        tube=view.tube,
        state=task_pb2.Task.State.ValueType(view.state),
        lease_until_ms=view.lease_until_ms,
        attempt=view.attempt,
        created_ms=view.created_ms,
        since_ms=view.since_ms,
        visible_at_ms=view.visible_at_ms,
        expire_at_ms=view.expire_at_ms,
        session_id=view.session_id[:SECRET_PREFIX] if secret else view.session_id,
        priority=view.priority,
        ttr_ms=finite(view.ttr_ms),
        ttl_ms=finite(view.ttl_ms),
    )
    if view.extras is not NO_EXTRAS:
        _show_extras(message, view.extras)
    return message.SerializeToString()


def _show_extras(message: task_pb2.Task, extras: Extras) -> None:
    """Write the attributes that most tasks do not have."""
    message.times_buried = extras.times_buried
    message.retain_until_ms = extras.retain_until_ms
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
        failure = extras.failure
        message.failure.type = failure.type
        message.failure.message = failure.message
        message.failure.fatal = failure.fatal
    if extras.progress is not None:
        message.progress.basis_points = extras.progress.basis_points
        message.progress.note = extras.progress.note
    if extras.waiting is not None:
        for awaited in extras.waiting.open:
            message.waits_for.add(tube=awaited.tube, id=awaited.id)


_alike: Final = attrgetter(
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
"""What ``_rest_of`` depends on, the most changeable first."""


def encode_tasks(
    views: Iterable[TaskView], field: int, *, payload_omit: bool = False, secret: bool = False
) -> list[bytes]:
    """Return each task as an element of the repeated field ``field`` of an answer.

    Tasks that were put and taken together differ only in id, token and spec; the rest is written
    once for all of them. With ``secret``, ids of sessions are cut short.
    """
    key = wire.tag(field, wire.LENGTH)
    varint = wire.varint
    encoded: list[bytes] = []
    alike: object = None
    rest = spec_head = b""
    spec_bytes = -1
    for view in views:
        traits = _alike(view)
        if traits != alike:
            alike, rest = traits, _rest_of(view, secret=secret)
        body = without_payload(view.body) if payload_omit else view.body
        if len(body) != spec_bytes:
            spec_bytes = len(body)
            spec_head = _SPEC + varint(spec_bytes)
        # Joined once: the payload is copied once.
        head = b"".join((_ID, varint(view.id), _TOKEN, varint(view.token), rest, spec_head))
        encoded.append(b"".join((key, varint(len(head) + spec_bytes), head, body)))
    return encoded


def without_payload(body: bytes) -> bytes:
    """Return a TaskSpec without its payload."""
    spec = task_pb2.TaskSpec.FromString(body)
    spec.ClearField("payload")
    return spec.SerializeToString()


def session_message(view: SessionView, *, secret: bool = False) -> session_service_pb2.Session:
    """Return a session; with ``secret`` only the beginning of its id, which is a secret."""
    session_id = view.session_id[:SECRET_PREFIX] if secret else view.session_id
    return session_service_pb2.Session(
        session_id=session_id,
        name=view.name,
        ttr_ms=view.ttr_ms,
        expires_ms=view.expires_ms,
        taken=view.taken,
        created_ms=view.created_ms,
        owner=view.owner,
    )


def _calls(counted: OperationCounts) -> tube_service_pb2.TubeStatistics.Calls:
    """Return calls by the names of the contract."""
    calls = {kind.name: counted.by_kind[kind] for kind in EventKind}
    noted = {call.name.lower(): counted.noted[call] for call in CountedOperation}
    expired = {f"ttl_{state.name.lower()}": counted.expired[state] for state in _MORTAL}
    return tube_service_pb2.TubeStatistics.Calls(
        put=calls["PUT"],
        take=calls["TAKE"],
        ack=calls["ACK"],
        release=calls["RELEASE"],
        bury=calls["BURY"],
        kick=calls["KICK"],
        delete=calls["DELETE"],
        touch=calls["TOUCH"],
        ttl=calls["TTL_EXPIRED"],
        ttr=calls["TTR_EXPIRED"],
        delay=calls["DELAY_DUE"],
        session_release=calls["SESSION_RELEASE"],
        startup_release=calls["STARTUP_RELEASE"],
        truncate=calls["TRUNCATE"],
        finished=counted.finished,
        release_all=calls["RELEASE_ALL"],
        move=calls["MOVE"],
        snatch=calls["SNATCH"],
        restart=calls["RESTART"],
        switch=calls["SWITCH"],
        cancel=calls["CANCEL"],
        update=calls["UPDATE"],
        group_start=calls["GROUP_START"],
        dependencies_done=calls["DEPENDENCIES_DONE"],
        dependency_failed=calls["DEPENDENCY_FAILED"],
        retention=calls["RETENTION_EXPIRED"],
        **noted,
        **expired,
    )


def statistics_message(
    counts: TubeStatistics, waiting: int, *, transitions: bool
) -> tube_service_pb2.TubeStatistics:
    """Return the counts of a tube."""
    by_state = {state.name.lower(): tasks for state, tasks in counts.states.items()}
    Statistics = tube_service_pb2.TubeStatistics  # noqa: N806 - a class
    message = Statistics(
        tube=counts.tube,
        tasks=Statistics.Tasks(**by_state, total=counts.total),
        calls=_calls(counts.calls),
        calls_since_start=_calls(counts.fresh),
        oldest_ready_ms=counts.oldest_ready_ms,
        payload_bytes=counts.payload_bytes,
        waiting=waiting,
    )
    if transitions:
        for move in counts.transitions:
            message.transitions.add(
                from_state=task_pb2.Task.State.ValueType(move.from_state),
                to_state=task_pb2.Task.State.ValueType(move.to_state),
                count=move.count,
                crossing=move.crossing,
            )
    return message


def total_message(
    counts: TubeStatistics, waiting: int, *, transitions: bool
) -> tube_service_pb2.TubeStatistics:
    """Return the counts of several tubes together.

    What crossed from one tube to another is a transition of the whole: it was taken there, and is
    what it became here.
    """
    message = statistics_message(counts, waiting, transitions=False)
    moves: dict[tuple[int, int], int] = {}
    for move in counts.transitions if transitions else ():
        if move.crossing and not move.to_state:
            continue  # counted where it arrives
        key = (task_pb2.Task.TAKEN if move.crossing else move.from_state, move.to_state)
        moves[key] = moves.get(key, 0) + move.count
    for (from_state, to_state), count in sorted(moves.items()):
        message.transitions.add(
            from_state=task_pb2.Task.State.ValueType(from_state),
            to_state=task_pb2.Task.State.ValueType(to_state),
            count=count,
        )
    return message
