"""Propose the commands of checked calls, and return their results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from taskraft_service.access.audit import managed_act
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.access.ownership import ownership_of
from taskraft_service.api.rpc.message_fields import LONG_REQUEST_BYTES
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.rpc.status import CallRefused, refused_by_queue
from taskraft_service.command_codecs.audit import RECORD_ACT, act_message
from taskraft_service.command_codecs.command_codec import CommandCodec
from taskraft_service.command_codecs.request_key import NO_KEY, RequestKey
from taskraft_service.entries.encoded_command import (
    EncodedCommand,
    encode_leader_command,
    encode_request,
    request_hash,
    request_hash_in_parts,
)
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    CommandSubmitter,
)
from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.entities.ownership import EVERYBODY
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.operations.registry import Result
from taskraft_service.queue.store.idempotency import request_scope
from taskraft_service.stubs.log.v1 import log_pb2

M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Result)


def request_key(call: UnaryCall[M], hashed: int = 0) -> RequestKey:
    """Return the key of a request: its hash, the scope of its request_id, and its owner.

    The principal is that of the client, also for a call that another node has forwarded.

    Args:
        call: the call.
        hashed: the hash of the request; 0: unknown.
    """
    request: Any = call.request
    owner = EVERYBODY if call.caller is ANONYMOUS else ownership_of(call.caller, request)
    if not getattr(request, "request_id", ""):
        return NO_KEY if owner is EVERYBODY else RequestKey(owner=owner)
    principal, client_id = call.caller.name, request.client_id
    # Most callers have neither principal nor client_id; the condition saves a call for every put.
    scope = request_scope(principal, client_id) if principal or client_id else ""
    return RequestKey(hashed or request_hash(request, call.raw), scope, owner)


async def long_request_key(call: UnaryCall[M]) -> RequestKey:
    """Return the key of a long request; other work runs while the request is hashed."""
    has_id = bool(getattr(call.request, "request_id", ""))
    hashed = await request_hash_in_parts(call.request, call.raw) if has_id else 0
    return request_key(call, hashed)


def creation_key(call: UnaryCall[Any], creation: Message) -> RequestKey:
    """Return the key of a command that creates something for a call; it has no request_id."""
    if call.caller is ANONYMOUS:
        return NO_KEY
    owner = ownership_of(call.caller, creation)
    return NO_KEY if owner is EVERYBODY else RequestKey(owner=owner)


def act_of_call(call: UnaryCall[Any]) -> ManagedAct | None:
    """Return the act of management of a call; None: the call needs no permission to manage."""
    return managed_act(call.caller, call.request, call.managed) if call.managed else None


def scoped_request_id(call: UnaryCall[Any]) -> str:
    """Return the request_id with its scope in front; empty without a request_id."""
    request = call.request
    scope = request_scope(call.caller.name, request.client_id)
    return f"{scope}{request.request_id}" if request.request_id else ""


class CommandExecutor:
    """Turns checked calls into commands of the log and waits until the commands are applied."""

    def __init__(self, submitter: CommandSubmitter) -> None:
        self.submitter = submitter

    async def execute(
        self,
        codec: CommandCodec[M],
        call: UnaryCall[M],
        before: Sequence[EncodedCommand] = (),
        *,
        releases_request: bool = False,
    ) -> AppliedCommand:
        """Propose a request as received, and wait for its result.

        Args:
            codec: the type of the command.
            call: the checked call.
            before: commands that create missing tubes, to propose ahead in the same entry.
            releases_request: replace ``call.request`` by an empty message before the wait, because
                the caller does not need it afterwards.

        Raises:
            CallRefused: the queue refused the command.
            NotProposed: leadership was lost before the command was proposed.
            OutcomeUnknown: leadership was lost after the command was proposed.
            LeaderOverloaded: the queue of pending commands is full.
        """
        is_long = len(call.raw) > LONG_REQUEST_BYTES
        key = await long_request_key(call) if is_long else request_key(call)
        created = self._submit_all(before, call.deadline) if before else ()
        act = act_of_call(call) if call.managed else None
        encoded = encode_request(codec, call.request, call.raw, key, act)
        if releases_request:
            # The command and the received bytes hold the content too. Waiting puts hold most of the
            # memory of a busy leader.
            call.request = type(call.request)()
        applied = await self.submitter.submit(encoded, call.deadline)
        if isinstance(applied.result, Refusal):
            raise _refused(applied.result, created)
        return applied

    def propose(
        self, codec: CommandCodec[M], call: UnaryCall[M], request: M
    ) -> asyncio.Future[AppliedCommand]:
        """Propose ``request``; return the future of its outcome, perhaps a refusal.

        The request must be short, and the call must need no permission to manage. See
        ``execute_changed`` for ``request``, and ``execute`` for the errors, which the future has
        too.
        """
        key = request_key(call)
        if request is call.request:
            encoded = encode_request(codec, request, call.raw, key)
        else:
            encoded = encode_leader_command(codec, request, key)
        return self.submitter.submit(encoded, call.deadline)

    async def execute_changed(
        self,
        codec: CommandCodec[M],
        call: UnaryCall[M],
        request: M,
        before: Sequence[EncodedCommand] = (),
    ) -> AppliedCommand:
        """Propose ``request``, with the key of the received request.

        If ``request`` is the received request, its received bytes are proposed. See ``execute``
        for the other arguments and for the errors.
        """
        if request is call.request:
            return await self.execute(codec, call, before)
        is_long = len(call.raw) > LONG_REQUEST_BYTES
        key = await long_request_key(call) if is_long else request_key(call)
        created = self._submit_all(before, call.deadline) if before else ()
        act = act_of_call(call) if call.managed else None
        encoded = encode_leader_command(codec, request, key, act)
        return await self.execute_encoded(encoded, call.deadline, created)

    async def execute_encoded(
        self,
        encoded: EncodedCommand,
        deadline: float | None,
        created: Sequence[asyncio.Future[AppliedCommand]] = (),
    ) -> AppliedCommand:
        """Propose an encoded command, and wait for its result; see ``execute`` for the errors."""
        applied = await self.submitter.submit(encoded, deadline)
        if isinstance(applied.result, Refusal):
            raise _refused(applied.result, created)
        return applied

    async def record_act(self, call: UnaryCall[Any]) -> None:
        """Record a call of management that is no command of the log; see ``execute`` for errors."""
        act = act_of_call(call)
        if act is not None:
            message = log_pb2.RecordAct(act=act_message(act))
            await self.execute_encoded(encode_leader_command(RECORD_ACT, message), call.deadline)

    def submit_unawaited(self, encoded: EncodedCommand, deadline: float | None = None) -> None:
        """Propose a command without awaiting its result.

        Raises:
            NotProposed, LeaderOverloaded: as ``execute``.
        """
        self._submit_all((encoded,), deadline)

    def _submit_all(
        self, commands: Sequence[EncodedCommand], deadline: float | None
    ) -> Sequence[asyncio.Future[AppliedCommand]]:
        """Propose commands, and return their results, which nobody needs to await."""
        results = [self.submitter.submit(command, deadline) for command in commands]
        for result in results:
            result.add_done_callback(_retrieve_exception)
        return results


def _refused(refusal: Refusal, created: Sequence[asyncio.Future[AppliedCommand]]) -> CallRefused:
    """Return the error of a command that the queue has refused.

    Args:
        refusal: why the queue refused the command.
        created: results of the commands ahead of the command that create missing tubes. If one was
            refused, there is no tube for the command, and the error says why.
    """
    if refusal.reason is Reason.TUBE_NOT_FOUND:
        for one in created:
            if one.done() and not one.cancelled() and one.exception() is None:
                cause = one.result().result
                if isinstance(cause, Refusal):
                    return refused_by_queue(cause)
    return refused_by_queue(refusal)


def _retrieve_exception(future: object) -> None:
    """Mark the exception of a future as retrieved, so that asyncio does not log it."""
    exception = getattr(future, "exception", None)
    cancelled = getattr(future, "cancelled", None)
    if exception is not None and cancelled is not None and not cancelled():
        exception()


def result_of(applied: AppliedCommand, kind: type[R]) -> R:
    """Return the result of a command, which must be of type ``kind``.

    Raises:
        CallRefused: the queue refused the command.
    """
    if isinstance(applied.result, Refusal):
        raise refused_by_queue(applied.result)
    assert isinstance(applied.result, kind), f"{applied.result} is not a {kind.__name__}"
    return applied.result
