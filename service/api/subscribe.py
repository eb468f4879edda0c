"""Serve the Subscribe stream: take and settle, with credit granted by the client."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

import grpc
import grpc.aio

from service import forms, wire
from service.access.caller import Caller
from service.access.denial import NotKnown
from service.access.leases import own_settlements
from service.api import task_checks
from service.api.endpoint import (
    LEADER_KEY,
    ServicerContext,
    deadline_of,
    parse,
    read_message,
    refusal_of,
)
from service.api.forward import Forwarder, ServeHere, hops_of, trace_of
from service.api.giving_back import GivingBack
from service.api.mutations import Mutations, result_of
from service.api.reading import Reading
from service.api.settle_checks import check_settlements
from service.api.status import RETRY_MS, Refused, refused
from service.api.subscription import Subscription, opened_message, settled_message
from service.api.tasks import Known
from service.api.violations import Violations
from service.entries.codec import Recorded, record, record_own, request_hash
from service.leader.proposal import (
    NotProposed,
    Outcome,
    OutcomeUnknown,
    Overloaded,
    Submitter,
)
from service.leader.waiters import Waiters
from service.limits import HEARTBEAT_MS
from service.queue.commands import KeepResult, TaskView
from taskraft.log.v1 import log_pb2
from taskraft.v1 import error_pb2, session_service_pb2
from taskraft.v1 import task_service_pb2 as pb

PATH: Final = "/taskraft.v1.TaskService/Subscribe"
SETTLES_IN_HAND_MAX: Final = 256
"""Messages of settlements without answer on one stream; above it, the stream is not read."""
SILENCE_MAX_MS: Final = 45_000
"""A client says something at least every 15 s; three times that without a word ends its stream."""
_SETTLEMENTS: Final = pb.SubscribeRequest.SETTLEMENTS_FIELD_NUMBER
_TO_SETTLE: Final = pb.SettleTasksRequest.SETTLEMENTS_FIELD_NUMBER
_REQUEST_ID: Final = pb.SettleTasksRequest.REQUEST_ID_FIELD_NUMBER


class Streams:
    """The subscriptions that are open on this leader, and how many each session has."""

    def __init__(self) -> None:
        self._open: dict[Subscription, None] = {}
        self._by_session: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, subscription: Subscription) -> None:
        """Count a stream in."""
        self._open[subscription] = None
        session_id = subscription.session_id
        self._by_session[session_id] = self._by_session.get(session_id, 0) + 1

    def remove(self, subscription: Subscription) -> bool:
        """Count a stream out; tell whether it was the last one of its session."""
        del self._open[subscription]
        left = self._by_session[subscription.session_id] - 1
        if left:
            self._by_session[subscription.session_id] = left
        else:
            del self._by_session[subscription.session_id]
        return not left

    def depart(self, reason: error_pb2.Error.Reason.ValueType, why: str, leader: str) -> None:
        """Tell all clients to go elsewhere."""
        error = error_pb2.Error(reason=reason, message=why)
        for subscription in list(self._open):
            subscription.depart(error, leader, RETRY_MS)


class SubscribeApi:
    """The handler of Subscribe."""

    def __init__(
        self,
        mutations: Mutations,
        reading: Reading,
        known: Known,
        waiters: Waiters,
        streams: Streams,
        forwarder: Forwarder,
    ) -> None:
        self._mutations = mutations
        self._submitter = mutations.submitter
        self._reading = reading
        self._known = known
        self._waiters = waiters
        self._streams = streams
        self._leadership = forwarder.leadership
        self._forwarder = forwarder
        self._give_back = GivingBack(mutations.submitter)

    async def subscribe(self, context: ServicerContext, caller: Caller) -> None:
        """Serve one stream here, or let the leader serve it."""
        await context.send_initial_metadata(((LEADER_KEY, self._leadership.address),))
        first = await read_message(context)
        if first is None:
            return
        passed_on = hops_of(dict(context.invocation_metadata() or ()))
        if passed_on:
            await self._forwarder.serves_soon(deadline_of(context))
        while not self._leadership.serves:
            if passed_on:
                raise NotProposed("this node does not lead")
            try:
                await self._pass_on(first, context, caller)
            except ServeHere:
                continue
            return
        await self._serve(first, context, caller)

    # ------------------------------------------------------------------------------ a leader's

    async def _serve(self, first: bytes, context: ServicerContext, caller: Caller) -> None:
        message = parse(pb.SubscribeRequest, first)
        caller.check(message)
        if not message.HasField("open"):
            text = "missing in the first message"
            raise Refused(
                error_pb2.Error.INVALID_FIELD, f"open: {text}", {"field": "open"}, (("open", text),)
            )
        opened = message.open
        task_checks.check_open(opened)
        await self._known.tubes([source.tube for source in opened.sources])
        await self._known.session(opened.session_id, caller)
        session_id = opened.session_id or str(uuid.uuid4())
        subscription = Subscription(opened, session_id, self._give_back.tokens, caller)
        self._streams.add(subscription)
        try:
            held = await self._begin(subscription, opened)
            subscription.outbox.add(opened_message(session_id, held))
            self._waiters.add(subscription)
            link = _Link(subscription, context, self._submitter, self._waiters, self._reading)
            await link.run(first, partial(self._beat, subscription))
        finally:
            self._close(subscription)

    async def _begin(
        self, subscription: Subscription, opened: pb.SubscribeRequest.Open
    ) -> Sequence[TaskView]:
        """Open or resume the session; return what it holds."""
        session_id = subscription.session_id
        if subscription.is_new:
            request = session_service_pb2.OpenSessionRequest(
                name=opened.session_name, ttr_ms=opened.session_ttr_ms
            )
            drawn = log_pb2.OpenSession(
                request=request,
                session_id=session_id,
                ends_with_stream=not opened.session_ttr_ms,
                as_settings=not opened.HasField("session_ttr_ms"),
                owner=subscription.caller.name,
            )
            await self._mutations.propose(record_own(forms.OPEN_SESSION, drawn), None)
        outcome = await self._mutations.propose(_attachment(session_id, attached=True), None)
        for refused_item in result_of(outcome, KeepResult).refused:
            raise refused(refused_item.refusal)
        return () if subscription.is_new else self._reading.contents.held(session_id)

    def _beat(self, subscription: Subscription) -> pb.SubscribeResponse:
        queue = self._reading.applied
        heartbeat = pb.SubscribeResponse.Heartbeat(
            now_ms=queue.now_ms,
            leader=self._leadership.address,
            cancel_tokens=self._reading.contents.cancelled(subscription.session_id),
        )
        return pb.SubscribeResponse(heartbeat=heartbeat)

    def _close(self, subscription: Subscription) -> None:
        """Let the stream go: give back what it never saw, and start the session's grace."""
        subscription.outbox.end()
        self._waiters.remove(subscription)
        last = self._streams.remove(subscription)
        unsent = subscription.outbox.unsent()
        if not self._leadership.serves:
            return
        if unsent:
            self._give_back.tokens(unsent)
        if last:
            try:
                detachment = _attachment(subscription.session_id, attached=False)
                future = self._submitter.submit(detachment)
            except (NotProposed, Overloaded):
                # The next leader detaches all sessions; an overloaded one keeps it attached until
                # then, which costs patience but loses nothing.
                return
            future.add_done_callback(lambda done: done.cancelled() or done.exception())

    # ------------------------------------------------------------------------------ a follower's

    async def _pass_on(self, first: bytes, context: ServicerContext, caller: Caller) -> None:
        """Open the same stream on the leader and carry messages both ways.

        Raises:
            ServeHere: this node has become the leader.
            Refused: NO_LEADER.
            NotKnown: the caller's credentials were withdrawn.
        """
        withdrawn: list[NotKnown] = []

        async def requests() -> AsyncIterator[bytes]:
            yield first
            while (raw := await read_message(context)) is not None:
                try:
                    caller.confirm()
                except NotKnown as error:
                    withdrawn.append(error)
                    return
                yield raw

        trace = trace_of(dict(context.invocation_metadata() or ()))
        upstream = await self._forwarder.stream(
            PATH, requests(), deadline_of(context), caller.name, trace
        )
        try:
            async for raw in upstream:
                await context.write(raw)
            if withdrawn:
                raise withdrawn[0]
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            # The leader is gone: the client shall come back, not see a broken stream.
            lost = error_pb2.Error(reason=error_pb2.Error.NO_LEADER, message="the leader was lost")
            go_away = pb.SubscribeResponse.GoAway(error=lost, retry_ms=RETRY_MS)
            message = pb.SubscribeResponse(go_away=go_away)
            await context.write(message.SerializeToString())
        finally:
            upstream.cancel()


