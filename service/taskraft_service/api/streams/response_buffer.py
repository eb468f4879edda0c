"""Hold what is to be sent on a stream until the stream takes it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from taskraft.v1 import task_service_pb2 as pb

MESSAGE_BYTES_TARGET: Final = 1024 * 1024
"""One message of the stream is about so large at most (a single larger task excepted)."""


class ResponseBuffer:
    """What is to be sent on a stream, in order: parts of SubscribeResponse on the wire.

    Parts of one message are concatenated: in protobuf's wire format that merges them.
    """

    def __init__(self) -> None:
        self._parts: deque[tuple[bytes, int]] = deque()
        self._ready = asyncio.Event()
        self.ended = False

    def add(self, part: bytes, token: int = 0) -> None:
        """Append a part; ``token`` is the lease of a task, 0 for everything else."""
        self._parts.append((part, token))
        self._ready.set()

    def add_tasks(self, parts: Iterable[bytes], tokens: Iterable[int]) -> None:
        """Append tasks, each with its lease."""
        self._parts.extend(zip(parts, tokens, strict=True))
        self._ready.set()

    def stir(self) -> None:
        """Wake the writer although there may be nothing to send."""
        self._ready.set()

    def add_message(self, message: pb.SubscribeResponse) -> None:
        """Append what a message says."""
        self.add(message.SerializeToString())

    def end(self, message: pb.SubscribeResponse | None = None) -> None:
        """Let nothing follow any more, but this."""
        if self.ended:
            return
        if message is not None:
            self.add_message(message)
        self.ended = True
        self._ready.set()

    async def next(self) -> bytes | None:
        """Return the next message; None at the end; an empty one when the outbox was stirred."""
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
        """Return the leases of tasks that will not be sent any more, and forget everything."""
        tokens = [token for _, token in self._parts if token]
        self._parts.clear()
        return tokens
