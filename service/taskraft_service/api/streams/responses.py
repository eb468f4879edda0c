"""Encode the responses of a stream, and buffer them until flow control accepts them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import wire
from taskraft_service.api.rpc.call_load import CallLoad
from taskraft_service.api.rpc.status import CallRefused, error_message, item_errors
from taskraft_service.api.tasks.answers import encode_leases, given_up_leases, touched_leases
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.operations.settlements import SettleResult

UNSENT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Size of the unsent responses of a stream above which the stream takes no further tasks."""
MESSAGE_BYTES_TARGET: Final = 1024 * 1024
"""Approximate maximum size of one message; a single larger task is sent alone."""
HELD_BYTES_MAX: Final = 3 * 1024 * 1024
"""Maximum size of the tasks in one first response of a stream. With a heartbeat that names
100 000 cancelled leases, the message stays below the 4 MiB that gRPC clients accept."""
_HELD: Final = pb.SubscribeResponse.Opened.HELD_FIELD_NUMBER
_HELD_CONTINUES: Final = wire.tag(
    pb.SubscribeResponse.Opened.HELD_CONTINUES_FIELD_NUMBER, wire.VARINT
)


class ResponseBuffer:
    """Encoded parts of SubscribeResponse, in order of sending.

    Several parts are concatenated into one message; in protobuf's wire format this merges them.

    Args:
        load: counts the unsent bytes of all streams.
    """

    def __init__(self, load: CallLoad) -> None:
        self._load = load
        self._unsent_bytes = 0
        self._sending_bytes = 0
        """Size of the last message that ``next`` returned; the message is unsent until ``sent``."""
        self._parts: deque[tuple[bytes, int]] = deque()
        self._ready = asyncio.Event()
        self.ended = False

    def add(self, part: bytes, token: int = 0) -> None:
        """Append a part; ``token`` is the lease token of a task, 0 for other content."""
        self._parts.append((part, token))
        self._count(len(part))
        self._ready.set()

    def add_tasks(self, parts: Sequence[bytes], tokens: Iterable[int]) -> None:
        """Append encoded tasks with their lease tokens."""
        self._parts.extend(zip(parts, tokens, strict=True))
        self._count(sum(map(len, parts)))
        self._ready.set()

    def _count(self, more_bytes: int) -> None:
        self._unsent_bytes += more_bytes
        self._load.held_bytes += more_bytes

    @property
    def is_full(self) -> bool:
        """Return whether the client must read before the stream takes further tasks."""
        unsent = self._unsent_bytes
        return unsent >= UNSENT_BYTES_MAX or (unsent > 0 and not self._load.may_buffer_responses)

    def wake_writer(self) -> None:
        """Wake the writer even if the buffer is empty."""
        self._ready.set()

    def add_message(self, message: pb.SubscribeResponse) -> None:
        """Append a message to the responses."""
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
        self._sending_bytes = size
        if not self._parts and not self.ended:
            self._ready.clear()
        return None if self.ended and not message else b"".join(message)

    def sending(self, message: bytes) -> None:
        """Count a message that is written past the buffer, until ``sent``."""
        self._count(len(message))
        self._sending_bytes = len(message)

    def sent(self) -> None:
        """Record that the client's flow control has accepted the last message."""
        self._count(-self._sending_bytes)
        self._sending_bytes = 0

    def unsent(self) -> list[int]:
        """Empty the buffer; return the lease tokens of its unsent tasks."""
        tokens = [token for _, token in self._parts if token]
        self._count(-self._unsent_bytes)
        self._sending_bytes = 0
        self._parts.clear()
        return tokens


def encode_opened(
    session_id: str, queues: QueueLocator, wall_offset_ms: int
) -> AsyncIterator[bytes]:
    """Return the encoded first responses of a stream: the session and the tasks that it holds now.

    The tasks are read in slices when the next response is needed, with a turn of the event loop in
    between. Leases that end meanwhile are left out. Each response has at most ``HELD_BYTES_MAX`` of
    tasks.
    """
    tokens = queues.lease_tokens(session_id)
    return _opened_parts(session_id, encode_leases(queues, tokens, _HELD, wall_offset_ms))


async def _opened_parts(
    session_id: str, leases: AsyncIterator[list[bytes]]
) -> AsyncIterator[bytes]:
    held: list[bytes] = []
    size = 0
    async for tasks in leases:
        for task in tasks:
            if held and size + len(task) > HELD_BYTES_MAX:
                yield _opened_part(session_id, held, continues=True)
                held, size = [], 0
            held.append(task)
            size += len(task)
    yield _opened_part(session_id, held, continues=False)


def _opened_part(session_id: str, held: Sequence[bytes], *, continues: bool) -> bytes:
    """Return the session and some of its tasks as one response.

    False is written too, because it ends the list even where two parts are sent as one message.
    """
    session = pb.SubscribeResponse.Opened(session_id=session_id).SerializeToString()
    content = b"".join((session, *held, _HELD_CONTINUES, wire.varint(continues)))
    return wire.length_delimited(pb.SubscribeResponse.OPENED_FIELD_NUMBER, content)


def settled_message(request_id: str, outcome: AppliedCommand | CallRefused) -> pb.SubscribeResponse:
    """Return the response to one message of settlements."""
    settled = pb.SubscribeResponse.Settled(request_id=request_id)
    if isinstance(outcome, CallRefused):
        settled.error.reason = error_pb2.Error.Reason.ValueType(outcome.reason)
        settled.error.message = outcome.message
        settled.error.metadata.update(outcome.metadata)
    elif isinstance(outcome.result, Refusal):
        settled.error.CopyFrom(error_message(outcome.result))
    else:
        assert isinstance(outcome.result, SettleResult)
        settled.errors.extend(item_errors(outcome.result.refused))
        settled.touched.extend(touched_leases(outcome, outcome.result))
        settled.given_up.extend(given_up_leases(outcome.result))
    return pb.SubscribeResponse(settled=[settled])
