"""List the kinds of commands in the log, and make each from the client's request.

The same function makes a command on the leader, before it is proposed, and on the followers, from
the log; so all replicas see equal commands. Requests have been checked by ``service.api`` before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from service import wire
from service.limits import SESSION_TTR_DEFAULT_MS, TAKE_BYTES_DEFAULT
from service.queue import commands as core
from taskraft.log.v1 import log_pb2
from taskraft.v1 import session_service_pb2, task_pb2, task_service_pb2, tube_service_pb2

M = TypeVar("M", bound=Message)

_TASKS: Final = task_service_pb2.PutTasksRequest.TASKS_FIELD_NUMBER
_PAYLOAD: Final = task_pb2.TaskSpec.PAYLOAD_FIELD_NUMBER


@dataclass(slots=True, frozen=True)
class Form(Generic[M]):
    """How one kind of command stands in the log: under which number, as which message."""

    number: int
    message: type[M]
    command: Callable[[M, bytes, int], core.Command]
    """Makes the command from the message, the bytes in which it came, and its hash."""

    def decode(self, raw: bytes, request_hash: int) -> core.Command:
        """Return the command that ``raw`` stands for."""
        return self.command(self.message.FromString(raw), raw, request_hash)


def bodies(raw: bytes) -> list[bytes]:
    """Return the TaskSpecs of a PutTasksRequest as they came.

    Raises:
        wire.Malformed: ``raw`` is not a message.
    """
    return wire.elements(raw, _TASKS)


def plain_payload_bytes(body: bytes) -> int | None:
    """Return the size of the payload if a TaskSpec, as it came, has nothing else; otherwise None.

    Most tasks are like that; they are recognised by their first bytes and not parsed.
    """
    prefix = wire.sole_field_prefix(_PAYLOAD, len(body))
    if prefix and body.startswith(prefix):
        return len(body) - len(prefix)
    return None


def payload_bytes(body: bytes) -> int:
    """Return the size of the payload of a TaskSpec as it came."""
    plain = plain_payload_bytes(body)
    return len(task_pb2.TaskSpec.FromString(body).payload) if plain is None else plain


# ------------------------------------------------------------------------------------------- tasks

_POSITIONS: Final[Mapping[int, core.Position]] = {
    task_pb2.TaskSpec.POSITION_UNSPECIFIED: core.Position.IN_ORDER,
    task_pb2.TaskSpec.FRONT: core.Position.FRONT,
    task_pb2.TaskSpec.BACK: core.Position.BACK,
}

_TTL_POLICIES: Final[Mapping[int, core.TtlPolicy]] = {
    task_service_pb2.Settlement.Release.TTL_POLICY_UNSPECIFIED: core.TtlPolicy.ADD_DELAY,
    task_service_pb2.Settlement.Release.ADD_DELAY: core.TtlPolicy.ADD_DELAY,
    task_service_pb2.Settlement.Release.KEEP_DEADLINE: core.TtlPolicy.KEEP_DEADLINE,
    task_service_pb2.Settlement.Release.RESET: core.TtlPolicy.RESET,
}


def new_task(body: bytes) -> core.NewTask:
    """Return one task of a put from its TaskSpec as it came."""
    plain = plain_payload_bytes(body)
    if plain is not None:
        return core.NewTask(body, plain)
    spec = task_pb2.TaskSpec.FromString(body)
    has = spec.HasField
    # By position: the keywords alone cost 1 us, as much as the parser.
    return core.NewTask(
        body,
        len(spec.payload),
        spec.priority if has("priority") else None,
        spec.delay_ms if has("delay_ms") else None,
        spec.ttl_ms if has("ttl_ms") else None,
        spec.ttr_ms if has("ttr_ms") else None,
        spec.visible_at_ms if has("visible_at_ms") else None,
        spec.type,
        spec.subqueue,
        _POSITIONS[spec.position],
    )


def _put(request: task_service_pb2.PutTasksRequest, raw: bytes, hash_: int) -> core.Put:
    tasks = [new_task(body) for body in bodies(raw)]
    return core.Put(request.tube, tasks, request.atomic, request.request_id, hash_)


def _take(request: task_service_pb2.TakeTasksRequest, _raw: bytes, hash_: int) -> core.Take:
    return core.Take(
        tubes=[source.tube for source in request.sources],
        session_id=request.session_id,
        tasks_max=request.tasks_max or 1,
        bytes_max=request.bytes_max or TAKE_BYTES_DEFAULT,
        ttr_ms=request.ttr_ms if request.HasField("ttr_ms") else None,
        types=tuple(request.types),
        priority_bound=request.priority_bound if request.HasField("priority_bound") else None,
        task_id=request.task_id if request.HasField("task_id") else None,
        request_id=request.request_id,
        request_hash=hash_,
    )


def _failure(failure: task_pb2.Failure) -> core.Failure:
    return core.Failure(failure.type, failure.message, failure.fatal)


def _release(tokens: Sequence[int], release: task_service_pb2.Settlement.Release) -> core.Release:
    return core.Release(
        tokens=tokens,
        delay_ms=release.delay_ms,
        ttl_policy=_TTL_POLICIES[release.ttl_policy],
        ttl_ms=release.ttl_ms if release.HasField("ttl_ms") else None,
        position=_POSITIONS[release.position],
        uncounted=release.uncounted,
        failure=_failure(release.failure) if release.HasField("failure") else None,
    )


def _settlement(settlement: task_service_pb2.Settlement) -> core.Settlement:
    tokens = list(settlement.tokens)
    match settlement.WhichOneof("action"):
        case "ack":
            ack = settlement.ack
            result = ack.result if ack.HasField("result") else None
            return core.Ack(tokens, result, ack.result_content_type)
        case "release":
            return _release(tokens, settlement.release)
        case "bury":
            bury = settlement.bury
            failure = _failure(bury.failure) if bury.HasField("failure") else None
            return core.BuryTaken(tokens, failure)
        case "reject":
            # Without dead-letter tubes, giving a task up is burying it.
            reject = settlement.reject
            failure = _failure(reject.failure) if reject.HasField("failure") else None
            return core.BuryTaken(tokens, failure)
        case "touch":
            touch = settlement.touch
            return core.Touch(tokens, touch.increment_ms, touch.restart)
        case other:
            raise wire.Malformed(f"a settlement without a known action: {other}")


def _settle(request: task_service_pb2.SettleTasksRequest, _raw: bytes, hash_: int) -> core.Settle:
    settlements = [_settlement(settlement) for settlement in request.settlements]
    return core.Settle(settlements, request.atomic, request.request_id, hash_)


def _kick(request: task_service_pb2.KickTasksRequest, _raw: bytes, hash_: int) -> core.Kick:
    ids = list(request.selector.ids)
    count = request.count or 1
    return core.Kick(request.tube, count, ids, request.delay_ms, request.request_id, hash_)


def _bury(request: task_service_pb2.BuryTasksRequest, _raw: bytes, hash_: int) -> core.Bury:
    failure = _failure(request.failure) if request.HasField("failure") else None
    return core.Bury(request.tube, list(request.selector.ids), failure, request.request_id, hash_)


def _delete(request: task_service_pb2.DeleteTasksRequest, _raw: bytes, hash_: int) -> core.Delete:
    return core.Delete(request.tube, list(request.selector.ids), request.request_id, hash_)


# ------------------------------------------------------------------------------------------- tubes


def tube_options(options: tube_service_pb2.TubeOptions) -> core.TubeOptions:
    """Return the options with their defaults applied."""
    return core.TubeOptions(
        higher_first=options.priority_order == tube_service_pb2.TubeOptions.HIGHER_FIRST,
        priority=options.priority,
        delay_ms=options.delay_ms,
        ttl_ms=options.ttl_ms if options.HasField("ttl_ms") else core.FOREVER_MS,
        ttr_ms=options.ttr_ms if options.HasField("ttr_ms") else core.FOREVER_MS,
        put_paused=options.put_paused,
        take_paused=options.take_paused,
    )


def _create_tube(
    request: tube_service_pb2.CreateTubeRequest, _raw: bytes, hash_: int
) -> core.CreateTube:
    return core.CreateTube(
        name=request.tube.name,
        kind=core.TubeKind(request.tube.kind),
        options=tube_options(request.tube.options),
        body=request.tube.options.SerializeToString(deterministic=True),
        if_not_exists=request.if_not_exists,
        request_id=request.request_id,
        request_hash=hash_,
    )


def _drop_tube(request: tube_service_pb2.DropTubeRequest, _raw: bytes, hash_: int) -> core.DropTube:
    return core.DropTube(request.name, request.force, request.request_id, hash_)


def _truncate_tube(
    request: tube_service_pb2.TruncateTubeRequest, _raw: bytes, hash_: int
) -> core.TruncateTube:
    return core.TruncateTube(request.name, request.request_id, hash_)


def _release_all(
    request: tube_service_pb2.ReleaseAllRequest, _raw: bytes, hash_: int
) -> core.ReleaseAll:
    return core.ReleaseAll(request.name, request.request_id, hash_)


# ---------------------------------------------------------------------------------------- sessions


def _open_session(drawn: log_pb2.OpenSession, _raw: bytes, hash_: int) -> core.OpenSession:
    request = drawn.request
    ttr_ms = 0 if drawn.ends_with_stream else request.ttr_ms or SESSION_TTR_DEFAULT_MS
    return core.OpenSession(drawn.session_id, request.name, ttr_ms, request.request_id, hash_)


def _keep_sessions(
    request: session_service_pb2.KeepSessionsRequest, _raw: bytes, _hash: int
) -> core.KeepSessions:
    return core.KeepSessions(list(request.session_ids))


def _close_session(
    request: session_service_pb2.CloseSessionRequest, _raw: bytes, hash_: int
) -> core.CloseSession:
    return core.CloseSession(request.session_id, request.uncounted, request.request_id, hash_)


def _attach_session(message: log_pb2.AttachSession, _raw: bytes, _hash: int) -> core.AttachSession:
    return core.AttachSession(message.session_id, message.attached)


def _startup(message: log_pb2.Startup, _raw: bytes, _hash: int) -> core.Startup:
    return core.Startup(
        member_id=message.member_id,
        failover_grace_ms=message.failover_grace_ms,
        feed_id=message.feed_id,
        feed_partitions=message.feed_partitions,
    )


def _trim_feed(message: log_pb2.TrimFeed, _raw: bytes, _hash: int) -> core.TrimFeed:
    return core.TrimFeed(dict(message.low_seq))


# ------------------------------------------------------------------------------------------- forms

_IN_LOG: Final = log_pb2.Command

PUT: Final = Form(_IN_LOG.PUT_FIELD_NUMBER, task_service_pb2.PutTasksRequest, _put)
TAKE: Final = Form(_IN_LOG.TAKE_FIELD_NUMBER, task_service_pb2.TakeTasksRequest, _take)
SETTLE: Final = Form(_IN_LOG.SETTLE_FIELD_NUMBER, task_service_pb2.SettleTasksRequest, _settle)
KICK: Final = Form(_IN_LOG.KICK_FIELD_NUMBER, task_service_pb2.KickTasksRequest, _kick)
BURY: Final = Form(_IN_LOG.BURY_FIELD_NUMBER, task_service_pb2.BuryTasksRequest, _bury)
DELETE: Final = Form(_IN_LOG.DELETE_FIELD_NUMBER, task_service_pb2.DeleteTasksRequest, _delete)
CREATE_TUBE: Final = Form(
    _IN_LOG.CREATE_TUBE_FIELD_NUMBER, tube_service_pb2.CreateTubeRequest, _create_tube
)
DROP_TUBE: Final = Form(
    _IN_LOG.DROP_TUBE_FIELD_NUMBER, tube_service_pb2.DropTubeRequest, _drop_tube
)
TRUNCATE_TUBE: Final = Form(
    _IN_LOG.TRUNCATE_TUBE_FIELD_NUMBER, tube_service_pb2.TruncateTubeRequest, _truncate_tube
)
RELEASE_ALL: Final = Form(
    _IN_LOG.RELEASE_ALL_FIELD_NUMBER, tube_service_pb2.ReleaseAllRequest, _release_all
)
OPEN_SESSION: Final = Form(_IN_LOG.OPEN_SESSION_FIELD_NUMBER, log_pb2.OpenSession, _open_session)
KEEP_SESSIONS: Final = Form(
    _IN_LOG.KEEP_SESSIONS_FIELD_NUMBER, session_service_pb2.KeepSessionsRequest, _keep_sessions
)
CLOSE_SESSION: Final = Form(
    _IN_LOG.CLOSE_SESSION_FIELD_NUMBER, session_service_pb2.CloseSessionRequest, _close_session
)
ATTACH_SESSION: Final = Form(
    _IN_LOG.ATTACH_SESSION_FIELD_NUMBER, log_pb2.AttachSession, _attach_session
)
STARTUP: Final = Form(_IN_LOG.STARTUP_FIELD_NUMBER, log_pb2.Startup, _startup)
TRIM_FEED: Final = Form(_IN_LOG.TRIM_FEED_FIELD_NUMBER, log_pb2.TrimFeed, _trim_feed)


COMMANDS: Final[Mapping[int, Callable[[bytes, int], core.Command]]] = {
    PUT.number: PUT.decode,
    TAKE.number: TAKE.decode,
    SETTLE.number: SETTLE.decode,
    KICK.number: KICK.decode,
    BURY.number: BURY.decode,
    DELETE.number: DELETE.decode,
    CREATE_TUBE.number: CREATE_TUBE.decode,
    DROP_TUBE.number: DROP_TUBE.decode,
    TRUNCATE_TUBE.number: TRUNCATE_TUBE.decode,
    RELEASE_ALL.number: RELEASE_ALL.decode,
    OPEN_SESSION.number: OPEN_SESSION.decode,
    KEEP_SESSIONS.number: KEEP_SESSIONS.decode,
    CLOSE_SESSION.number: CLOSE_SESSION.decode,
    ATTACH_SESSION.number: ATTACH_SESSION.decode,
    STARTUP.number: STARTUP.decode,
    TRIM_FEED.number: TRIM_FEED.decode,
}
"""How to make a command from its bytes and its hash, by number."""
