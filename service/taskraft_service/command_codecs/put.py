"""Decode a put; the bytes of its TaskSpecs are kept unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from taskraft.v1 import task_pb2, task_service_pb2
from taskraft_service import wire
from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.command_codecs.retry_policy import retry_policy
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.new_task import (
    AMONG_UNFINISHED,
    Dependencies,
    ItemReference,
    NewTask,
    OnConflict,
    TaskReference,
    UniqueAmong,
)
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import OnDependencyFailure
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.registry import Command
from taskraft_service.queue.values import value
from taskraft_service.versions import HIGHEST

_TASKS: Final = task_service_pb2.PutTasksRequest.TASKS_FIELD_NUMBER
_PAYLOAD: Final = task_pb2.TaskSpec.PAYLOAD_FIELD_NUMBER

POSITIONS: Final[Mapping[int, Position]] = {position.value: position for position in Position}


@value
class Specs:
    """The TaskSpecs of a put as received.

    ``plain_bytes`` has the payload size of each spec that contains only a payload, None for the
    others.
    """

    bodies: Sequence[bytes]
    plain_bytes: Sequence[int | None]


class _LastSpecs:
    """Keeps the last result of ``specs_of``, because several steps of a call need the result.

    A cache by content would hash the content of each request: 10 ms for 30 MiB.
    """

    found: ClassVar[tuple[bytes, Specs]] = b"", Specs((), ())


def specs_of(raw: bytes) -> Specs:
    """Return the TaskSpecs of a PutTasksRequest.

    The last result is kept, because the checks, the hash and the command of a call need it.

    Raises:
        wire.WireMalformed: ``raw`` is not a message.
    """
    last, specs = _LastSpecs.found
    if raw is not last:
        specs, _ = _split(raw, 0, len(raw))
        _LastSpecs.found = raw, specs
    return specs


def _split(data: bytes, at: int, end: int) -> tuple[Specs, bytes]:
    """Return the TaskSpecs of the put between two positions, and the put without them."""
    bodies, rest = wire.split(data, at, end, _TASKS)
    plain_bytes: list[int | None] = []
    length, prefix = -1, b""
    plain: int | None = None
    for body in bodies:
        if len(body) != length:
            length = len(body)
            prefix = wire.sole_field_prefix(_PAYLOAD, length)
            plain = length - len(prefix)
        plain_bytes.append(plain if prefix and body.startswith(prefix) else None)
    return Specs(bodies, plain_bytes), rest


def plain_payload_bytes(body: bytes) -> int | None:
    """Return the payload size of a TaskSpec that contains only a payload, otherwise None.

    Most tasks contain only a payload, and their first bytes show this without parsing.
    """
    prefix = wire.sole_field_prefix(_PAYLOAD, len(body))
    if prefix and body.startswith(prefix):
        return len(body) - len(prefix)
    return None


def payload_bytes(body: bytes) -> int:
    """Return the payload size of a TaskSpec as received."""
    plain = plain_payload_bytes(body)
    return len(task_pb2.TaskSpec.FromString(body).payload) if plain is None else plain


def new_task(body: bytes) -> NewTask:
    """Return the new task of a TaskSpec as received."""
    return _new_task(body, plain_payload_bytes(body))


def _new_task(body: bytes, plain_bytes: int | None) -> NewTask:
    if plain_bytes is not None:
        return NewTask(body, plain_bytes)
    spec = task_pb2.TaskSpec.FromString(body)
    has = spec.HasField
    # Positional arguments, because keyword arguments would add 1 us, which doubles the time of
    # parsing.
    return NewTask(
        body,
        len(spec.payload),
        spec.priority if has("priority") else None,
        spec.delay_ms if has("delay_ms") else None,
        spec.ttl_ms if has("ttl_ms") else None,
        spec.ttr_ms if has("ttr_ms") else None,
        spec.visible_at_ms if has("visible_at_ms") else None,
        spec.type,
        spec.subqueue,
        POSITIONS[spec.position],
        retry_policy(spec.retry) if has("retry") else None,
        tuple(spec.unique_key),
        spec.group,
        OnConflict(spec.on_conflict or OnConflict.FAIL),
        _unique_among(spec) if spec.unique_key else AMONG_UNFINISHED,
        _dependencies(spec) if spec.depends_on else None,
    )


def _dependencies(spec: task_pb2.TaskSpec) -> Dependencies:
    """Return the dependencies of a new task."""
    references = tuple(
        TaskReference(one.task.tube, one.task.id)
        if one.HasField("task")
        else ItemReference(one.item)
        for one in spec.depends_on
    )
    on_failure = spec.on_dependency_failure or OnDependencyFailure.CANCEL
    return Dependencies(references, OnDependencyFailure(on_failure))


def _unique_among(spec: task_pb2.TaskSpec) -> UniqueAmong:
    """Return the tasks among which the key of a new task is unique."""
    states = tuple(map(State, spec.unique_states)) or AMONG_UNFINISHED.states
    ms = spec.unique_ms if spec.HasField("unique_ms") else FOREVER_MS
    return UniqueAmong(states, ms)


def _put(
    request: task_service_pb2.PutTasksRequest,
    raw: bytes,
    key: RequestKey,
    specs: Specs | None = None,
) -> Put:
    specs = specs or specs_of(raw)
    tasks = list(map(_new_task, specs.bodies, specs.plain_bytes))
    waits = request.room_wait_ms > 0
    request_id = key.scope + request.request_id
    return Put(request.tube, tasks, request.atomic, request_id, key.hash, waits, key.owner)


class PutCodec(CommandCodec[task_service_pb2.PutTasksRequest]):
    """Decodes a put without its tasks: a put of 30 MiB is copied once instead of three times."""

    __slots__ = ()

    def decode(
        self,
        data: bytes,
        key: RequestKey,
        version: int = HIGHEST,
        at: int = 0,
        end: int | None = None,
    ) -> Command:
        """Return the put that a part of ``data`` encodes; see ``CommandCodec``.

        Raises:
            wire.WireMalformed: the bytes are not a message.
        """
        if self._has_later_fields(version):
            return CommandCodec.decode(self, data, key, version, at, end)
        specs, rest = _split(data, at, len(data) if end is None else end)
        return _put(self.message.FromString(rest), rest, key, specs)


PUT: Final = PutCodec("put", task_service_pb2.PutTasksRequest, _put, V1)
