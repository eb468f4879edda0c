"""Encode commands and their timestamp as a log entry, and decode log entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from taskraft_service import wire
from taskraft_service.command_codecs.audit import act_of
from taskraft_service.command_codecs.registry import DECODERS
from taskraft_service.command_codecs.request_key import NO_KEY, RequestKey
from taskraft_service.entries.encoded_command import (
    ACT_TAG,
    HASH_BYTES,
    HASH_TAG,
    OWNER_TAG,
    SCOPE_TAG,
    EncodedCommand,
)
from taskraft_service.queue.entities.ownership import Ownership
from taskraft_service.queue.operations.registry import LoggedCommand, ManagedCommand
from taskraft_service.stubs.log.v1 import log_pb2
from taskraft_service.versions import HIGHEST

_ENTRY_NOW: Final = wire.tag(log_pb2.LogEntry.NOW_MS_FIELD_NUMBER, wire.VARINT)
_ENTRY_COMMAND: Final = wire.tag(log_pb2.LogEntry.COMMANDS_FIELD_NUMBER, wire.LENGTH)


def encode_entry(now_ms: int, encoded: Sequence[EncodedCommand]) -> bytes:
    """Return the log entry (taskraft.log.v1.LogEntry) of the commands and their timestamp."""
    parts = [_ENTRY_NOW, wire.varint(now_ms)]
    for one in encoded:
        head, raw = one.head, one.raw
        parts += (_ENTRY_COMMAND, wire.varint(len(head) + len(raw)), head, raw)
    return b"".join(parts)


def decode_entry(data: bytes, version: int = HIGHEST) -> tuple[int, list[LoggedCommand]]:
    """Return the timestamp and the commands of a log entry, as a cluster version reads them.

    Raises:
        wire.WireMalformed: the bytes are not an entry, or contain a command of a later version.
    """
    if not data.startswith(_ENTRY_NOW):
        raise wire.WireMalformed("a log entry does not begin with its time")
    now_ms, at = wire.read_varint(data, len(_ENTRY_NOW))
    commands: list[LoggedCommand] = []
    end = len(data)
    while at < end:
        if not data.startswith(_ENTRY_COMMAND, at):
            raise wire.WireMalformed("a log entry has an unknown field")
        size, at = wire.read_varint(data, at + len(_ENTRY_COMMAND))
        stop = at + size
        commands.append(_decode_command(data, at, stop, version))
        at = stop
    return now_ms, commands


def _decode_command(data: bytes, at: int, stop: int, version: int) -> LoggedCommand:
    """Return the command between two positions of an entry."""
    key = NO_KEY
    if data.startswith(HASH_TAG, at):
        key, at = _decode_key(data, at + len(HASH_TAG))
    if data.startswith(OWNER_TAG, at):
        size, at = wire.read_varint(data, at + len(OWNER_TAG))
        owner = log_pb2.Ownership.FromString(data[at : at + size])
        key = replace(key, owner=Ownership(owner.principal, owner.changes_all))
        at += size
    tag, at = wire.read_varint(data, at)
    act = None
    if tag == ACT_TAG:
        size, at = wire.read_varint(data, at)
        act = act_of(log_pb2.ManagedAct.FromString(data[at : at + size]))
        tag, at = wire.read_varint(data, at + size)
    size, at = wire.read_varint(data, at)
    if at + size != stop or stop > len(data):
        raise wire.WireMalformed("a command is cut off, or holds more than one request")
    decode = DECODERS.get(tag >> 3)
    if decode is None or tag & 7 != wire.LENGTH:
        raise wire.WireMalformed("a log entry holds a command of an unknown kind")
    command = decode(data, key, version, at, stop)
    return command if act is None else ManagedCommand(command, act)


def _decode_key(data: bytes, at: int) -> tuple[RequestKey, int]:
    """Return the key of a request, whose hash begins at ``at``, and the offset of its end.

    An entry of a version without scopes has none; its request ids belong to the empty scope.

    Raises:
        wire.WireMalformed: the scope is not UTF-8.
    """
    hash_of_request = int.from_bytes(data[at : at + HASH_BYTES], "little")
    at += HASH_BYTES
    scope = ""
    if data.startswith(SCOPE_TAG, at):
        size, at = wire.read_varint(data, at + len(SCOPE_TAG))
        try:
            scope = data[at : at + size].decode()
        except UnicodeDecodeError as error:
            raise wire.WireMalformed("the scope of a request_id is not UTF-8") from error
        at += size
    return RequestKey(hash_of_request, scope), at
