"""Buffer the encoded responses of a stream until flow control accepts them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from taskraft.v1 import task_service_pb2 as pb

MESSAGE_BYTES_TARGET: Final = 1024 * 1024
"""Approximate maximum size of one message; a single larger task is sent alone."""


class ResponseBuffer:
    """Encoded parts of SubscribeResponse, in order of sending.

    Several parts are concatenated into one message; in protobuf's wire format this merges them.
    """

    def __init__(self) -> None:
        self._parts: deque[tuple[bytes, int]] = deque()
        self._ready = asyncio.Event()
        self.ended = False

    def add(self, part: bytes, token: int = 0) -> None:
        """Append a part; ``token`` is the lease token of a task, 0 for other content."""
        self._parts.append((part, token))
        self._ready.set()

    def add_tasks(self, parts: Iterable[bytes], tokens: Iterable[int]) -> None:
        """Append encoded tasks with their lease tokens."""
        self._parts.extend(zip(parts, tokens, strict=True))
        self._ready.set()

    def wake_writer(self) -> None:
        """Wake the writer even if the buffer is empty."""
        self._ready.set()

    def add_message(self, message: pb.SubscribeResponse) -> None:
        """Append a message."""
        self.add(message.SerializeToString())

    def end(self, message: pb.SubscribeResponse | None = None) -> None:
        """End the stream after a last message, if one is given."""
        if self.ended:
            return
        if message is not None:
            self.add_message(message)
        self.ended = True
        self._ready.set()

    async def next(self) -> bytes | None:
        """Return the next message; None at the end; an empty message after ``wake_writer``."""
        if not self._parts and not self.ended:
            await self._ready.wait()
        message: list[bytes] = []
        size = 0
        while self._parts and (
            not message or size + len(self._parts[0][0]) <= MESSAGE_BYTES_TARGET
        ):
            part, _ = self._parts.popleft()
            message.append(part)
            size += len(part)
        if not self._parts and not self.ended:
            self._ready.clear()
        return None if self.ended and not message else b"".join(message)

    def unsent(self) -> list[int]:
        """Empty the buffer; return the lease tokens of its unsent tasks."""
        tokens = [token for _, token in self._parts if token]
        self._parts.clear()
        return tokens