def _attachment(session_id: str, *, attached: bool) -> Recorded:
    """Return the command that says whether a session has streams."""
    message = log_pb2.AttachSession(session_id=session_id, attached=attached)
    return record_own(forms.ATTACH_SESSION, message)


class _Link:
    """Moves the messages of one stream."""

    def __init__(
        self,
        subscription: Subscription,
        context: ServicerContext,
        submitter: Submitter,
        waiters: Waiters,
        reading: Reading,
    ) -> None:
        self._reading = reading
        self._caller = subscription.caller
        self._subscription = subscription
        self._context = context
        self._submitter = submitter
        self._waiters = waiters
        self._settles: deque[tuple[str, asyncio.Future[Outcome] | Refused]] = deque()
        self._settles_free = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._beat_asked = False
        self._beat_timer: asyncio.TimerHandle | None = None

    async def run(self, first: bytes, beat: Callable[[], pb.SubscribeResponse]) -> None:
        """Read until the client or the server ends the stream.

        Raises:
            Refused: a message of the client breaks a limit.
        """
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
        while (raw := await read_message(self._context)) is not None:
            self._heard_at = self._loop.time()
            self._take_in(raw, is_first=False)
            while len(self._settles) >= SETTLES_IN_HAND_MAX:
                self._settles_free.clear()
                await self._settles_free.wait()

    def _take_in(self, raw: bytes, *, is_first: bool) -> None:
        message = parse(pb.SubscribeRequest, raw)
        if self._caller.is_limited:
            self._caller.confirm()
            self._caller.check(message)
        if message.HasField("open") and not is_first:
            text = "only the first message opens"
            raise Refused(
                error_pb2.Error.INVALID_FIELD, f"open: {text}", {"field": "open"}, (("open", text),)
            )
        if message.HasField("filter"):
            task_checks.check_filter(message.filter)
            self._subscription.filter(message.filter)
            self._waiters.changed(self._subscription)
            self._submitter.wake()
        if message.HasField("credit"):
            task_checks.check_credit(message.credit, self._subscription.tasks_open)
            self._subscription.grant(message.credit)
            self._waiters.renew(self._subscription)
            self._submitter.wake()
        if message.settlements:
            self._settle(message, raw)
        if message.heartbeat:
            self._ask_beat()

    def _settle(self, message: pb.SubscribeRequest, raw: bytes) -> None:
        """Propose the settlements of one message; answers are sent in order of the messages."""
        answer: asyncio.Future[Outcome] | Refused
        try:
            answer = self._submit(message, raw)
            answer.add_done_callback(self._answer_settles)
        except (Refused, Overloaded, NotProposed) as error:
            refusal = refusal_of(error)
            assert refusal is not None
            answer = refusal
        self._settles.append((message.request_id, answer))
        if isinstance(answer, Refused):
            self._answer_settles()

    def _submit(self, message: pb.SubscribeRequest, raw: bytes) -> asyncio.Future[Outcome]:
        wrong = Violations()
        wrong.request_id(message.request_id)
        check_settlements(wrong, message.settlements)
        wrong.raise_any()
        parts = [
            wire.length_delimited(_TO_SETTLE, element)
            for element in wire.elements(raw, _SETTLEMENTS)
        ]
        if message.request_id:
            parts.insert(0, wire.length_delimited(_REQUEST_ID, message.request_id.encode()))
        settle_raw = b"".join(parts)
        request = pb.SettleTasksRequest.FromString(settle_raw)
        hash_of_request = (
            request_hash(request, settle_raw, self._caller.name) if message.request_id else 0
        )
        own = own_settlements(self._reading.contents, request, self._caller)
        if own is not request:
            return self._submitter.submit(record_own(forms.SETTLE, own, hash_of_request))
        return self._submitter.submit(record(forms.SETTLE, request, settle_raw, hash_of_request))

    def _answer_settles(self, _done: object = None) -> None:
        """Send the answers that are known, up to the first that is not."""
        while self._settles:
            request_id, answer = self._settles[0]
            if not isinstance(answer, Refused) and not answer.done():
                break
            self._settles.popleft()
            message = settled_message(request_id, _settled(answer))
            self._subscription.outbox.add_message(message)
        self._settles_free.set()

    # ------------------------------------------------------------------------------ to the client

    async def _write(self, beat: Callable[[], pb.SubscribeResponse]) -> None:
        """Send what there is, and a heartbeat when one is due or asked for."""
        outbox = self._subscription.outbox
        self._arm_beat()
        try:
            while (raw := await outbox.next()) is not None:
                if self._beat_asked:
                    self._beat_asked = False
                    self._arm_beat()
                    raw += beat().SerializeToString()
                if raw:
                    await self._context.write(raw)
        finally:
            if self._beat_timer is not None:
                self._beat_timer.cancel()

    def _arm_beat(self) -> None:
        """Let the next heartbeat follow by itself when its time has come."""
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        self._beat_timer = self._loop.call_later(HEARTBEAT_MS / 1000, self._ask_beat)

    def _ask_beat(self) -> None:
        """Let the writer send a heartbeat with what it sends next, now at the latest."""
        self._beat_asked = True
        self._subscription.outbox.stir()


def _settled(answer: asyncio.Future[Outcome] | Refused) -> Outcome | Refused:
    """Return what became of one message of settlements."""
    if isinstance(answer, Refused):
        return answer
    if answer.cancelled():
        return Refused(error_pb2.Error.COMMIT_UNKNOWN, "the outcome is not known")
    error = answer.exception()
    if error is None:
        return answer.result()
    assert isinstance(error, NotProposed | OutcomeUnknown | Overloaded)
    refusal = refusal_of(error)
    assert refusal is not None
    return refusal
