"""Handle ListConsumers: the consumers of a tube or of a session, on the leader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft.v1 import tube_service_pb2 as pb
from taskraft_service.access.leases import SHOWN_SESSION_ID_LENGTH
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.paging import list_fingerprint, page_of
from taskraft_service.api.rpc.request_steps import MESSAGE_STEPS, RequestSteps
from taskraft_service.api.rpc.status import tube_not_found
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.state.session_search import SessionSearch, check_session_search
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import WaitingConsumer
from taskraft_service.limits import PAGE_SIZE_MAX

POSITION_DIGITS: Final = 12
"""Digits of a position in a page token, so that positions are ordered as texts."""
CONSUMER_STEPS: Final = 4
"""Number of steps that stand for reading the session or the credit of a waiting consumer."""


class ConsumersHandler:
    """The handler of ListConsumers.

    Args:
        reader: reads the queue.
        waiters: the waiting consumers of this node.
    """

    def __init__(self, reader: QueueReader, waiters: Waiters) -> None:
        self._reader = reader
        self._search = SessionSearch(reader)
        self._waiters = waiters

    def method(self) -> AnyUnaryMethod:
        """Return the method ListConsumers with its handler."""
        return UnaryMethod(
            "ListConsumers", pb.ListConsumersRequest, ExecutionSite.LEADER, self.list_consumers
        )

    async def list_consumers(
        self, call: UnaryCall[pb.ListConsumersRequest]
    ) -> pb.ListConsumersResponse:
        """Return a page of the consumers that wait on a tube, or of those of a session.

        Raises:
            CallRefused: TUBE_NOT_FOUND, SESSION_NOT_FOUND, INVALID_FIELD.
        """
        request = call.request
        _check(request)
        page, next_token = page_of(
            list(enumerate(await self._waiting(call))),
            lambda row: f"{row[0]:0{POSITION_DIGITS}}",
            request.page_size or PAGE_SIZE_MAX,
            request.page_token,
            list_fingerprint("consumers", request.tube, request.session_id),
        )
        shown = [consumer for _, consumer in page]
        return pb.ListConsumersResponse(
            consumers=await call.steps.in_slices(shown, consumer_message, MESSAGE_STEPS),
            next_page_token=next_token,
            now_ms=self._reader.wall_now_ms(),
        )

    async def _waiting(self, call: UnaryCall[pb.ListConsumersRequest]) -> Sequence[WaitingConsumer]:
        """Return the consumers that the request asks for."""
        if call.request.session_id:
            session = await self._search.find(call.request.session_id, call)
            own = session.session_id
            everyone = list(self._waiters)
            return await call.steps.select(
                everyone, lambda one: one.profile.session_id == own, CONSUMER_STEPS
            )
        tube = call.request.tube
        if self._reader.applied.tube_number(tube) is None:
            raise tube_not_found(tube)
        return await self._waiting_on(tube, call.steps)

    async def _waiting_on(self, tube: str, steps: RequestSteps) -> Sequence[WaitingConsumer]:
        """Return the consumers of a tube in the order in which they are served.

        Consumers that accept no task now, such as subscriptions without credit, come last.
        """
        everyone, line = list(self._waiters), self._waiters.in_line(tube)
        consumers = dict.fromkeys(line)
        consumers.update(dict.fromkeys(everyone))
        on_tube = await steps.select(
            list(consumers), lambda one: self._waiters.waits_on(one, tube), 1
        )
        wanted = await steps.in_slices(on_tube, _wanted_tasks, CONSUMER_STEPS)
        wanting = [one for one, tasks in zip(on_tube, wanted, strict=True) if tasks]
        others = [one for one, tasks in zip(on_tube, wanted, strict=True) if not tasks]
        return [*wanting, *others]


def _wanted_tasks(consumer: WaitingConsumer) -> int:
    return consumer.wanted_tasks()


def _check(request: pb.ListConsumersRequest) -> None:
    violations = Violations()
    if request.session_id:
        check_session_search(violations, "session_id", request.session_id)
        if request.tube:
            violations.add("tube", "excludes session_id")
    else:
        violations.check_tube("tube", request.tube)
    violations.check_page(request.page_size, request.page_token)
    violations.raise_if_any()


def consumer_message(consumer: WaitingConsumer) -> pb.WaitingConsumer:
    """Return a waiting consumer as a message, with the prefix of its session id."""
    profile = consumer.profile
    kinds = pb.WaitingConsumer
    return pb.WaitingConsumer(
        kind=kinds.CALL if consumer.one_shot else kinds.STREAM,
        sources=consumer.sources,
        types=profile.types,
        wanted=consumer.wanted_tasks(),
        session_id=profile.session_id[:SHOWN_SESSION_ID_LENGTH],
        principal=profile.principal,
        peer=profile.peer,
        since_ms=profile.since_ms,
        until_ms=profile.until_ms,
    )
