"""Say how one kind of command stands in the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from taskraft_replication.stubs.log.v1 import log_pb2
from taskraft_service.queue.operations.registry import Command

M = TypeVar("M", bound=Message)

LOG_FIELDS: Final = log_pb2.Command
"""Where the numbers of the kinds come from."""


@dataclass(slots=True, frozen=True)
class CommandCodec(Generic[M]):
    """How one kind of command stands in the log: under which number, as which message."""

    number: int
    message: type[M]
    build: Callable[[M, bytes, int], Command]
    """Makes the command from the message, the bytes in which it came, and its hash."""

    def decode(self, raw: bytes, request_hash: int) -> Command:
        """Return the command that ``raw`` stands for."""
        return self.build(self.message.FromString(raw), raw, request_hash)
