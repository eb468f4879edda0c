"""Run one subscription over any number of connections.

A `TaskStream` makes the Subscribe call: it opens the stream on the leader, grants credit, delivers
received tasks, sends settlements and heartbeats. After a lost connection, a `go_away` message or a
change of leader, it opens the next stream with the same session.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeAlias

import grpc

from taskraft import _answering_node, errors
from taskraft._error_translation import from_item, from_rpc_error
from taskraft._leader_caller import pause_seconds
from taskraft._stream_settlements import StreamSettlements
from taskraft.v1 import task_service_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft._node_pool import NodePool
    from taskraft._request_batcher import ItemOutcome
    from taskraft._settlement import SettledLease, SettleItem
    from taskraft.v1 import task_pb2

log = logging.getLogger("taskraft")

OPEN_SECONDS_MAX: Final = 5.0
"""Maximum time for a node to open the stream, in seconds; then the next node is tried."""
HEARTBEAT_SECONDS: Final = 5.0
"""Interval of heartbeats while the subscription holds leases, in seconds."""
IDLE_HEARTBEAT_SECONDS: Final = 900.0
"""Interval of heartbeats while the subscription holds no lease, in seconds. Meanwhile, keepalive
pings test the connection."""
HEARTBEATS_PER_SILENCE: Final = 3
"""Number of heartbeats in the maximum silence, so that a late heartbeat does not end the stream."""
UNANSWERED_HEARTBEATS_MAX: Final = 3
"""Number of unanswered heartbeats after which the connection counts as broken. A blocked event loop
does not count as silence: heartbeats are counted when they are sent."""

SubscribeRequest: TypeAlias = task_service_pb2.SubscribeRequest
SubscribeResponse: TypeAlias = task_service_pb2.SubscribeResponse
Stream: TypeAlias = "grpc.aio.StreamStreamCall[SubscribeRequest, SubscribeResponse]"


class StreamListener(Protocol):
    """Receives the messages of the stream."""

    def grant(self, *, is_convenient: bool) -> tuple[int, int] | None:
        """Return tasks and bytes to grant now, or None."""
        ...

    def received(self, tasks: Sequence[task_pb2.Task]) -> None:
        """Process tasks that used up credit."""
        ...

    async def opened(self, session_id: str, held: Sequence[task_pb2.Task]) -> None:
        """Process the start of a stream: it has no credit; `held` are the session's leases."""
        ...

    @property
    def holds_lease(self) -> bool:
        """Whether the subscription holds a lease."""
        ...

    def clock(self, now_ms: int, wall_offset_ms: int) -> None:
        """Process the wall time of the cluster, and its difference from cluster time."""
        ...

    def cancelled(self, tokens: Sequence[int]) -> None:
        """Process requests to stop, by lease token."""
        ...

    def failed(self, error: errors.TaskraftError) -> None:
        """Process the end of the subscription."""
        ...


