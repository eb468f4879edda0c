"""Keep one subscription: its wishes, its credit, and what its claims bring.

Pure bookkeeping on the event loop; ``taskraft_service.api.streams.subscribe`` moves the bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import wire
from taskraft_service.access.caller import ANONYMOUS, Caller
from taskraft_service.api.rpc.status import CallRefused, error_message, item_errors
from taskraft_service.api.streams.response_buffer import ResponseBuffer
from taskraft_service.api.tasks.answers import encode_tasks
from taskraft_service.api.tasks.consumer_sources import ConsumerSources
from taskraft_service.command_codecs.put import payload_bytes
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.command_submitter import AppliedCommand, SubmitFailure
from taskraft_service.leader.waiting_consumer import Claim
from taskraft_service.limits import TAKE_BYTES_DEFAULT
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.operations.settlements import SettleResult
from taskraft_service.queue.operations.take import TakeResult

_TASKS: Final = pb.SubscribeResponse.TASKS_FIELD_NUMBER


class SubscriptionState:
    """A consumer with credit; satisfies ``WaitingConsumer``.

    Args:
        opened: what the client asked for, checked.
        session_id: holds the leases.
        give_back: releases leases whose tasks cannot be sent any more.
        caller: whose stream it is.
    """

    one_shot = False

    def __init__(
        self,
        opened: pb.SubscribeRequest.Open,
        session_id: str,
        give_back: Callable[[list[int]], None],
        caller: Caller = ANONYMOUS,
    ) -> None:
        self.session_id = session_id
        self.caller = caller
        self._sources = ConsumerSources(opened.sources, caller)
        self.sources = self._sources.names
        self.is_new = not opened.session_id
        self.outbox = ResponseBuffer()
        self._give_back = give_back
        self._payload_omit = opened.payload_omit
        self._last_take: tuple[tuple[tuple[str, ...], int, int], EncodedCommand] | None = None
        self._take = pb.TakeTasksRequest(session_id=session_id)
        self.filter(opened)
        if opened.HasField("ttr_ms"):
            self._take.ttr_ms = opened.ttr_ms
        self._tasks_open = 0
        self._bytes_open: int | None = None
        self._granted = False
        self._claimed = 0
        self.idle = asyncio.Event()
        """Set while no claim is without answer."""
        self.idle.set()

    @property
    def is_selective(self) -> bool:
        """See ``Consumer``."""
        return bool(self._take.types) or self._take.HasField("priority_bound")

    def allows(self, tube: str) -> bool:
        """See ``Consumer``."""
        return self._sources.allows(tube)

    def filter(self, wish: pb.SubscribeRequest.Open | pb.SubscribeRequest.Filter) -> None:
        """Take only such tasks from now on; claims without answer still bring others."""
        request = self._take
        del request.types[:]
        request.types.extend(wish.types)
        request.ClearField("priority_bound")
        if wish.HasField("priority_bound"):
            request.priority_bound = wish.priority_bound
        self._takes_none = isinstance(wish, pb.SubscribeRequest.Filter) and wish.none
        self._last_take = None

    # ------------------------------------------------------------------------------ credit

    @property
    def tasks_open(self) -> int:
        """How many tasks the client still allows."""
        return self._tasks_open

    def grant(self, credit: pb.SubscribeRequest.Credit) -> None:
        """Add to the credit; whether bytes are limited is decided by the first grant."""
        if not self._granted:
            self._granted = True
            self._bytes_open = credit.bytes or None
        elif self._bytes_open is not None:
            self._bytes_open += credit.bytes
        self._tasks_open += credit.tasks

    def wanted_tasks(self) -> int:
        """Return how many tasks the credit allows beyond the claims without answer."""
        if self.outbox.ended or self._takes_none:
            return 0
        if self._bytes_open is not None and (self._bytes_open <= 0 or self._claimed):
            # What claims without answer will weigh is not known: one at a time.
            return 0
        return self._tasks_open - self._claimed

    def take(self, tubes: Sequence[str], tasks_max: int) -> EncodedCommand:
        """Return a take within the credit."""
        self._claimed += tasks_max
        self.idle.clear()
        bytes_max = min(self._bytes_open or TAKE_BYTES_DEFAULT, TAKE_BYTES_DEFAULT)
        # By the rights that are in force now: they may have been withdrawn since the last take.
        wish = (self._sources.allowed(tubes), tasks_max, bytes_max)
        if self._last_take is not None and self._last_take[0] == wish:
            # A consumer of single tasks takes the same way every time.
            return self._last_take[1]
        request = self._take
        del request.sources[:]
        request.sources.extend(self._sources.narrowed(tubes))
        request.tasks_max = tasks_max
        request.bytes_max = bytes_max
        encoded_take = encode_leader_command(TAKE, request)
        self._last_take = (wish, encoded_take)
        return encoded_take

    def answered(self, claim: Claim, outcome: AppliedCommand | SubmitFailure) -> None:
        """Send what a claim brought."""
        self._claimed -= claim.tasks_max
        assert self._claimed >= 0
        if not self._claimed:
            self.idle.set()
        if not isinstance(outcome, AppliedCommand):
            # The roles tell the stream that leadership is lost; a lost claim alone says nothing.
            return
        if isinstance(outcome.result, Refusal):
            # A tube that matched a pattern may be dropped meanwhile; another may come.
            is_gone = outcome.result.reason is Reason.TUBE_NOT_FOUND
            if not (is_gone and self._sources.has_patterns):
                self.go_away(outcome.result)
        elif isinstance(outcome.result, TakeResult) and outcome.result.tasks:
            self._send(outcome.result.tasks)

    def tube_dropped(self, tube: str) -> None:
        """Wait on: a stream outlives its tubes, and another of the name may come."""

    def _send(self, tasks: Sequence[TaskView]) -> None:
        if self.outbox.ended:
            self._give_back([task.token for task in tasks])
            return
        self._tasks_open -= len(tasks)
        if self._bytes_open is not None and not self._payload_omit:
            self._bytes_open -= sum(payload_bytes(task.body) for task in tasks)
        encoded = encode_tasks(tasks, _TASKS, payload_omit=self._payload_omit)
        self.outbox.add_tasks(encoded, [task.token for task in tasks])

    def go_away(self, refusal: Refusal, leader: str = "", retry_ms: int = 0) -> None:
        """End the stream with the reason; the leases live on for the session's grace."""
        self.depart(error_message(refusal), leader, retry_ms)

    def depart(self, error: error_pb2.Error, leader: str, retry_ms: int) -> None:
        """End the stream with the reason."""
        go_away = pb.SubscribeResponse.GoAway(error=error, leader=leader, retry_ms=retry_ms)
        self.outbox.end(pb.SubscribeResponse(go_away=go_away))


def opened_message(session_id: str, held: Sequence[TaskView]) -> bytes:
    """Return the first message of a stream: its session, and what that holds already."""
    session = pb.SubscribeResponse.Opened(session_id=session_id).SerializeToString()
    leases = encode_tasks(held, pb.SubscribeResponse.Opened.HELD_FIELD_NUMBER, payload_omit=True)
    opened = pb.SubscribeResponse.OPENED_FIELD_NUMBER
    return wire.length_delimited(opened, b"".join((session, *leases)))


def settled_message(request_id: str, outcome: AppliedCommand | CallRefused) -> pb.SubscribeResponse:
    """Return the answer to one message of settlements."""
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
        for lease in outcome.result.touched:
            settled.touched.add(
                token=lease.token,
                lease_until_ms=lease.lease_until_ms,
                cancel_requested=lease.cancel_requested,
            )
    return pb.SubscribeResponse(settled=[settled])
