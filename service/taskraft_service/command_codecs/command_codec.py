"""Define the codec of one kind of command in the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from taskraft_replication.stubs.log.v1 import log_pb2
from taskraft_service.command_codecs.later_fields import has_later_fields, hide_later_fields
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.queue.operations.registry import Command
from taskraft_service.versions import HIGHEST, LOWEST, ClusterVersion

M = TypeVar("M", bound=Message)

LOG_FIELDS: Final = log_pb2.Command
"""The message whose field numbers identify the kinds of commands."""


@dataclass(slots=True, frozen=True)
class CommandCodec(Generic[M]):
    """Field number, protobuf message and decoder of one kind of command."""

    number: int
    message: type[M]
    build: Callable[[M, bytes, RequestKey], Command]
    """Builds the command from the message, the received bytes, and the key of the request."""

    since: ClusterVersion = LOWEST
    """First cluster version in which the leader may propose the command."""

    def decode(self, raw: bytes, key: RequestKey, version: int = HIGHEST) -> Command:
        """Return the command that ``raw`` encodes, as cluster version ``version`` reads it."""
        message = self.message.FromString(raw)
        if version < HIGHEST and has_later_fields(self.message, version):
            hide_later_fields(message, version)
            raw = message.SerializeToString()
        return self.build(message, raw, key)