class TaskStream:
    """The client side of a subscription."""

    def __init__(
        self,
        nodes: NodePool,
        opening: task_service_pb2.SubscribeRequest.Open,
        listener: StreamListener,
    ) -> None:
        """Store the tubes and the options of the subscription.

        Args:
            nodes: pool of nodes.
            opening: first message of each stream; the stream sets session_id when the server sends
                it.
            listener: receives the tasks.
        """
        self._nodes = nodes
        self._opening = opening
        self._listener = listener
        self._filter: SubscribeRequest.Filter | None = None
        self._new_filter: SubscribeRequest.Filter | None = None
        self._wake = asyncio.Event()
        self._settlements = StreamSettlements(self.wake)
        self._heartbeat_at = 0.0
        """Time of the event loop at which the last heartbeat was sent or received."""
        self._unanswered_heartbeats = 0
        self._failures = 0
        self.reconnects = 0
        """Number of reconnected streams, for example after a change of leader."""
        self._over: errors.TaskraftError | None = None
        self.is_open = False
        """True while a stream to a node is open."""
        self.address = ""
        """Address of the node of the last open stream."""

    @property
    def session_id(self) -> str:
        """Id of the session that holds the leases; empty before the stream is open."""
        return self._opening.session_id

    def wake(self) -> None:
        """Check again whether there is something to send."""
        self._wake.set()

    def narrow(self, new_filter: SubscribeRequest.Filter) -> None:
        """Set the filter for this stream and all later streams."""
        self._filter = self._new_filter = new_filter
        self._wake.set()

    async def settle(
        self, items: Sequence[SettleItem], deadline: float
    ) -> list[ItemOutcome[SettledLease]]:
        """Settle leases on the stream, over as many connections as needed."""
        try:
            return await self._settlements.settle(items, deadline)
        finally:
            _answering_node.note(self.address)

    async def run(self) -> None:
        """Open one stream after another until cancelled or finally refused."""
        while self._over is None:
            address = self._nodes.selector.next_address()
            try:
                with self._nodes.long_call() as channel:
                    await self._run_stream(address, channel)
                error: errors.TaskraftError = errors.Unavailable("the server ended the stream")
            except grpc.aio.AioRpcError as raised:
                error = _stream_error(raised, address)
            except errors.TaskraftError as raised_here:
                error = raised_here
            pause = self._pause_after(error)
            self._next_node_after(error, address)
            if pause is None:
                self._fail(error)
                return
            self.reconnects += 1
            level = logging.INFO if self._failures == 1 else logging.DEBUG
            log.log(
                level, "subscription at %s ended (%s); resuming in %.2f s", address, error, pause
            )
            await asyncio.sleep(pause)

    def _pause_after(self, error: errors.TaskraftError) -> float | None:
        """Return the pause before the next stream; None if the error is final."""
        self._failures += 1
        if isinstance(error, errors.SessionNotFound) and self._opening.session_id:
            self._opening.session_id = ""
            return 0.0
        return pause_seconds(error, self._failures, len(self._nodes.selector.addresses))

    def _next_node_after(self, error: errors.TaskraftError, address: str) -> None:
        is_unreachable = isinstance(error, errors.Unavailable | errors.DeadlinePassed)
        self._nodes.selector.report_failure(address, is_unreachable=is_unreachable)
        self._nodes.selector.set_leader_hint(error.metadata.get("leader", ""))

    def end(self) -> None:
        """Refuse all settlements from now on, because nothing sends them any more."""
        if self._over is None:
            advice = "The tasks that were not settled before were given back."
            closed = errors.ClientClosed("the subscription is closed", advice=advice)
            self._settlements.fail(closed)

    def _fail(self, error: errors.TaskraftError) -> None:
        self._over = error
        self._settlements.fail(error)
        self._listener.failed(error)

    async def _run_stream(self, address: str, channel: int) -> None:
        """Run one stream until it ends; `channel` is the number of the channel to use."""
        call = self._nodes.at(address, channel).tasks.Subscribe()
        try:
            await self._open(call, address)
            reader = asyncio.create_task(self._read(call))
            writer = asyncio.create_task(self._write(call))
            try:
                await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
                if writer.done() and writer.exception() is None:  # the reader gets the status
                    await asyncio.wait({reader}, timeout=OPEN_SECONDS_MAX)
            finally:
                reader.cancel()
                writer.cancel()
                ends = await asyncio.gather(reader, writer, return_exceptions=True)
            for end in ends:
                if isinstance(end, Exception):
                    raise end
        finally:
            self.is_open = False
            call.cancel()

    async def _open(self, call: Stream, address: str) -> None:
        """Send the first message, wait for the answer, and resend unanswered settlements."""
        try:
            async with asyncio.timeout(OPEN_SECONDS_MAX) as limit:
                await call.write(SubscribeRequest(open=self._opening, filter=self._filter))
                self._new_filter = None
                response = await self._read_opened(call, limit)
        except TimeoutError:
            raise errors.DeadlinePassed("the node did not open the stream in time") from None
        self._nodes.selector.report_answer(address)
        self._opening.session_id = response.opened.session_id
        level = logging.INFO if self._failures else logging.DEBUG
        log.log(level, "subscribed at %s, session %s...", address, self.session_id[:8])
        self._failures = self._unanswered_heartbeats = 0
        self.is_open, self.address = True, address
        await self._listener.opened(self.session_id, response.opened.held)
        self._settlements.resend()
        self._process(response)

    async def _read_opened(self, call: Stream, limit: asyncio.Timeout) -> SubscribeResponse:
        """Return the first response of a stream, merged with the responses that continue it.

        Each response gets `OPEN_SECONDS_MAX`.
        """
        opened = SubscribeResponse()
        while not opened.HasField("opened") or opened.opened.held_continues:
            response = await call.read()
            limit.reschedule(asyncio.get_running_loop().time() + OPEN_SECONDS_MAX)
            if not isinstance(response, SubscribeResponse):
                raise errors.Unavailable("the server ended the stream")
            if response.HasField("go_away"):
                self._go_away(response.go_away)
            assert response.HasField("opened"), "the first answer opens the stream"
            opened.opened.held_continues = False
            opened.MergeFrom(response)
        return opened

    async def _read(self, call: Stream) -> None:
        while True:
            response = await call.read()
            if not isinstance(response, SubscribeResponse):
                return  # the end of the stream
            self._unanswered_heartbeats = 0
            self._process(response)

    def _process(self, response: SubscribeResponse) -> None:
        if response.HasField("heartbeat"):  # before the tasks, whose leases use its clock
            heartbeat = response.heartbeat
            self._nodes.selector.set_leader_hint(heartbeat.leader)
            self._listener.clock(heartbeat.now_ms, heartbeat.wall_offset_ms)
            if not self._opening.silence_ms_max:
                self._heartbeat_at = asyncio.get_running_loop().time()
        if response.tasks:
            if not self._listener.holds_lease:
                self._wake.set()  # the interval of heartbeats is shorter from now on
            self._listener.received(response.tasks)
        for settled in response.settled:
            self._settlements.answered(settled)
        if response.HasField("heartbeat"):
            self._listener.cancelled(response.heartbeat.cancel_tokens)
        if response.HasField("go_away"):
            self._go_away(response.go_away)

    def _go_away(self, go_away: SubscribeResponse.GoAway) -> NoReturn:
        """End the stream at the server's request, with its reason, leader hint and retry delay."""
        error = from_item(go_away.error)
        if go_away.leader:
            error.metadata = {**error.metadata, "leader": go_away.leader}
        error.retry_ms = go_away.retry_ms or None
        raise error

    async def _write(self, call: Stream) -> None:
        """Send messages when there are any, and a heartbeat after each interval without one."""
        loop = asyncio.get_running_loop()
        self._heartbeat_at = loop.time()
        while True:
            wait = loop.call_at(self._heartbeat_at + self._heartbeat_seconds, self.wake)
            await self._wake.wait()
            wait.cancel()
            self._wake.clear()
            is_heartbeat = loop.time() >= self._heartbeat_at + self._heartbeat_seconds
            if is_heartbeat:
                self._heartbeat_at = loop.time()
                if self._unanswered_heartbeats >= UNANSWERED_HEARTBEATS_MAX:
                    raise errors.Unavailable("the server has not answered three heartbeats")
                self._unanswered_heartbeats += 1
            for request in self._next_messages(is_heartbeat=is_heartbeat):
                try:
                    await call.write(request)
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    return  # the stream has ended; the reader gets the status

    @property
    def _heartbeat_seconds(self) -> float:
        """Return the interval of heartbeats at this moment."""
        silence_ms_max = self._opening.silence_ms_max
        interval = HEARTBEAT_SECONDS if self._listener.holds_lease else IDLE_HEARTBEAT_SECONDS
        if not silence_ms_max:
            return interval
        return min(interval, silence_ms_max / 1_000 / HEARTBEATS_PER_SILENCE)

    def _next_messages(self, *, is_heartbeat: bool) -> list[SubscribeRequest]:
        """Return the messages to send; the first message has credit, filter and heartbeat."""
        messages = self._settlements.take_unsent()
        grant = self._listener.grant(is_convenient=bool(messages))
        new_filter, self._new_filter = self._new_filter, None
        if grant is None and not is_heartbeat and new_filter is None:
            return messages
        first = SubscribeRequest(heartbeat=is_heartbeat, filter=new_filter)
        if grant is not None:
            first.credit.tasks, first.credit.bytes = grant
        if messages:
            first.MergeFrom(messages[0])
        return [first, *messages[1:]]


def _stream_error(raised: grpc.aio.AioRpcError, address: str) -> errors.TaskraftError:
    """Return why a stream broke.

    If grpc.aio cannot write because the connection is lost, it reports INTERNAL without details
    ("Internal error from Core") instead of the true status.
    """
    error = from_rpc_error(raised, address)
    if error.code == grpc.StatusCode.INTERNAL.name and not isinstance(error, errors.InternalError):
        return errors.Unavailable(error.message)
    return error
