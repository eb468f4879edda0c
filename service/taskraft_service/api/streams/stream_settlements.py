"""Submit the settlements of a Subscribe stream, and answer each message in the order of arrival.

Plain acknowledgements, which set nothing but their tokens, are collected in a run. The run becomes
one command when ``submit_run`` is called. All other settlements, and messages with an
idempotency_key, are commands of their own, so that a retry is recognised.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import wire
from taskraft_service.access.leases import own_settlements
from taskraft_service.api.rpc.status import CallRefused, refused_for
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.streams.responses import settled_message
from taskraft_service.api.streams.subscription_state import SubscriptionState
from taskraft_service.api.tasks.settle_checks import check_settlements
from taskraft_service.command_codecs.request_key import NO_KEY, RequestKey
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.entries.encoded_command import (
    encode_leader_command,
    encode_request,
    request_hash,
)
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    CommandSubmitter,
    CommandTooLarge,
    LeaderOverloaded,
    NotProposed,
    SubmitFailure,
)
from taskraft_service.limits import PUT_TASKS_MAX, REQUEST_ID_BYTES_MAX
from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.operations.settlements import SettleResult
from taskraft_service.queue.store.idempotency import request_scope

_SETTLEMENTS: Final = pb.SubscribeRequest.SETTLEMENTS_FIELD_NUMBER
_TO_SETTLE: Final = pb.SettleTasksRequest.SETTLEMENTS_FIELD_NUMBER
_REQUEST_ID: Final = pb.SettleTasksRequest.REQUEST_ID_FIELD_NUMBER
_CLIENT_ID: Final = pb.SettleTasksRequest.CLIENT_ID_FIELD_NUMBER

_Outcome = asyncio.Future[AppliedCommand] | CallRefused


@dataclass(slots=True)
class _Unanswered:
    """A message whose settlements were not answered yet."""

    request_id: str
    outcome: _Outcome | None = None
    """None: the message is in the run, which was not submitted."""
    item: int = 0
    """Position of the first token of the message in its command."""
    tokens: int | None = None
    """Number of tokens of the message; None: the command has no other message."""


class StreamSettlements:
    """The settlements of one stream that were not answered yet.

    Args:
        subscription: the subscription of the stream, which gets the answers.
        submitter: executes commands.
        reader: reads the queue.
        payload_bytes_max: maximum size of a payload, in bytes.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        submitter: CommandSubmitter,
        reader: QueueReader,
        payload_bytes_max: int,
    ) -> None:
        self._subscription = subscription
        self._caller = subscription.caller
        self._submitter = submitter
        self._reader = reader
        self._payload_bytes_max = payload_bytes_max
        self._unanswered: deque[_Unanswered] = deque()
        self._run: list[_Unanswered] = []
        """The last messages of ``_unanswered``, whose acknowledgements are not submitted."""
        self._run_tokens: list[int] = []
        self._answered = asyncio.Event()

    def __len__(self) -> int:
        return len(self._unanswered)

    async def wait_until_fewer(self, messages: int) -> None:
        """Wait until fewer than ``messages`` messages are unanswered."""
        while len(self._unanswered) >= messages:
            self._answered.clear()
            await self._answered.wait()

    # ------------------------------------------------------------------------------ submit

    def settle(self, message: pb.SubscribeRequest, raw: bytes) -> None:
        """Submit the settlements of a message, or add plain acknowledgements to the run.

        Args:
            message: the message of the client.
            raw: the message as received.
        """
        unanswered = _Unanswered(message.request_id)
        try:
            self._check(message)
        except CallRefused as refusal:
            self.submit_run()
            self._unanswered.append(unanswered)
            self._set_outcome([unanswered], refusal)
            return
        if _is_plain(message):
            self._add_to_run(message, unanswered)
            return
        self.submit_run()
        self._unanswered.append(unanswered)
        request, settle_raw, key = self._settle_request(message.idempotency_key, raw)
        self._submit([unanswered], request, settle_raw, key)

    def _check(self, message: pb.SubscribeRequest) -> None:
        violations = Violations()
        violations.check_text("request_id", message.request_id, REQUEST_ID_BYTES_MAX)
        violations.check_key_part("idempotency_key", message.idempotency_key, REQUEST_ID_BYTES_MAX)
        check_settlements(violations, message.settlements, self._payload_bytes_max)
        if violations.zeros:
            violations.allow_zeros(
                lambda: self._reader.defines_zero_for(message.settlements, self._caller)
            )
        violations.raise_if_any()

    def _add_to_run(self, message: pb.SubscribeRequest, unanswered: _Unanswered) -> None:
        tokens = [token for settlement in message.settlements for token in settlement.tokens]
        if len(self._run_tokens) + len(tokens) > PUT_TASKS_MAX:
            self.submit_run()
        unanswered.item = len(self._run_tokens)
        unanswered.tokens = len(tokens)
        self._run_tokens += tokens
        self._run.append(unanswered)
        self._unanswered.append(unanswered)

    def submit_run(self) -> None:
        """Submit the acknowledgements of the run as one command."""
        if not self._run:
            return
        run, tokens = self._run, self._run_tokens
        self._run, self._run_tokens = [], []
        if len(run) == 1:
            run[0].tokens = None
        request = pb.SettleTasksRequest(
            settlements=[pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())]
        )
        self._submit(run, request, request.SerializeToString(), NO_KEY)

    def _settle_request(
        self, idempotency_key: str, raw: bytes
    ) -> tuple[pb.SettleTasksRequest, bytes, RequestKey]:
        """Return the settlements of a message as an equal request of SettleTasks.

        This way a retry is recognised on another stream and in a call of SettleTasks.
        """
        settle_raw = wire.repeated(_TO_SETTLE, wire.elements(raw, _SETTLEMENTS))
        if not idempotency_key:
            return pb.SettleTasksRequest.FromString(settle_raw), settle_raw, NO_KEY
        client_id = self._subscription.client_id
        settle_raw = wire.length_delimited(_REQUEST_ID, idempotency_key.encode()) + settle_raw
        if client_id:
            settle_raw += wire.length_delimited(_CLIENT_ID, client_id.encode())
        request = pb.SettleTasksRequest.FromString(settle_raw)
        scope = request_scope(self._caller.name, client_id)
        return request, settle_raw, RequestKey(request_hash(request, settle_raw), scope)

    def _submit(
        self,
        messages: list[_Unanswered],
        request: pb.SettleTasksRequest,
        raw: bytes,
        key: RequestKey,
    ) -> None:
        """Submit the request that settles the leases of ``messages``."""
        own = own_settlements(self._reader.queues, request, self._caller)
        encoded = (
            encode_request(SETTLE, request, raw, key)
            if own is request
            else encode_leader_command(SETTLE, own, key)
        )
        try:
            outcome = self._submitter.submit(encoded)
        except (CommandTooLarge, LeaderOverloaded, NotProposed) as error:
            refusal = refused_for(error)
            assert refusal is not None
            self._set_outcome(messages, refusal)
            return
        self._set_outcome(messages, outcome)

    # ------------------------------------------------------------------------------ answer

    def _set_outcome(self, messages: list[_Unanswered], outcome: _Outcome) -> None:
        for one in messages:
            one.outcome = outcome
        if isinstance(outcome, CallRefused):
            self._send_answers()
        else:
            outcome.add_done_callback(self._send_answers)

    def _send_answers(self, _done: object = None) -> None:
        """Send the known answers in order, up to the first answer that is not known yet."""
        known, applied = None, None
        while self._unanswered:
            first = self._unanswered[0]
            outcome = first.outcome
            if outcome is None or (not isinstance(outcome, CallRefused) and not outcome.done()):
                break
            self._unanswered.popleft()
            if applied is None or outcome is not known:
                known, applied = outcome, _result_of(outcome)
            message = settled_message(first.request_id, _part_of(first, applied))
            self._subscription.responses.add_message(message)
        self._answered.set()


