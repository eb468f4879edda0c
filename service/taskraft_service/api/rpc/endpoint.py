"""Serve the methods of the contract to any gRPC server.

Every call takes the same steps: authentication, size limit, drain check, execution here or
forwarding to the leader, mapping of errors to statuses, and call counts. ``method_table`` describes
the coroutines that this module builds, and ``rpc_server`` the servers that run them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Final, NoReturn

import structlog
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from taskraft.v1 import error_pb2
from taskraft_replication.errors import NotRaftLeader
from taskraft_service.access.audit import log_unauthenticated
from taskraft_service.access.authenticator import OPEN_AUTHENTICATOR, Authenticator, value_in
from taskraft_service.access.caller import ANONYMOUS, Caller, Unauthenticated
from taskraft_service.api.rpc.answer_bytes import name_principal
from taskraft_service.api.rpc.call_ends import CALL_KEY, END_CALLS_PATH, end_calls
from taskraft_service.api.rpc.call_load import CallCounts, CallLoad
from taskraft_service.api.rpc.calls_at_leader import CallAttempts, ThisNodeLeads
from taskraft_service.api.rpc.delivery import AnswerUndo, delivering
from taskraft_service.api.rpc.forwarded_lists import forward_calls
from taskraft_service.api.rpc.forwarding import Forwarder
from taskraft_service.api.rpc.forwarding_metadata import (
    WAITED_KEY,
    CallOrigin,
    hop_count,
    trace_context,
    waited_seconds,
)
from taskraft_service.api.rpc.grpc_calls import (
    ClientGone,
    GrpcMessageStream,
    LeaderAnsweredError,
    release_frames,
)
from taskraft_service.api.rpc.live_calls import LiveCall, revoked_in_progress
from taskraft_service.api.rpc.message_fields import LONG_REQUEST_BYTES, begin_long_message
from taskraft_service.api.rpc.method_table import (
    CallKind,
    MethodTable,
    ServedMethod,
    StreamHandle,
    UnaryHandle,
    guard,
)
from taskraft_service.api.rpc.methods import (
    AnyUnaryMethod,
    ServerStreamHandler,
    ServiceMethods,
    StreamHandler,
)
from taskraft_service.api.rpc.prompt_calls import LEADER_KEY, NodeCalls, PromptMethod
from taskraft_service.api.rpc.server_context import ServerContext
from taskraft_service.api.rpc.shared_calls import FORWARD_CALLS_PATH
from taskraft_service.api.rpc.status import (
    CODES,
    CallRefused,
    reason_name,
    refused_for,
    status_metadata,
)
from taskraft_service.leader.command_submitter import NotProposed
from taskraft_service.storage.rocks import StateDamaged
from taskraft_service.turns import next_turn, turn_owner

log: Final = structlog.get_logger(__name__)

running_method: Final[ContextVar[str]] = ContextVar("running_method", default="")
"""Name of the method whose call a task serves; empty in a task of the node itself."""

SHORT_TAKE_BYTES: Final = 1_024
"""Size of a take up to which the take needs no turn when it begins."""
EXECUTION_ATTEMPTS_MAX: Final = 8
"""Maximum number of nodes and leaderships that one call tries before it is refused."""


def _end_of(call: LiveCall | None, error: BaseException) -> Exception:
    """Return the error with which a call ends, given the error that ended its handler.

    Raises:
        BaseException: the handler was cancelled, but not because the call was revoked.
    """
    ended_by = error if call is None else call.outcome(error)
    if isinstance(ended_by, Exception):
        return ended_by
    raise ended_by


def _prompt_bytes(method: AnyUnaryMethod) -> int:
    """Return the size of requests of a method up to which a call needs no turn.

    Commands that are proposed without a wait are cheap for their size, and a short take is cheap.
    Other requests can be expensive, such as a page of tasks.
    """
    if method.can_begin:
        return LONG_REQUEST_BYTES
    return SHORT_TAKE_BYTES if method.is_wait else 0


async def _take_turn(method: AnyUnaryMethod, raw: bytes) -> None:
    """Wait for the turn of a request, and check a long one.

    Raises:
        CallRefused: PAYLOAD_TOO_LARGE or TOO_MANY_STEPS.
    """
    if len(raw) > LONG_REQUEST_BYTES:
        await begin_long_message(raw, method.kind)
    else:
        await next_turn()


def _refuse_draining() -> NoReturn:
    raise CallRefused(error_pb2.Error.DRAINING, "this node is stopping")


def _unchanged(_path: str, handle: UnaryHandle) -> UnaryHandle:
    return handle


def _undo(method: AnyUnaryMethod, authenticator: Authenticator) -> AnswerUndo:
    """Return what undoes an answer which could not be sent to its caller."""

    def undo(raw: bytes, answer: bytes, context: ServerContext) -> None:
        is_open = authenticator is OPEN_AUTHENTICATOR
        method.undo(raw, answer, ANONYMOUS if is_open else authenticator.authenticate(context))

    return AnswerUndo(method.is_idempotent, undo)


class GrpcEndpoint:
    """Builds the table of methods of a node, and counts the calls in progress.

    Args:
        forwarder: forwards calls to the leader.
        load: counts and bounds the calls in progress.
        bug_found: called with each unexpected exception, which is a bug of the server.
        damage_met: called when a call has read damaged state.
    """

    def __init__(
        self,
        forwarder: Forwarder,
        load: CallLoad,
        bug_found: Callable[[Exception], None] = lambda _: None,
        damage_met: Callable[[StateDamaged], None] = lambda _: None,
    ) -> None:
        self._bug_found = bug_found
        self._damage_met = damage_met
        self.load = load
        self._leadership = forwarder.leadership
        self._forwarder = forwarder
        self.counts = CallCounts({})
        self.instrument: Callable[[str, UnaryHandle], UnaryHandle] = _unchanged
        """Puts spans around the calls of a unary method; set before ``table`` is called."""

    def table(
        self,
        services: Iterable[ServiceMethods],
        authenticator: Authenticator = OPEN_AUTHENTICATOR,
    ) -> MethodTable:
        """Return the methods of the services by path; every caller is authenticated first.

        The table also has the methods for other nodes: one ends the calls that a node has
        forwarded, and one forwards calls in one message. The latter needs methods that can begin
        calls without a task, and callers without authentication.
        """
        table = {
            f"/{methods.service.full_name}/{method.name}": self._served(
                f"/{methods.service.full_name}/{method.name}", methods, method.name, authenticator
            )
            for methods in services
            for method in methods.service.methods
        }
        table[END_CALLS_PATH] = self._end_calls(authenticator)
        prompt = {path: one.prompt for path, one in table.items() if one.prompt is not None}
        if prompt and authenticator is OPEN_AUTHENTICATOR:
            table[FORWARD_CALLS_PATH] = self._forward_calls(prompt, authenticator)
        return table

    def _end_calls(self, authenticator: Authenticator) -> ServedMethod:
        async def handle(raw: bytes, context: ServerContext) -> bytes:
            try:
                return end_calls(raw, self.load.live, authenticator.authenticate(context))
            except Exception as error:  # noqa: BLE001 - every error gets a status
                await self._abort(END_CALLS_PATH, context, error)

        guarded = guard(END_CALLS_PATH, handle, authenticator, self._abort)
        return ServedMethod(CallKind.UNARY, handle, guarded, authenticator)

    def _forward_calls(
        self, methods: Mapping[str, PromptMethod], authenticator: Authenticator
    ) -> ServedMethod:
        load = self.load

        async def handle(raw: bytes, context: ServerContext) -> bytes:
            load.calls += 1  # a stopping node waits for the answer of the message
            turn_owner.set(context.peer())
            try:
                return await forward_calls(raw, context, methods)
            except Exception as error:  # noqa: BLE001 - every error gets a status
                await self._abort(FORWARD_CALLS_PATH, context, error)
            finally:
                load.calls -= 1
                load.notify_if_idle()

        guarded = guard(FORWARD_CALLS_PATH, handle, authenticator, self._abort)
        return ServedMethod(CallKind.UNARY, handle, guarded, authenticator)

    def _served(
        self, path: str, methods: ServiceMethods, name: str, authenticator: Authenticator
    ) -> ServedMethod:
        request = GetMessageClass(methods.service.methods_by_name[name].input_type)
        if name in methods.bidirectional:
            both = self._bidirectional(path, methods.bidirectional[name], request, authenticator)
            return ServedMethod(CallKind.BIDIRECTIONAL, both, both, authenticator)
        if name in methods.server_streaming:
            handler = methods.server_streaming[name]
            handle = self._server_streaming(path, handler, request, authenticator)
            guarded = guard(path, handle, authenticator, self._abort)
            return ServedMethod(CallKind.SERVER_STREAMING, handle, guarded, authenticator)
        (method,) = (one for one in methods.unary if one.name == name)
        handle = self.instrument(path, self._unary(path, method, request, authenticator))
        undo = _undo(method, authenticator) if method.can_undo else None
        handle = delivering(handle, self.load.answers, undo)
        guarded = guard(path, handle, authenticator, self._abort)
        prompt: PromptMethod | None = None
        if method.can_begin and self.instrument is _unchanged:
            calls = NodeCalls(self._leadership, self.load, self.counts)
            prompt = PromptMethod(path, method, handle, self._abort, authenticator, calls)
        return ServedMethod(CallKind.WRITTEN_ANSWER, handle, guarded, authenticator, prompt)

    # ------------------------------------------------------------------------------ kinds of calls

    def _unary(
        self,
        path: str,
        method: AnyUnaryMethod,
        request: type[Message],
        authenticator: Authenticator,
    ) -> UnaryHandle:
        counts = self.counts.by_outcome
        ok = (path, "OK")
        is_open = authenticator is OPEN_AUTHENTICATOR
        load = self.load
        is_uncertain = method.changes_state and not method.is_wait
        may_have_key = method.can_undo
        durations = self.counts.durations(path)
        name = path.rpartition("/")[2]
        prompt_bytes = _prompt_bytes(method)

        async def handle(raw: bytes, context: ServerContext) -> bytes:
            began = monotonic()
            running_method.set(name)
            size = len(raw)
            load.calls += 1
            load.held_bytes += size
            live: LiveCall | None = None
            try:
                # Inlined, because the comparison runs for each call.
                if load.calls > load.calls_max or load.held_bytes > load.bytes_max:
                    load.check_call(size)
                caller = ANONYMOUS if is_open else authenticator.authenticate(context)
                if caller.name:
                    name_principal(caller.name)
                key = value_in(context.invocation_metadata(), CALL_KEY) if may_have_key else ""
                if caller.is_restricted or key:
                    live = load.live.add(
                        LiveCall(
                            caller, context.peer(), request, is_stream=False, first=raw, key=key
                        )
                    )
                if size > prompt_bytes:
                    turn_owner.set(caller.name or context.peer())
                    await _take_turn(method, raw)
                answer = await self._execute(path, method, raw, context, caller)
            except BaseException as error:  # noqa: BLE001 - every error gets a status
                # The traceback of the abort refers to this frame. The context keeps the traceback
                # until the garbage collector runs.
                del raw
                ended_by = _end_of(live, error)
                if ended_by is not error and is_uncertain:
                    ended_by = revoked_in_progress()
                await self._abort(path, context, ended_by)
            finally:
                if live is not None:
                    load.live.remove(live)
                durations.add(monotonic() - began)
                load.calls -= 1
                load.held_bytes -= size
                if load.idle is not None:
                    load.notify_if_idle()
            counts[ok] = counts.get(ok, 0) + 1
            context.set_trailing_metadata(((LEADER_KEY, self._leadership.address),))
            return answer

        return handle

    async def _execute(
        self,
        path: str,
        method: AnyUnaryMethod,
        raw: bytes,
        context: ServerContext,
        caller: Caller,
    ) -> bytes:
        """Execute a unary call here or on the leader, and follow changes of leadership."""
        now = asyncio.get_running_loop().time()
        left = context.time_remaining()
        deadline = None if left is None else now + left
        metadata = dict(context.invocation_metadata() or ())
        arrived_at = now - waited_seconds(metadata) if WAITED_KEY in metadata else now
        attempts: CallAttempts | None = None
        try:
            for _ in range(EXECUTION_ATTEMPTS_MAX):
                if self.load.is_draining:
                    _refuse_draining()
                if self._leadership.serves or method.runs_on_any_node(raw):
                    try:
                        return await method.execute(raw, deadline, caller, arrived_at)
                    except (NotProposed, NotRaftLeader):
                        pass  # lost before anything was written; the new leader executes
                self._check_may_forward(method, caller)
                if hop_count(metadata):
                    if await self._forwarder.route.wait_until_serving(deadline):
                        await next_turn()  # all calls that waited would continue in this turn
                        continue
                    break
                attempts = attempts or CallAttempts(
                    method.changes_state,
                    undelivered=(
                        (lambda answer: method.undo(raw, answer, caller))
                        if method.can_undo and not method.is_idempotent(raw)
                        else None
                    ),
                    may_share=method.can_begin and not method.can_undo,
                )
                turn_owner.set(caller.name or context.peer())
                try:
                    return await self._forwarder.forward(
                        path,
                        raw,
                        deadline,
                        is_idempotent=partial(method.is_idempotent, raw),
                        is_wait=method.is_wait,
                        origin=CallOrigin(caller, trace_context(metadata), arrived_at),
                        attempts=attempts,
                    )
                except ThisNodeLeads:
                    pass
            self._refuse_as_follower(caller)
        except Exception as error:
            outcome = error if attempts is None else attempts.outcome(error)
            if outcome is error:
                raise
            raise outcome from error

    def _check_may_forward(self, method: AnyUnaryMethod, caller: Caller) -> None:
        """Refuse a call that the leader would not accept from this node, and name the leader.

        A node that is stopping forwards no call.
        """
        if self.load.is_draining:
            _refuse_draining()
        if not self._forwarder.may_forward(caller, needs_proof=method.is_for_operators):
            self._refuse_as_follower(caller)

    def _refuse_as_follower(self, caller: Caller) -> NoReturn:
        """Refuse a call, and name the leader; a node gets the address of the leader's peer port."""
        leader = self._leadership.leader
        address = self._leadership.address
        if caller.is_node:
            address = "" if leader is None else leader.peer_address
        raise CallRefused(
            error_pb2.Error.NOT_LEADER, "this node is not the leader", {"leader": address}
        )

    def _bidirectional(
        self,
        path: str,
        handler: StreamHandler,
        request: type[Message],
        authenticator: Authenticator,
    ) -> StreamHandle:
        async def handle(_requests: object, context: ServerContext) -> None:
            async def run(call: LiveCall) -> None:
                await context.send_initial_metadata(((LEADER_KEY, self._leadership.address),))
                stream = GrpcMessageStream(context, request, call.first_came)
                await handler(stream, call.caller)

            await self._run_stream(path, context, authenticator, request, None, run)

        return handle

    def _server_streaming(
        self,
        path: str,
        handler: ServerStreamHandler,
        request: type[Message],
        authenticator: Authenticator,
    ) -> UnaryHandle:
        async def handle(raw: bytes, context: ServerContext) -> None:
            async def run(call: LiveCall) -> None:
                if len(raw) > LONG_REQUEST_BYTES:
                    await begin_long_message(raw, request)
                await handler(raw, GrpcMessageStream(context, request), call.caller)

            await self._run_stream(path, context, authenticator, request, raw, run)

        return handle

    async def _run_stream(
        self,
        path: str,
        context: ServerContext,
        authenticator: Authenticator,
        request: type[Message],
        first: bytes | None,
        run: Callable[[LiveCall], Awaitable[object]],
    ) -> None:
        self.load.streams += 1
        live: LiveCall | None = None
        running_method.set(path.rpartition("/")[2])
        try:
            self.load.check_stream()
            context.set_trailing_metadata(((LEADER_KEY, self._leadership.address),))
            caller = authenticator.authenticate(context)
            live = self.load.live.add(
                LiveCall(caller, context.peer(), request, is_stream=True, first=first)
            )
            await run(live)
        except ClientGone as error:
            raise asyncio.CancelledError from error
        except BaseException as error:  # noqa: BLE001 - every error gets a status
            await self._abort(path, context, _end_of(live, error))
        else:
            self.counts.count(path, "OK")
        finally:
            if live is not None:
                self.load.live.remove(live)
            self.load.streams -= 1
            self.load.notify_if_idle()

    # ------------------------------------------------------------------------------ errors

    async def _abort(self, path: str, context: ServerContext, error: Exception) -> NoReturn:
        """End a call with the status of an error, and release the error's traceback."""
        try:
            await self._abort_with_status(path, context, error)
        finally:
            release_frames(error)

    async def _abort_with_status(
        self, path: str, context: ServerContext, error: Exception
    ) -> NoReturn:
        leader = (LEADER_KEY, self._leadership.address)
        if isinstance(error, LeaderAnsweredError):
            self.counts.count(path, error.code.name)
            await context.abort(error.code, error.message, (*error.metadata, leader))
        refused = refused_for(error)
        if refused is None:
            log.error("a call failed because of a bug", method=path, exc_info=error)
            self._bug_found(error)
            refused = CallRefused(
                error_pb2.Error.INTERNAL_ERROR, "the server has a bug; see its log"
            )
        elif isinstance(error, StateDamaged):
            self._damage_met(error)
        if isinstance(error, Unauthenticated):
            log_unauthenticated(context.peer(), path.rpartition("/")[2], str(error))
        self.counts.count(path, reason_name(refused.reason))
        metadata = (leader, *status_metadata(refused))
        await context.abort(CODES[refused.reason], refused.message, metadata)
