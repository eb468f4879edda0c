"""Keep the state of one subscription: filter, credit, and claims (takes proposed by the leader).

``check_stream_message`` checks each message of the client before it changes the state.

This module does no I/O; ``taskraft_service.api.streams.subscribe_stream`` transfers the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.caller import ANONYMOUS, Caller
from taskraft_service.api.rpc.call_load import CallLoad
from taskraft_service.api.rpc.status import (
    RETRY_DELAY_MS,
    CallRefused,
    error_message,
    tube_not_found,
)
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.streams.responses import ResponseBuffer
from taskraft_service.api.tasks.answers import encode_tasks
from taskraft_service.api.tasks.consumer_sources import (
    ConsumerSources,
    check_sources,
    check_types,
)
from taskraft_service.command_codecs.put import payload_bytes
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.command_submitter import AppliedCommand, SubmitFailure
from taskraft_service.leader.waiting_consumer import Claim, ConsumerProfile
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.operations.take import TakeResult

_TASKS: Final = pb.SubscribeResponse.TASKS_FIELD_NUMBER


class SubscriptionState:
    """A ``WaitingConsumer`` with credit.

    Args:
        opened: the checked first message of the client.
        session_id: the session that holds the leases.
        release: releases leases whose tasks cannot be sent.
        load: counts the unsent responses of all streams.
        caller: the caller of the stream.
        since_ms: instant at which the stream was opened, in wall time.
    """

    one_shot = False

    def __init__(
        self,
        opened: pb.SubscribeRequest.Open,
        session_id: str,
        release: Callable[[list[int]], None],
        load: CallLoad,
        caller: Caller = ANONYMOUS,
        since_ms: int = 0,
    ) -> None:
        self.session_id = session_id
        self._since_ms = since_ms
        self.caller = caller
        self.client_id = opened.client_id
        """Part of the scope of the idempotency keys of the stream."""
        self._sources = ConsumerSources(opened.sources, caller)
        self.sources = self._sources.names
        self._remaining = set(self.sources)
        """Named tubes that were not dropped since the stream was opened."""
        self.is_new = not opened.session_id
        self.silence_ms_max = opened.silence_ms_max
        """Maximum time without a message of the client, in ms; 0: no maximum."""
        self.heartbeat_ms = opened.heartbeat_ms
        """Interval of heartbeats that the client chose, in ms; 0: the default."""
        self._go_away: pb.SubscribeResponse.GoAway | None = None
        self.responses = ResponseBuffer(load)
        self._is_held_back = False
        self._release = release
        self._payload_omit = opened.payload_omit
        self._last_take: tuple[tuple[tuple[str, ...], int, int], EncodedCommand] | None = None
        self._take = pb.TakeTasksRequest(session_id=session_id)
        self.filter(opened)
        if opened.HasField("ttr_ms"):
            self._take.ttr_ms = opened.ttr_ms
        self._credit_tasks = 0
        self._credit_bytes: int | None = None
        self._granted = False
        self._claimed_tasks = 0
        self.idle = asyncio.Event()
        """Set while no claim is in flight."""
        self.idle.set()

    @property
    def profile(self) -> ConsumerProfile:
        """Identity and waiting time of the consumer."""
        caller = self.caller
        return ConsumerProfile(
            principal=caller.name,
            peer=caller.peer,
            session_id=self.session_id,
            types=tuple(self._take.types),
            since_ms=self._since_ms,
        )

    @property
    def is_selective(self) -> bool:
        """Return whether the consumer accepts only some of the ready tasks."""
        return bool(self._take.types) or self._take.HasField("priority_bound")

    def allows(self, tube: str) -> bool:
        """Return whether the consumer may take from a tube that one of its patterns matches."""
        return self._sources.allows(tube)

    def yields(self, tube: str) -> bool:
        """Return whether other consumers of a tube that do not yield are served first."""
        return self._sources.yields(tube)

    def filter(self, wanted: pb.SubscribeRequest.Open | pb.SubscribeRequest.Filter) -> None:
        """Set the filter for further claims; claims in flight may still deliver other tasks."""
        request = self._take
        del request.types[:]
        request.types.extend(wanted.types)
        request.ClearField("priority_bound")
        if wanted.HasField("priority_bound"):
            request.priority_bound = wanted.priority_bound
        self._accepts_none = isinstance(wanted, pb.SubscribeRequest.Filter) and wanted.none
        self._last_take = None

    # ------------------------------------------------------------------------------ credit

    @property
    def credit_tasks(self) -> int:
        """The unused credit, in tasks."""
        return self._credit_tasks

    def grant(self, credit: pb.SubscribeRequest.Credit) -> None:
        """Add credit; the first grant decides whether bytes are limited."""
        if not self._granted:
            self._granted = True
            self._credit_bytes = credit.bytes or None
        elif self._credit_bytes is not None:
            self._credit_bytes += credit.bytes
        self._credit_tasks += credit.tasks

    def wanted_tasks(self) -> int:
        """Return the unused credit minus the claims in flight; 0 if no task may be sent now."""
        if self.responses.ended or self._accepts_none:
            return 0
        if self.responses.is_full:
            self._is_held_back = True
            return 0
        if self._credit_bytes is not None and (self._credit_bytes <= 0 or self._claimed_tasks):
            # The size of a claim in flight is unknown, so allow one claim at a time.
            return 0
        return self._credit_tasks - self._claimed_tasks

    def resumes(self) -> bool:
        """Return True once after a full response buffer has drained."""
        if not self._is_held_back or self.responses.is_full:
            return False
        self._is_held_back = False
        return True

    def take(self, tubes: Sequence[str], tasks_max: int) -> EncodedCommand:
        """Return a take from existing tubes, whose result is later passed to ``answered``."""
        self._claimed_tasks += tasks_max
        self.idle.clear()
        bytes_max = min(self._credit_bytes or limits.TAKE_BYTES_DEFAULT, limits.TAKE_BYTES_DEFAULT)
        # Use the current permissions, which may have changed since the last take.
        key = (self._sources.allowed(tubes), tasks_max, bytes_max)
        if self._last_take is not None and self._last_take[0] == key:
            # A consumer that takes one task at a time repeats the same take.
            return self._last_take[1]
        request = self._take
        del request.sources[:]
        request.sources.extend(self._sources.narrowed(tubes))
        request.tasks_max = tasks_max
        request.bytes_max = bytes_max
        encoded_take = encode_leader_command(TAKE, request)
        self._last_take = (key, encoded_take)
        return encoded_take

    def answered(self, claim: Claim, outcome: AppliedCommand | SubmitFailure) -> None:
        """Send the tasks or the refusal of a claim to the client."""
        self._claimed_tasks -= claim.tasks_max
        assert self._claimed_tasks >= 0
        if not self._claimed_tasks:
            self.idle.set()
        if not isinstance(outcome, AppliedCommand):
            # The registry ends the stream when leadership is lost; a failed claim alone does not.
            return
        if isinstance(outcome.result, Refusal):
            # A tube that matched a pattern was dropped; another tube may match later.
            was_dropped = outcome.result.reason is Reason.TUBE_NOT_FOUND
            if not (was_dropped and self._sources.has_patterns):
                self.send_go_away(error_message(outcome.result))
        elif isinstance(outcome.result, TakeResult) and outcome.result.tasks:
            self._send(outcome.result.tasks, outcome.wall_offset_ms)

    def tube_dropped(self, tube: str) -> None:
        """End the stream with TUBE_NOT_FOUND if none of its sources is left."""
        self._remaining.discard(tube)
        if not self._remaining and not self._sources.has_patterns:
            missing = tube_not_found(tube)
            self.send_go_away(
                error_pb2.Error(
                    reason=error_pb2.Error.TUBE_NOT_FOUND,
                    message=missing.message,
                    metadata=missing.metadata,
                )
            )

    def _send(self, tasks: Sequence[TaskView], wall_offset_ms: int) -> None:
        if self.responses.ended:
            self._release([task.token for task in tasks])
            return
        self._credit_tasks -= len(tasks)
        if self._credit_bytes is not None and not self._payload_omit:
            self._credit_bytes -= sum(payload_bytes(task.body) for task in tasks)
        encoded = encode_tasks(tasks, _TASKS, wall_offset_ms, payload_omit=self._payload_omit)
        self.responses.add_tasks(encoded, [task.token for task in tasks])

    def send_go_away(self, error: error_pb2.Error, leader: str = "", retry_ms: int = 0) -> None:
        """End the stream with GoAway; the leases last until the session ends."""
        if self.responses.ended:
            return
        self._go_away = pb.SubscribeResponse.GoAway(error=error, leader=leader, retry_ms=retry_ms)
        self.responses.end(pb.SubscribeResponse(go_away=self._go_away))

    def raise_go_away(self) -> None:
        """Raise a refusal with the reason of the GoAway that was sent; do nothing if none was sent.

        Raises:
            CallRefused: this side ended the stream; the status has the reason of the GoAway.
        """
        go_away = self._go_away
        if go_away is None:
            return
        metadata = dict(go_away.error.metadata)
        if go_away.leader:
            metadata["leader"] = go_away.leader
        raise CallRefused(
            go_away.error.reason,
            go_away.error.message,
            metadata,
            retry_ms=go_away.retry_ms or RETRY_DELAY_MS,
        )


def check_stream_message(
    message: pb.SubscribeRequest, tasks_open: int, *, is_first: bool
) -> Violations:
    """Return the violations of a message of a stream, except those of its settlements.

    Args:
        message: the message.
        tasks_open: the unused credit in tasks before the message.
        is_first: whether it is the first message, which must open the subscription.
    """
    violations = Violations()
    if message.HasField("open") is not is_first:
        violations.add(
            "open",
            "missing in the first message" if is_first else "allowed only in the first message",
        )
    elif is_first:
        _check_open(violations, message.open)
    if message.HasField("filter"):
        _check_filter(violations, message.filter)
    if message.HasField("credit"):
        _check_credit(violations, message.credit, tasks_open)
    return violations


def _check_open(violations: Violations, opened: pb.SubscribeRequest.Open) -> None:
    check_sources(violations, "open.sources", opened.sources)
    check_types(violations, "open.types", opened.types)
    if opened.session_id:
        violations.check_session_id("open.session_id", opened.session_id)
    violations.check_range(
        "open.session_ttr_ms", opened.session_ttr_ms, 0, limits.SESSION_TTR_MAX_MS
    )
    violations.check_text("open.session_name", opened.session_name, limits.NAME_BYTES_MAX)
    violations.check_labels("open.session_labels", opened.session_labels)
    violations.check_key_part("open.client_id", opened.client_id, limits.CLIENT_ID_BYTES_MAX)
    violations.check_limit("open.ttr_ms", opened, "ttr_ms")
    violations.check_range("open.silence_ms_max", opened.silence_ms_max, 0, limits.SILENCE_MAX_MS)
    if opened.heartbeat_ms:
        bounds = (limits.HEARTBEAT_INTERVAL_MIN_MS, limits.HEARTBEAT_INTERVAL_MAX_MS)
        violations.check_range("open.heartbeat_ms", opened.heartbeat_ms, *bounds)


def _check_filter(violations: Violations, wanted: pb.SubscribeRequest.Filter) -> None:
    check_types(violations, "filter.types", wanted.types)
    if wanted.none and (wanted.types or wanted.HasField("priority_bound")):
        violations.add("filter.none", "not allowed together with types or priority_bound")


def _check_credit(
    violations: Violations, credit: pb.SubscribeRequest.Credit, tasks_open: int
) -> None:
    violations.check_not_negative("credit.tasks", credit.tasks)
    violations.check_not_negative("credit.bytes", credit.bytes)
    total = credit.tasks + tasks_open
    if total > limits.CREDIT_TASKS_MAX:
        text = f"the total credit would be {total} tasks, more than {limits.CREDIT_TASKS_MAX}"
        limit = {"value": str(credit.tasks), "limit": f"..{limits.CREDIT_TASKS_MAX - tasks_open}"}
        violations.add("credit.tasks", text, limit)
