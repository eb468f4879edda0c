"""Keep a command together with its bytes in the log.

A request enters the log as the received bytes, after the field number of its kind, so it is not
encoded again.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final, TypeVar

from google.protobuf.message import Message

from taskraft.v1 import (
    feed_service_pb2,
    group_service_pb2,
    schedule_service_pb2,
    session_service_pb2,
    task_service_pb2,
    tube_service_pb2,
)
from taskraft_service import wire
from taskraft_service.command_codecs.audit import act_message
from taskraft_service.command_codecs.command_codec import CommandCodec
from taskraft_service.command_codecs.put import specs_of
from taskraft_service.command_codecs.request_key import NO_KEY, RequestKey
from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.entities.ownership import EVERYBODY
from taskraft_service.queue.operations.registry import Command, LoggedCommand, ManagedCommand
from taskraft_service.queue.values import value
from taskraft_service.stubs.log.v1 import log_pb2
from taskraft_service.turns import next_turn
from taskraft_service.versions import LOWEST, ClusterVersion

M = TypeVar("M", bound=Message)

_HASH: Final = log_pb2.Command.REQUEST_HASH_FIELD_NUMBER
HASH_TAG: Final = wire.tag(_HASH, wire.FIXED64)
HASH_BYTES: Final = 8
HASHED_PART_BYTES: Final = 1 << 20
"""Size of the parts of a long request that are hashed without a pause: 1 ms on the event loop."""
_SCOPE: Final = log_pb2.Command.REQUEST_SCOPE_FIELD_NUMBER
SCOPE_TAG: Final = wire.tag(_SCOPE, wire.LENGTH)
_ACT: Final = log_pb2.Command.ACT_FIELD_NUMBER
ACT_TAG: Final = _ACT << 3 | wire.LENGTH
"""Number that tags the act of a command; the act precedes the request."""
OWNER_TAG: Final = wire.tag(log_pb2.Command.OWNER_FIELD_NUMBER, wire.LENGTH)
_MAPPED: Final = (
    feed_service_pb2.CommitCursorRequest,
    session_service_pb2.OpenSessionRequest,
    tube_service_pb2.CreateTubeRequest,
    tube_service_pb2.UpdateTubeRequest,
    schedule_service_pb2.CreateScheduleRequest,
    schedule_service_pb2.UpdateScheduleRequest,
    group_service_pb2.CreateGroupRequest,
    group_service_pb2.SetEndTaskRequest,
    task_service_pb2.ExecuteBatchRequest,
    task_service_pb2.KickTasksRequest,
    task_service_pb2.MoveTasksRequest,
    task_service_pb2.UpdateTasksRequest,
)
"""Requests that contain a map; puts and settlements may contain one too."""


@value
class EncodedCommand:
    """A command with its log encoding: ``head`` (key, field tag, length), then ``raw``."""

    command: Command
    head: bytes
    raw: bytes
    key: RequestKey = NO_KEY
    is_owed: bool = False
    """Whether the leader itself issued the command to end leases; such a command is never refused
    for overload."""
    since: ClusterVersion = LOWEST
    """First cluster version in which the command may be proposed."""
    act: ManagedAct | None = None
    """Act of management of the command; None: the command needs no permission to manage."""

    @property
    def logged(self) -> LoggedCommand:
        """The command as a replica decodes it from the log."""
        return self.command if self.act is None else ManagedCommand(self.command, self.act)

    @property
    def record_bytes(self) -> int:
        """Size of the command in an entry, in bytes."""
        return len(self.head) + len(self.raw)


def request_hash(request: Message, raw: bytes) -> int:
    """Return a hash that detects another request with the same scope and request_id; never 0.

    The hash covers the method: a delete never gets the answer to a bury with the same fields.

    Messages with maps are hashed with sorted keys, because some languages write a map in a new
    order each time, even when they repeat a request.
    """
    ordered = request.SerializeToString(deterministic=True) if _has_maps(request, raw) else raw
    # Earlier versions wrote the principal before the second NUL; it is part of the scope now.
    # Processors have instructions for SHA-256, which then takes a quarter of the time of BLAKE2b.
    digest = hashlib.sha256(f"{request.DESCRIPTOR.full_name}\0\0".encode())
    digest.update(ordered)
    return int.from_bytes(digest.digest()[:HASH_BYTES], "little") or 1


async def request_hash_in_parts(request: Message, raw: bytes) -> int:
    """Return ``request_hash`` of a long request; other work runs after each ``HASHED_PART_BYTES``.

    The hash of the longest request takes 25 ms.
    """
    ordered = request.SerializeToString(deterministic=True) if _has_maps(request, raw) else raw
    digest = hashlib.sha256(f"{request.DESCRIPTOR.full_name}\0\0".encode())
    for at in range(0, len(ordered), HASHED_PART_BYTES):
        digest.update(memoryview(ordered)[at : at + HASHED_PART_BYTES])
        await next_turn()
    return int.from_bytes(digest.digest()[:HASH_BYTES], "little") or 1


def _has_maps(request: Message, raw: bytes) -> bool:
    """Return whether a request may contain a map."""
    if isinstance(request, task_service_pb2.PutTasksRequest):
        return None in specs_of(raw).plain_bytes
    if isinstance(request, task_service_pb2.SettleTasksRequest):
        return any(
            one.release.HasField("update") or one.bury.HasField("update")
            for one in request.settlements
        )
    return isinstance(request, _MAPPED)


def encode_request(
    codec: CommandCodec[M],
    message: M,
    raw: bytes,
    key: RequestKey = NO_KEY,
    act: ManagedAct | None = None,
) -> EncodedCommand:
    """Return a checked request as a command with its log encoding."""
    command = codec.build(message, raw, key)
    head = codec.tag + wire.varint(len(raw))
    if act is not None:
        head = wire.length_delimited(_ACT, act_message(act).SerializeToString()) + head
    if key.owner is not EVERYBODY:
        owner = log_pb2.Ownership(
            principal=key.owner.principal, changes_all=key.owner.changes_all
        ).SerializeToString()
        head = OWNER_TAG + wire.varint(len(owner)) + owner + head
    if key.scope:
        head = wire.length_delimited(_SCOPE, key.scope.encode()) + head
    if key.hash:
        head = HASH_TAG + key.hash.to_bytes(HASH_BYTES, "little") + head
    return EncodedCommand(command, head, raw, key, since=codec.since, act=act)


def encode_leader_command(
    codec: CommandCodec[M],
    message: M,
    key: RequestKey = NO_KEY,
    act: ManagedAct | None = None,
    *,
    is_owed: bool = False,
) -> EncodedCommand:
    """Return a message of the leader as a command with its log encoding."""
    encoded = encode_request(codec, message, message.SerializeToString(), key, act)
    return replace(encoded, is_owed=True) if is_owed else encoded
