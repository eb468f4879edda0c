"""Transfer messages between the client of a Subscribe stream and its subscription state."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.methods import MessageStream, parse_request
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.streams.stream_settlements import StreamSettlements
from taskraft_service.api.streams.subscription_state import SubscriptionState, check_stream_message
from taskraft_service.leader.command_submitter import CommandSubmitter
from taskraft_service.leader.waiters import Waiters
from taskraft_service.limits import HEARTBEAT_INTERVAL_MIN_MS, HEARTBEAT_MS
from taskraft_service.turns import next_turn

SETTLEMENTS_IN_FLIGHT_MAX: Final = 256
"""Maximum number of unanswered settlement messages per stream; reading pauses at the maximum."""
PLACES_WITHOUT_TURN_MAX: Final = 300
"""Number of tubes up to which a message with a filter or credit is handled without a turn; each
tube takes about 0.2 us."""
READ_AT_ONCE: Final = 64
"""Number of messages that have arrived together after which the event loop runs other work; a
message takes about 0.1 ms."""
GO_AWAY_SECONDS_MAX: Final = 5.0
"""Maximum time for a silent client to accept the last message of its stream."""


class SubscribeStream:
    """Reads the client's messages and writes the responses, until one side ends the stream."""

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
        self._caller = subscription.caller
        self._subscription = subscription
        self._stream = stream
        self._submitter = submitter
        self._waiters = waiters
        self._settlements = StreamSettlements(subscription, submitter, reader, payload_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._received_at = self._loop.time()
        self._is_heartbeat_due = False
        self._heartbeat_at = self._received_at - HEARTBEAT_INTERVAL_MIN_MS / 1000
        self._heartbeat_timer: asyncio.TimerHandle | None = None

    async def run(
        self,
        first: bytes,
        opening: AsyncIterator[bytes],
        beat: Callable[[], Awaitable[pb.SubscribeResponse]],
    ) -> None:
        """Run the stream until the client or the server ends it.

        Args:
            first: the client's first message, which was already read.
            opening: the first responses; each is built when the client has taken the one before.
            beat: returns the content of a heartbeat.

        Raises:
            CallRefused: a message of the client is invalid, or this side ended the stream with
                GoAway; the status has the same reason.
        """
        self._schedule_heartbeat(self._subscription.heartbeat_ms or HEARTBEAT_MS)
        reader = self._loop.create_task(self._read(first))
        writer = self._loop.create_task(self._write(opening, beat))
        try:
            if await self._is_silent(reader, writer):
                self._end_silent_stream()
                await asyncio.wait({writer}, timeout=GO_AWAY_SECONDS_MAX)
            elif writer.done() and not reader.done():
                writer.result()
            else:
                reader.result()
                await self._finish(writer)
            self._subscription.raise_go_away()
        finally:
            self._cancel_heartbeat()
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _is_silent(self, *halves: asyncio.Task[None]) -> bool:
        """Wait until the reader or the writer ends; return whether the client was silent.

        One timer per stream is enough: it checks the time of the latest message when it fires.
        """
        seconds_max = self._subscription.silence_ms_max / 1000 or math.inf
        while (left := seconds_max - self._silent_seconds()) > 0:
            timeout = left if math.isfinite(left) else None
            done, _ = await asyncio.wait(
                halves, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return False
        return True

    def _silent_seconds(self) -> float:
        """Return the seconds since the client's last message; 0 while this node pauses reading."""
        return 0.0 if self._is_read_paused else self._loop.time() - self._received_at

    @property
    def _is_read_paused(self) -> bool:
        return len(self._settlements) >= SETTLEMENTS_IN_FLIGHT_MAX

    def _end_silent_stream(self) -> None:
        text = f"the client sent no message for {self._subscription.silence_ms_max} ms"
        error = error_pb2.Error(reason=error_pb2.Error.CLIENT_SILENT, message=text)
        self._subscription.send_go_away(error)

    async def _finish(self, writer: asyncio.Task[None]) -> None:
        """Answer the settlements in flight after the client has closed its side."""
        await self._settlements.wait_until_fewer(1)
        self._subscription.responses.end()
        await writer

    # ------------------------------------------------------------------------------ from the client

    async def _read(self, first: bytes) -> None:
        """Handle the messages of the client.

        The acknowledgements of all messages that have arrived are submitted together.
        """
        settlements, stream = self._settlements, self._stream
        try:
            await self._receive(first, is_first=True)
            if not stream.has_arrived:
                settlements.submit_run()
            at_once = 0
            while (raw := await stream.read()) is not None:
                self._received_at = self._loop.time()
                await self._receive(raw, is_first=False)
                at_once += 1
                if not stream.has_arrived:
                    at_once = 0
                    settlements.submit_run()
                elif at_once % READ_AT_ONCE == 0:
                    settlements.submit_run()
                    await next_turn()
                if self._is_read_paused:
                    settlements.submit_run()
                    await self._resume_reading()
        finally:
            # The messages before an invalid message are valid.
            settlements.submit_run()

    async def _resume_reading(self) -> None:
        """Wait until few enough settlements are in flight; the client was not silent meanwhile."""
        await self._settlements.wait_until_fewer(SETTLEMENTS_IN_FLIGHT_MAX)
        self._received_at = self._loop.time()

    async def _receive(self, raw: bytes, *, is_first: bool) -> None:
        message = parse_request(pb.SubscribeRequest, raw)
        if self._caller.is_restricted:
            self._caller.authorize(message)
        credit = self._subscription.credit_tasks
        check_stream_message(message, credit, is_first=is_first).raise_if_any()
        if message.HasField("filter"):
            await self._wait_for_turn()
            self._subscription.filter(message.filter)
            self._waiters.filter_changed(self._subscription)
            self._submitter.wake()
        if message.HasField("credit"):
            await self._wait_for_turn()
            self._subscription.grant(message.credit)
            self._waiters.requeue(self._subscription)
            self._submitter.wake()
        if message.settlements:
            self._settlements.settle(message, raw)
        if message.heartbeat:
            self._schedule_heartbeat(HEARTBEAT_INTERVAL_MIN_MS)

    async def _wait_for_turn(self) -> None:
        """Wait until the stream may change its places in the wait queues, if it has many.

        Reading a message that has already arrived lets no other work run.
        """
        if self._waiters.count_of_tubes(self._subscription) > PLACES_WITHOUT_TURN_MAX:
            self._settlements.submit_run()
            await next_turn()

    # ------------------------------------------------------------------------------ to the client

    async def _write(
        self, opening: AsyncIterator[bytes], beat: Callable[[], Awaitable[pb.SubscribeResponse]]
    ) -> None:
        """Write the first responses, then all other responses with the heartbeats.

        A heartbeat is written when one is due or was requested. The first task after a long pause
        comes with a heartbeat, because the client judges the lease by the clock in the last
        heartbeat.
        """
        outbox = self._subscription.responses
        async for response in opening:
            outbox.sending(response)
            await self._stream.write(response)
            outbox.sent()
        while (raw := await outbox.next()) is not None:
            now = self._loop.time()
            if self._is_heartbeat_due or (raw and now - self._heartbeat_at >= HEARTBEAT_MS / 1000):
                self._is_heartbeat_due = False
                self._heartbeat_at = now
                self._schedule_next_heartbeat()
                raw += (await beat()).SerializeToString()
            elif raw and self._heartbeat_timer is None:
                # The session may hold a lease from now on.
                self._schedule_heartbeat(HEARTBEAT_MS)
            if raw:
                await self._stream.write(raw)
                outbox.sent()
            if self._subscription.resumes():
                self._waiters.requeue(self._subscription)
                self._submitter.wake()

    def _schedule_next_heartbeat(self) -> None:
        """Schedule the next heartbeat after one was sent.

        Without an interval from the client, no heartbeat is sent while the session holds no lease,
        so an idle stream costs nothing.
        """
        self._cancel_heartbeat()
        interval_ms = self._subscription.heartbeat_ms
        if not interval_ms and self._reader.queues.holds_lease(self._subscription.session_id):
            interval_ms = HEARTBEAT_MS
        if interval_ms:
            self._schedule_heartbeat(interval_ms)

    def _schedule_heartbeat(self, after_ms: int) -> None:
        """Schedule the next heartbeat ``after_ms`` after the previous heartbeat."""
        self._cancel_heartbeat()
        self._heartbeat_timer = self._loop.call_at(
            self._heartbeat_at + after_ms / 1000, self._heartbeat
        )

    def _cancel_heartbeat(self) -> None:
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
            self._heartbeat_timer = None

    def _heartbeat(self) -> None:
        """Make the writer send a heartbeat with its next message; wake the writer if it is idle."""
        self._is_heartbeat_due = True
        self._subscription.responses.wake_writer()