def _is_plain(message: pb.SubscribeRequest) -> bool:
    """Return whether a message has only acknowledgements that set nothing but their tokens."""
    if message.idempotency_key:
        return False
    for settlement in message.settlements:
        if not settlement.HasField("ack") or settlement.ack.ByteSize():
            return False
    return True


def _part_of(
    message: _Unanswered, outcome: AppliedCommand | CallRefused
) -> AppliedCommand | CallRefused:
    """Return the part of an outcome that belongs to one message; its items count from 0."""
    if message.tokens is None or isinstance(outcome, CallRefused):
        return outcome
    result = outcome.result
    if not isinstance(result, SettleResult) or not result.refused:
        return outcome
    # A run has only acknowledgements, whose result has nothing but refused items.
    start = bisect_left(result.refused, message.item, key=_item)
    end = bisect_left(result.refused, message.item + message.tokens, start, key=_item)
    refused = [
        ItemRefusal(one.item - message.item, one.refusal) for one in result.refused[start:end]
    ]
    return replace(outcome, result=SettleResult(refused))


def _item(refused: ItemRefusal) -> int:
    return refused.item


def _result_of(outcome: _Outcome) -> AppliedCommand | CallRefused:
    """Return the result of a command, or the refusal that stands for its failure."""
    if isinstance(outcome, CallRefused):
        return outcome
    if outcome.cancelled():
        return CallRefused(error_pb2.Error.COMMIT_UNKNOWN, "the outcome is unknown")
    error = outcome.exception()
    if error is None:
        return outcome.result()
    assert isinstance(error, SubmitFailure)
    refusal = refused_for(error)
    assert refusal is not None
    return refusal
