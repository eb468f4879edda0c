"""Move the messages of one Subscribe stream between its client and its subscription."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import wire
from taskraft_service.access.leases import own_settlements
from taskraft_service.api.rpc.methods import MessageStream, parse_request
from taskraft_service.api.rpc.status import CallRefused, refused_for
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.streams.checks import check_stream_message
from taskraft_service.api.streams.subscription_state import SubscriptionState, settled_message
from taskraft_service.api.tasks.settle_checks import check_settlements
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.entries.encoded_command import (
    encode_leader_command,
    encode_request,
    request_hash,
)
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    CommandSubmitter,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.waiters import Waiters
from taskraft_service.limits import HEARTBEAT_MS

SETTLES_IN_HAND_MAX: Final = 256
"""Messages of settlements without answer on one stream; above it, the stream is not read."""
SILENCE_MAX_MS: Final = 45_000
"""A client says something at least every 15 s; three times that without a word ends its stream."""
BEAT_PAUSE_MS: Final = 1_000
"""Heartbeats follow each other no faster: a client that answers each by asking for the next would
keep both sides busy with nothing else."""
_SETTLEMENTS: Final = pb.SubscribeRequest.SETTLEMENTS_FIELD_NUMBER
_TO_SETTLE: Final = pb.SettleTasksRequest.SETTLEMENTS_FIELD_NUMBER
_REQUEST_ID: Final = pb.SettleTasksRequest.REQUEST_ID_FIELD_NUMBER


class SubscribeStream:
    """Reads what the client says and writes what it is told, until one of the two ends."""

    def __init__(
        self,
        subscription: SubscriptionState,
        stream: MessageStream,
        submitter: CommandSubmitter,
        waiters: Waiters,
        reader: QueueReader,
        payload_bytes_max: int,
    ) -> None:
        self._reader = reader
        self._payload_bytes_max = payload_bytes_max
        self._caller = subscription.caller
        self._subscription = subscription
        self._stream = stream
        self._submitter = submitter
        self._waiters = waiters
        self._settles: deque[tuple[str, asyncio.Future[AppliedCommand] | CallRefused]] = deque()
        self._settles_free = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._is_beat_due = False
        self._beaten_at = self._heard_at - BEAT_PAUSE_MS / 1000
        self._beat_timer: asyncio.TimerHandle | None = None

    async def run(self, first: bytes, beat: Callable[[], pb.SubscribeResponse]) -> None:
        """Read until the client or the server ends the stream.

        Raises:
            Refused: a message of the client breaks a limit.
        """
        self._arm_beat(HEARTBEAT_MS)
        reader = self._loop.create_task(self._read(first))
        writer = self._loop.create_task(self._write(beat))
        try:
            await self._until_end(reader, writer)
            if writer.done() and not reader.done():
                writer.result()
                return
            if reader.done():
                reader.result()
            await self._finish(writer)
        finally:
            self._disarm_beat()
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _until_end(self, *halves: asyncio.Task[None]) -> None:
        """Wait until one half of the stream has ended, or the client was silent for too long.

        One timer for a stream, not one for each of its messages.
        """
        while (left := self._heard_at + SILENCE_MAX_MS / 1000 - self._loop.time()) > 0:
            done, _ = await asyncio.wait(halves, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
            if len(self._settles) >= SETTLES_IN_HAND_MAX:
                # It may have spoken: it is not listened to.
                self._heard_at = self._loop.time()

    async def _finish(self, writer: asyncio.Task[None]) -> None:
        """Answer the settlements in hand after the client has closed its side."""
        while self._settles:
            self._settles_free.clear()
            await self._settles_free.wait()
        self._subscription.outbox.end()
        await writer

    # ------------------------------------------------------------------------------ from the client

    async def _read(self, first: bytes) -> None:
        self._take_in(first, is_first=True)
        while (raw := await self._stream.read()) is not None:
            self._heard_at = self._loop.time()
            self._take_in(raw, is_first=False)
            while len(self._settles) >= SETTLES_IN_HAND_MAX:
                self._settles_free.clear()
                await self._settles_free.wait()

    def _take_in(self, raw: bytes, *, is_first: bool) -> None:
        message = parse_request(pb.SubscribeRequest, raw)
        if self._caller.is_restricted:
            self._caller.revalidate()
            self._caller.authorize(message)
        check_stream_message(message, self._subscription.tasks_open, is_first=is_first)
        if message.HasField("filter"):
            self._subscription.filter(message.filter)
            self._waiters.filter_changed(self._subscription)
            self._submitter.wake()
        if message.HasField("credit"):
            self._subscription.grant(message.credit)
            self._waiters.requeue(self._subscription)
            self._submitter.wake()
        if message.settlements:
            self._settle(message, raw)
        if message.heartbeat:
            self._arm_beat(BEAT_PAUSE_MS)

    def _settle(self, message: pb.SubscribeRequest, raw: bytes) -> None:
        """Propose the settlements of one message; answers are sent in order of the messages."""
        answer: asyncio.Future[AppliedCommand] | CallRefused
        try:
            answer = self._submit(message, raw)
            answer.add_done_callback(self._answer_settles)
        except (CallRefused, LeaderOverloaded, NotProposed) as error:
            refusal = refused_for(error)
            assert refusal is not None
            answer = refusal
        self._settles.append((message.request_id, answer))
        if isinstance(answer, CallRefused):
            self._answer_settles()

    def _submit(self, message: pb.SubscribeRequest, raw: bytes) -> asyncio.Future[AppliedCommand]:
        violations = Violations()
        violations.check_request_id(message.request_id)
        check_settlements(violations, message.settlements, self._payload_bytes_max)
        violations.raise_if_any()
        settle_raw = wire.repeated(_TO_SETTLE, wire.elements(raw, _SETTLEMENTS))
        if message.request_id:
            name = wire.length_delimited(_REQUEST_ID, message.request_id.encode())
            settle_raw = name + settle_raw
        request = pb.SettleTasksRequest.FromString(settle_raw)
        hash_of_request = (
            request_hash(request, settle_raw, self._caller.name) if message.request_id else 0
        )
        own = own_settlements(self._reader.queues, request, self._caller)
        if own is not request:
            return self._submitter.submit(encode_leader_command(SETTLE, own, hash_of_request))
        return self._submitter.submit(encode_request(SETTLE, request, settle_raw, hash_of_request))

    def _answer_settles(self, _done: object = None) -> None:
        """Send the answers that are known, up to the first that is not."""
        while self._settles:
            request_id, answer = self._settles[0]
            if not isinstance(answer, CallRefused) and not answer.done():
                break
            self._settles.popleft()
            message = settled_message(request_id, _settled(answer))
            self._subscription.outbox.add_message(message)
        self._settles_free.set()

    # ------------------------------------------------------------------------------ to the client

    async def _write(self, beat: Callable[[], pb.SubscribeResponse]) -> None:
        """Send what there is, and a heartbeat when one is due or asked for."""
        outbox = self._subscription.outbox
        while (raw := await outbox.next()) is not None:
            if self._is_beat_due:
                self._is_beat_due = False
                self._beaten_at = self._loop.time()
                self._arm_beat(HEARTBEAT_MS)
                raw += beat().SerializeToString()
            if raw:
                await self._stream.write(raw)

    def _arm_beat(self, after_ms: int) -> None:
        """Let the next heartbeat follow so long after the last one."""
        self._disarm_beat()
        self._beat_timer = self._loop.call_at(self._beaten_at + after_ms / 1000, self._beat)

    def _disarm_beat(self) -> None:
        if self._beat_timer is not None:
            self._beat_timer.cancel()

    def _beat(self) -> None:
        """Let the writer send a heartbeat with what it sends next, now at the latest."""
        self._is_beat_due = True
        self._subscription.outbox.stir()


def _settled(answer: asyncio.Future[AppliedCommand] | CallRefused) -> AppliedCommand | CallRefused:
    """Return what became of one message of settlements."""
    if isinstance(answer, CallRefused):
        return answer
    if answer.cancelled():
        return CallRefused(error_pb2.Error.COMMIT_UNKNOWN, "the outcome is not known")
    error = answer.exception()
    if error is None:
        return answer.result()
    assert isinstance(error, NotProposed | OutcomeUnknown | LeaderOverloaded)
    refusal = refused_for(error)
    assert refusal is not None
    return refusal
