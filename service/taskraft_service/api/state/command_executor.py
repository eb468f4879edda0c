"""Propose what a client asks for, and wait for what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import Message

from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.rpc.status import refused_by_queue
from taskraft_service.command_codecs.command_codec import CommandCodec
from taskraft_service.entries.encoded_command import (
    EncodedCommand,
    encode_leader_command,
    encode_request,
    request_hash,
)
from taskraft_service.leader.command_submitter import AppliedCommand, CommandSubmitter
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.operations.registry import Result

M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Result)


def idempotency_hash(call: UnaryCall[M]) -> int:
    """Return the hash of a request that has a request_id; 0 for one that is not remembered."""
    is_named = bool(getattr(call.request, "request_id", ""))
    return request_hash(call.request, call.raw, call.caller.name) if is_named else 0


class CommandExecutor:
    """Turns checked calls into log entries."""

    def __init__(self, submitter: CommandSubmitter) -> None:
        self.submitter = submitter

    async def apply(
        self, codec: CommandCodec[M], call: UnaryCall[M], before: Sequence[EncodedCommand] = ()
    ) -> AppliedCommand:
        """Propose a request as it came.

        Args:
            codec: the kind of command.
            call: the call, checked.
            before: commands to be proposed ahead of it in the same entry; their results are not
                waited for.

        Raises:
            Refused: the queue refused it.
            NotProposed: leadership was lost before anything was written.
            OutcomeUnknown: leadership was lost afterwards.
            Overloaded: too much waits already.
        """
        hash_of_request = idempotency_hash(call)
        if before:
            self._propose_before(before, call.deadline)
        encoded = encode_request(codec, call.request, call.raw, hash_of_request)
        return await self.propose(encoded, call.deadline)

    async def apply_as(
        self,
        codec: CommandCodec[M],
        call: UnaryCall[M],
        request: M,
        before: Sequence[EncodedCommand] = (),
    ) -> AppliedCommand:
        """Propose another request in place of the one that came, known under that one's hash.

        The one that came is proposed as its own bytes. Takes and raises what ``apply`` does.
        """
        if request is call.request:
            return await self.apply(codec, call, before)
        hash_of_request = idempotency_hash(call)
        self._propose_before(before, call.deadline)
        return await self.propose(
            encode_leader_command(codec, request, hash_of_request), call.deadline
        )

    def _propose_before(self, before: Sequence[EncodedCommand], deadline: float | None) -> None:
        for encoded in before:
            # Not waited for; that its outcome is not looked at is no error either.
            self.submitter.submit(encoded, deadline).add_done_callback(_retrieve_exception)

    async def propose(self, encoded: EncodedCommand, deadline: float | None) -> AppliedCommand:
        """Propose a command; see ``apply``."""
        outcome = await self.submitter.submit(encoded, deadline)
        if isinstance(outcome.result, Refusal):
            raise refused_by_queue(outcome.result)
        return outcome


def _retrieve_exception(future: object) -> None:
    """Mark the exception of a future as seen."""
    exception = getattr(future, "exception", None)
    cancelled = getattr(future, "cancelled", None)
    if exception is not None and cancelled is not None and not cancelled():
        exception()


def result_of(outcome: AppliedCommand, kind: type[R]) -> R:
    """Return the result of a command, which is of the kind that this command answers."""
    assert isinstance(outcome.result, kind), f"{outcome.result} is not a {kind.__name__}"
    return outcome.result
