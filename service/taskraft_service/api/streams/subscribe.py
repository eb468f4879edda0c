"""Handle Subscribe: a stream that takes and settles tasks, with credit granted by the client."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Final, NoReturn

from taskraft.v1 import error_pb2, session_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.caller import Caller
from taskraft_service.api.rpc.call_load import CallLoad
from taskraft_service.api.rpc.calls_at_leader import LeaderLost, NodeStops, ThisNodeLeads
from taskraft_service.api.rpc.forwarding import Forwarder
from taskraft_service.api.rpc.forwarding_metadata import hop_count
from taskraft_service.api.rpc.methods import MessageStream, parse_request
from taskraft_service.api.rpc.request_steps import RequestSteps
from taskraft_service.api.rpc.status import RETRY_DELAY_MS, CallRefused, refused_by_queue
from taskraft_service.api.state.checks import ExistenceCheck
from taskraft_service.api.state.command_executor import CommandExecutor, result_of
from taskraft_service.api.state.lease_returns import Leadership, LeaseReturns, attachment
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.streams.responses import encode_opened
from taskraft_service.api.streams.subscribe_stream import SubscribeStream
from taskraft_service.api.streams.subscription_state import SubscriptionState, check_stream_message
from taskraft_service.api.tasks.consumer_sources import ConsumerSources, check_wait
from taskraft_service.command_codecs.sessions import OPEN_SESSION
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.leader.command_submitter import (
    NotProposed,
)
from taskraft_service.leader.waiters import Waiters
from taskraft_service.machine.sliced_calls import ENDED_AT_ONCE, SlicedCalls
from taskraft_service.queue.operations.sessions import KeepResult
from taskraft_service.stubs.log.v1 import log_pb2
from taskraft_service.turns import next_turn

PATH: Final = "/taskraft.v1.TaskService/Subscribe"
CANCELLED_WITHOUT_TURN_MAX: Final = 1_000
"""Number of cancelled leases up to which a heartbeat is built without a turn."""


class SubscriptionRegistry:
    """The open subscriptions of this leader, and their number per session.

    Args:
        load: counts the unsent responses of all streams.
    """

    def __init__(self, load: CallLoad) -> None:
        self.load: Final = load
        self._open: dict[SubscriptionState, None] = {}
        self._by_session: dict[str, int] = {}
        self._ended: SlicedCalls[SubscriptionState] = SlicedCalls(ENDED_AT_ONCE)

    def __len__(self) -> int:
        return len(self._open)

    def all(self) -> Sequence[SubscriptionState]:
        """Return all open subscriptions."""
        return list(self._open)

    def add(self, subscription: SubscriptionState) -> None:
        """Add a subscription."""
        self._open[subscription] = None
        session_id = subscription.session_id
        self._by_session[session_id] = self._by_session.get(session_id, 0) + 1

    def remove(self, subscription: SubscriptionState) -> bool:
        """Remove a subscription; return whether it was the last subscription of its session."""
        del self._open[subscription]
        left = self._by_session[subscription.session_id] - 1
        if left:
            self._by_session[subscription.session_id] = left
        else:
            del self._by_session[subscription.session_id]
        return not left

    def send_go_away(self, reason: error_pb2.Error.Reason.ValueType, why: str, leader: str) -> None:
        """End all streams with GoAway, so that the clients reconnect to the leader."""
        error = error_pb2.Error(reason=reason, message=why)
        self._ended.add(lambda one: one.send_go_away(error, leader, RETRY_DELAY_MS), self.all())


class SubscribeHandler:
    """The handler of Subscribe."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is a part of a stream
        self,
        executor: CommandExecutor,
        reader: QueueReader,
        existence: ExistenceCheck,
        returns: LeaseReturns,
        waiters: Waiters,
        streams: SubscriptionRegistry,
        forwarder: Forwarder,
        payload_bytes_max: int,
    ) -> None:
        self._executor = executor
        self._submitter = executor.submitter
        self._reader = reader
        self._existence = existence
        self._returns = returns
        self._waiters = waiters
        self._streams = streams
        self._leadership = forwarder.leadership
        self._forwarder = forwarder
        self._payload_bytes_max = payload_bytes_max

    async def subscribe(self, stream: MessageStream, caller: Caller) -> None:
        """Serve a stream on the leader; on a follower, relay the stream to the leader."""
        first = await stream.read()
        if first is None:
            return
        was_forwarded = hop_count(stream.metadata) > 0
        if was_forwarded:
            await self._forwarder.route.wait_until_serving(stream.deadline)
        while not self._leadership.serves:
            if was_forwarded or not self._forwarder.may_forward(caller, needs_proof=False):
                raise NotProposed("this node is not the leader")
            try:
                await self._relay(first, stream, caller)
            except ThisNodeLeads:
                continue
            return
        await self._serve(first, stream, caller)

    # ------------------------------------------------------------------------------ on the leader

    async def _serve(self, first: bytes, stream: MessageStream, caller: Caller) -> None:
        message = parse_request(pb.SubscribeRequest, first)
        caller.authorize(message)
        opened = message.open
        violations = check_stream_message(message, 0, is_first=True)
        violations.allow_zeros(lambda: self._reader.defines_zero(s.tube for s in opened.sources))
        violations.raise_if_any()
        await self._existence.check_tubes([source.tube for source in opened.sources])
        await self._existence.check_session(opened.session_id, caller)
        session_id = opened.session_id or str(uuid.uuid4())
        leadership = self._returns.leadership
        subscription = SubscriptionState(
            opened,
            session_id,
            partial(self._returns.release_of_stream, leadership),
            self._streams.load,
            caller,
            self._reader.wall_now_ms(),
        )
        sources = ConsumerSources(opened.sources, caller)
        if sources.has_patterns:
            await next_turn()
        check_wait(sources, self._waiters, self._reader.applied.tube_names(), RequestSteps())
        self._streams.add(subscription)
        try:
            # Added in the turn of the check, so that two streams cannot use the same room. The
            # stream wants no task before ``run`` handles the credit of the first message.
            self._waiters.add(subscription)
            await self._open_session(subscription, opened)
            offset_ms = self._reader.wall_offset_ms
            opening = encode_opened(session_id, self._reader.queues, offset_ms)
            await next_turn()
            while self._waiters.add_more(subscription):
                self._submitter.wake()
                await next_turn()
            link = SubscribeStream(
                subscription,
                stream,
                self._submitter,
                self._waiters,
                self._reader,
                self._payload_bytes_max,
            )
            await link.run(first, opening, partial(self._heartbeat, subscription))
        finally:
            self._close(subscription, leadership)

    async def _open_session(
        self, subscription: SubscriptionState, opened: pb.SubscribeRequest.Open
    ) -> None:
        """Open or resume the session."""
        session_id = subscription.session_id
        if subscription.is_new:
            request = session_service_pb2.OpenSessionRequest(
                name=opened.session_name,
                ttr_ms=opened.session_ttr_ms,
                labels=opened.session_labels,
            )
            command = log_pb2.OpenSession(
                request=request,
                session_id=session_id,
                ends_with_stream=not opened.session_ttr_ms,
                as_settings=not opened.HasField("session_ttr_ms"),
                owner=subscription.caller.name,
            )
            await self._executor.execute_encoded(encode_leader_command(OPEN_SESSION, command), None)
        outcome = await self._executor.execute_encoded(attachment(session_id, attached=True), None)
        for refused_item in result_of(outcome, KeepResult).refused:
            raise refused_by_queue(refused_item.refusal)

    async def _heartbeat(self, subscription: SubscriptionState) -> pb.SubscribeResponse:
        """Return a heartbeat; one with many cancelled leases is built in a turn of its own."""
        session_id, queues = subscription.session_id, self._reader.queues
        if len(queues.cancelled(session_id, CANCELLED_WITHOUT_TURN_MAX + 1)) > (
            CANCELLED_WITHOUT_TURN_MAX
        ):
            await next_turn()
        heartbeat = pb.SubscribeResponse.Heartbeat(
            now_ms=self._reader.wall_now_ms(),
            leader=self._leadership.address,
            cancel_tokens=self._reader.queues.cancelled(session_id, limits.CANCEL_TOKENS_MAX),
            wall_offset_ms=self._reader.wall_offset_ms,
        )
        return pb.SubscribeResponse(heartbeat=heartbeat)

    def _close(self, subscription: SubscriptionState, leadership: Leadership) -> None:
        """Release undelivered tasks, and detach the session after its last subscription.

        ``leadership``: the leadership in which the stream was opened.
        """
        subscription.responses.end()
        self._waiters.remove(subscription)
        last = self._streams.remove(subscription)
        unsent = subscription.responses.unsent()
        if unsent:
            self._returns.release_of_stream(leadership, unsent)
        if last:
            self._returns.detach(leadership, subscription.session_id)

    # ------------------------------------------------------------------------------ on a follower

    async def _relay(self, first: bytes, stream: MessageStream, caller: Caller) -> None:
        """Relay the stream to the leader; send GoAway if the leader is lost or this node stops.

        Raises:
            ThisNodeLeads: this node became the leader before the stream was opened.
            CallRefused: NO_LEADER.
            LeaderAnsweredError: the leader ended the stream with an error.
        """
        try:
            await self._forwarder.relay(PATH, first, stream, caller)
        except LeaderLost as lost:
            # Clients that reconnect before the election has ended could choose the lost leader.
            next_leader = await self._forwarder.route.next_leader(lost.leader)
            reason = error_pb2.Error.NOT_LEADER if next_leader else error_pb2.Error.NO_LEADER
            await self._end_relayed_stream(stream, reason, "the leader was lost", next_leader)
        except NodeStops:
            reason, leader = error_pb2.Error.DRAINING, self._leadership.address
            await self._end_relayed_stream(stream, reason, "this node is stopping", leader)

    async def _end_relayed_stream(
        self,
        stream: MessageStream,
        reason: error_pb2.Error.Reason.ValueType,
        text: str,
        next_leader: str,
    ) -> NoReturn:
        """End a stream with GoAway, because clients treat an end without a reason as a failure.

        ``next_leader`` is the address to which the client should connect; empty if unknown.
        """
        go_away = pb.SubscribeResponse.GoAway(
            error=error_pb2.Error(reason=reason, message=text),
            leader=next_leader,
            retry_ms=0 if next_leader else RETRY_DELAY_MS,
        )
        await stream.write(pb.SubscribeResponse(go_away=go_away).SerializeToString())
        raise CallRefused(reason, text, {"leader": next_leader} if next_leader else {})
