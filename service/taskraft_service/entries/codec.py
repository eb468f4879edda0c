"""Write the commands of one moment as a log entry, and read them back.

A request enters the log as the bytes in which it came, under the number that tells its kind, so
that nothing is encoded twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from taskraft.v1 import (
    feed_service_pb2,
    group_service_pb2,
    schedule_service_pb2,
    task_service_pb2,
    tube_service_pb2,
)
from taskraft_replication.stubs.log.v1 import log_pb2
from taskraft_service import wire
from taskraft_service.forms import COMMANDS, Form, specs_of
from taskraft_service.queue.commands.command import Command
from taskraft_service.queue.values import value

M = TypeVar("M", bound=Message)

_ENTRY_NOW: Final = wire.tag(log_pb2.LogEntry.NOW_MS_FIELD_NUMBER, wire.VARINT)
_ENTRY_COMMAND: Final = wire.tag(log_pb2.LogEntry.COMMANDS_FIELD_NUMBER, wire.LENGTH)
_HASH: Final = log_pb2.Command.REQUEST_HASH_FIELD_NUMBER
_HASH_TAG: Final = wire.tag(_HASH, wire.FIXED64)
_HASH_BYTES: Final = 8
_MAPPED: Final = (
    feed_service_pb2.CommitCursorRequest,
    tube_service_pb2.CreateTubeRequest,
    schedule_service_pb2.CreateScheduleRequest,
    schedule_service_pb2.UpdateScheduleRequest,
    group_service_pb2.CreateGroupRequest,
    task_service_pb2.ExecuteBatchRequest,
    task_service_pb2.KickTasksRequest,
    task_service_pb2.MoveTasksRequest,
    task_service_pb2.UpdateTasksRequest,
)
"""Requests that hold a map; puts and settlements may hold some too."""


@value
class Recorded:
    """A command and the bytes that stand for it in the log: ``head``, then ``raw``."""

    command: Command
    head: bytes
    raw: bytes

    @property
    def record_bytes(self) -> int:
        """How many bytes it adds to an entry."""
        return len(self.head) + len(self.raw)


def request_hash(request: Message, raw: bytes, principal: str = "") -> int:
    """Return what tells a repetition from another request under the same request_id; never 0.

    It is another for another principal and for another method: nobody gets the answer to somebody
    else's request, and a deletion not that of the burial which looked the same.

    Messages with maps are hashed in a fixed order of their keys, since some languages write a map
    in a new order each time, also when they repeat a request.
    """
    ordered = request.SerializeToString(deterministic=True) if _has_maps(request, raw) else raw
    # No name of a method has a NUL, nor has a principal: what follows cannot pass for one of them.
    named = f"{request.DESCRIPTOR.full_name}\0{principal}\0".encode()
    digest = hashlib.blake2b(named, digest_size=_HASH_BYTES)
    digest.update(ordered)
    return int.from_bytes(digest.digest(), "little") or 1


def _has_maps(request: Message, raw: bytes) -> bool:
    """Tell whether a request may hold a map."""
    if isinstance(request, task_service_pb2.PutTasksRequest):
        return not specs_of(raw).are_plain
    if isinstance(request, task_service_pb2.SettleTasksRequest):
        return any(
            one.release.HasField("update") or one.bury.HasField("update")
            for one in request.settlements
        )
    return isinstance(request, _MAPPED)


def record(form: Form[M], message: M, raw: bytes, hash_of_request: int = 0) -> Recorded:
    """Return a checked request as a command with its bytes."""
    command = form.command(message, raw, hash_of_request)
    head = wire.tag(form.number, wire.LENGTH) + wire.varint(len(raw))
    if hash_of_request:
        head = _HASH_TAG + hash_of_request.to_bytes(_HASH_BYTES, "little") + head
    return Recorded(command, head, raw)


def record_own(form: Form[M], message: M, hash_of_request: int = 0) -> Recorded:
    """Return a message that the leader itself wrote as a command with its bytes."""
    return record(form, message, message.SerializeToString(), hash_of_request)


def encode_entry(now_ms: int, recorded: Sequence[Recorded]) -> bytes:
    """Return the log entry (taskraft.log.v1.LogEntry) of these commands at this time."""
    parts = [_ENTRY_NOW, wire.varint(now_ms)]
    for one in recorded:
        parts += (_ENTRY_COMMAND, wire.varint(one.record_bytes), one.head, one.raw)
    return b"".join(parts)


def decode_entry(data: bytes) -> tuple[int, list[Command]]:
    """Return the time and the commands of a log entry.

    Raises:
        wire.WireMalformed: the bytes are not an entry, or hold a command of a later version.
    """
    if not data.startswith(_ENTRY_NOW):
        raise wire.WireMalformed("a log entry does not begin with its time")
    now_ms, at = wire.read_varint(data, len(_ENTRY_NOW))
    commands: list[Command] = []
    end = len(data)
    while at < end:
        if not data.startswith(_ENTRY_COMMAND, at):
            raise wire.WireMalformed("a log entry has an unknown field")
        size, at = wire.read_varint(data, at + len(_ENTRY_COMMAND))
        stop = at + size
        commands.append(_decode_command(data, at, stop))
        at = stop
    return now_ms, commands


def _decode_command(data: bytes, at: int, stop: int) -> Command:
    """Return the command between two places of an entry; its bytes are copied once."""
    hash_of_request = 0
    if data.startswith(_HASH_TAG, at):
        at += len(_HASH_TAG)
        hash_of_request = int.from_bytes(data[at : at + _HASH_BYTES], "little")
        at += _HASH_BYTES
    key, at = wire.read_varint(data, at)
    size, at = wire.read_varint(data, at)
    if at + size != stop or stop > len(data):
        raise wire.WireMalformed("a command is cut off, or holds more than one request")
    decode = COMMANDS.get(key >> 3)
    if decode is None or key & 7 != wire.LENGTH:
        raise wire.WireMalformed("a log entry holds a command of an unknown kind")
    return decode(data[at:stop], hash_of_request)
