"""Define the codec of one kind of command in the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from taskraft_service import wire
from taskraft_service.command_codecs.later_fields import has_later_fields, hide_later_fields
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.queue.operations.registry import Command
from taskraft_service.stubs.log.v1 import log_pb2
from taskraft_service.versions import HIGHEST, ClusterVersion

M = TypeVar("M", bound=Message)

V1: Final = ClusterVersion.V1
"""The cluster version of the commands of release 0.1.0."""


@dataclass(slots=True, frozen=True)
class CommandCodec(Generic[M]):
    """Field number, protobuf message and decoder of one kind of command."""

    name: str
    """Name of the field in ``log_pb2.Command``; the number of the field identifies the command."""

    message: type[M]
    build: Callable[[M, bytes, RequestKey], Command]
    """Builds the command from the message, the received bytes, and the key of the request."""

    since: ClusterVersion
    """First cluster version in which the leader may propose the command."""

    number: int = field(init=False)
    tag: bytes = field(init=False)
    """Tag of the field, which precedes the length of the request."""

    def __post_init__(self) -> None:
        found = log_pb2.Command.DESCRIPTOR.fields_by_name[self.name]
        assert found.message_type is self.message.DESCRIPTOR, f"{self.name} is another message"
        object.__setattr__(self, "number", found.number)
        object.__setattr__(self, "tag", wire.tag(found.number, wire.LENGTH))

    def decode(
        self,
        data: bytes,
        key: RequestKey,
        version: int = HIGHEST,
        at: int = 0,
        end: int | None = None,
    ) -> Command:
        """Return the command that a part of ``data`` encodes, as a cluster version reads it.

        Args:
            data: an entry of the log, or the encoded request alone.
            key: the key of the request.
            version: the cluster version.
            at: where the encoded request begins.
            end: where the encoded request ends; None: at the end of ``data``.
        """
        raw = data[at:end]
        message = self.message.FromString(raw)
        if self._has_later_fields(version):
            hide_later_fields(message, version)
            raw = message.SerializeToString()
        return self.build(message, raw, key)

    def _has_later_fields(self, version: int) -> bool:
        return version < HIGHEST and has_later_fields(self.message, version)
