"""Serve the methods of the contract on grpc.aio.

Every call takes the same steps: authentication, size limit, drain check, execution here or
forwarding to the leader, mapping of errors to statuses, and call counts. Only this module,
``grpc_calls``, ``forwarding``, ``leader_channels`` and ``api.server`` know grpc.aio, so another
gRPC server can take their place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NoReturn, cast

import grpc
import grpc.aio
import structlog

from taskraft.v1 import error_pb2
from taskraft_replication.errors import NotRaftLeader
from taskraft_service.access.audit import log_unauthenticated
from taskraft_service.access.authenticator import OPEN_AUTHENTICATOR, Authenticator
from taskraft_service.access.caller import ANONYMOUS, Caller, Unauthenticated
from taskraft_service.api.rpc.call_load import CallCounts, CallLoad
from taskraft_service.api.rpc.calls_at_leader import CallAttempts, ThisNodeLeads
from taskraft_service.api.rpc.forwarding import Forwarder
from taskraft_service.api.rpc.forwarding_metadata import (
    WAITED_KEY,
    CallOrigin,
    hop_count,
    trace_context,
    waited_seconds,
)
from taskraft_service.api.rpc.grpc_calls import (
    GrpcMessageStream,
    GuardedHandlers,
    Handler,
    LeaderAnsweredError,
    ServicerContext,
    UnaryHandle,
    guard,
    release_frames,
)
from taskraft_service.api.rpc.methods import (
    AnyUnaryMethod,
    ServerStreamHandler,
    ServiceMethods,
    StreamHandler,
)
from taskraft_service.api.rpc.status import (
    CODES,
    CallRefused,
    message_too_large,
    reason_name,
    refused_for,
    status_metadata,
)
from taskraft_service.leader.command_submitter import NotProposed
from taskraft_service.limits import MESSAGE_BYTES_MAX

log: Final = structlog.get_logger(__name__)

LEADER_KEY: Final = "x-taskraft-leader"
EXECUTION_ATTEMPTS_MAX: Final = 8
"""Maximum number of nodes and leaderships that one call tries before it is refused."""


class GrpcEndpoint:
    """Builds the gRPC handlers of a service, and counts the calls in progress.

    Args:
        forwarder: forwards calls to the leader.
        load: counts and bounds the calls in progress.
        bug_found: called with each unexpected exception, which is a bug of the server.
    """

    def __init__(
        self,
        forwarder: Forwarder,
        load: CallLoad,
        bug_found: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._bug_found = bug_found
        self.load = load
        self._leadership = forwarder.leadership
        self._forwarder = forwarder
        self.draining = False
        self.counts = CallCounts({})

    def generic_handler(
        self, methods: ServiceMethods, authenticator: Authenticator = OPEN_AUTHENTICATOR
    ) -> grpc.GenericRpcHandler:
        """Return the handlers of all methods of a service; every caller is authenticated first."""
        unary = {method.name: method for method in methods.unary}
        handlers: dict[str, Handler] = {}
        guarded: dict[str, Handler] = {}
        for method in methods.service.methods:
            name = method.name
            path = f"/{methods.service.full_name}/{name}"
            if name in methods.bidirectional:
                handlers[path] = guarded[path] = grpc.stream_stream_rpc_method_handler(
                    self._bidirectional(path, methods.bidirectional[name], authenticator)
                )
                continue
            handle: UnaryHandle
            if name in methods.server_streaming:
                handle = self._server_streaming(path, methods.server_streaming[name], authenticator)
                handlers[path] = grpc.unary_stream_rpc_method_handler(handle)
            else:
                handle = self._unary(path, unary[name], authenticator)
                handlers[path] = grpc.unary_unary_rpc_method_handler(handle)
            guarded[path] = guard(path, handle, authenticator, self._abort)
        return GuardedHandlers(handlers, guarded, authenticator)

    # ------------------------------------------------------------------------------ kinds of calls

    def _unary(
        self, path: str, method: AnyUnaryMethod, authenticator: Authenticator
    ) -> Callable[[bytes, ServicerContext], Awaitable[bytes]]:
        counts = self.counts.by_outcome
        ok = (path, "OK")
        is_open = authenticator is OPEN_AUTHENTICATOR
        load = self.load

        async def handle(raw: bytes, context: ServicerContext) -> bytes:
            size = len(raw)
            load.calls += 1
            load.held_bytes += size
            try:
                # Inlined, because the comparison runs for each call.
                if load.calls > load.calls_max or load.held_bytes > load.bytes_max:
                    load.check_call(size)
                caller = ANONYMOUS if is_open else authenticator.authenticate(context)
                answer = await self._execute(path, method, raw, context, caller)
            except Exception as error:  # noqa: BLE001 - every error gets a status
                # The traceback of the abort refers to this frame. The context keeps the traceback
                # until the garbage collector runs.
                del raw
                await self._abort(path, context, error)
            finally:
                load.calls -= 1
                load.held_bytes -= size
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
        context: ServicerContext,
        caller: Caller,
    ) -> bytes:
        """Execute a unary call here or on the leader, and follow changes of leadership."""
        if len(raw) > MESSAGE_BYTES_MAX:
            raise message_too_large(raw)
        now = asyncio.get_running_loop().time()
        # The type stubs declare float, but a call without a deadline has None.
        left = cast("float | None", context.time_remaining())
        deadline = None if left is None else now + left
        metadata = dict(context.invocation_metadata() or ())
        arrived_at = now - waited_seconds(metadata) if WAITED_KEY in metadata else now
        attempts: CallAttempts | None = None
        try:
            for _ in range(EXECUTION_ATTEMPTS_MAX):
                self._check_not_draining()
                if self._leadership.serves or method.runs_on_any_node(raw):
                    try:
                        return await method.execute(raw, deadline, caller, arrived_at)
                    except (NotProposed, NotRaftLeader):
                        # Leadership was lost before anything was written; the new leader executes.
                        self._check_not_draining()
                if hop_count(metadata):
                    if await self._forwarder.route.wait_until_serving(deadline):
                        continue
                    break
                attempts = attempts or CallAttempts(method.changes_state)
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
            self._refuse_as_follower()
        except Exception as error:
            outcome = error if attempts is None else attempts.outcome(error)
            if outcome is error:
                raise
            raise outcome from error

    def _refuse_as_follower(self) -> NoReturn:
        address = self._leadership.address
        raise CallRefused(
            error_pb2.Error.NOT_LEADER, "this node is not the leader", {"leader": address}
        )

    def _check_not_draining(self) -> None:
        if self.draining:
            raise CallRefused(error_pb2.Error.DRAINING, "this node is stopping")

    def _bidirectional(
        self, path: str, handler: StreamHandler, authenticator: Authenticator
    ) -> Callable[[object, ServicerContext], Awaitable[None]]:
        async def handle(_requests: object, context: ServicerContext) -> None:
            async def run() -> None:
                caller = authenticator.authenticate(context)
                await context.send_initial_metadata(((LEADER_KEY, self._leadership.address),))
                await handler(GrpcMessageStream(context), caller)

            await self._run_stream(path, context, run)

        return handle

    def _server_streaming(
        self, path: str, handler: ServerStreamHandler, authenticator: Authenticator
    ) -> Callable[[bytes, ServicerContext], Awaitable[None]]:
        async def handle(raw: bytes, context: ServicerContext) -> None:
            async def run() -> None:
                caller = authenticator.authenticate(context)
                await handler(raw, GrpcMessageStream(context), caller)

            await self._run_stream(path, context, run)

        return handle

    async def _run_stream(
        self, path: str, context: ServicerContext, run: Callable[[], Awaitable[object]]
    ) -> None:
        self.load.streams += 1
        try:
            self.load.check_stream()
            context.set_trailing_metadata(((LEADER_KEY, self._leadership.address),))
            await run()
        except Exception as error:  # noqa: BLE001 - every error gets a status
            await self._abort(path, context, error)
        else:
            self.counts.count(path, "OK")
        finally:
            self.load.streams -= 1
            self.load.notify_if_idle()

    # ------------------------------------------------------------------------------ errors

    async def _abort(self, path: str, context: ServicerContext, error: Exception) -> NoReturn:
        """End a call with the status of an error, and release the error's traceback."""
        try:
            await self._abort_with_status(path, context, error)
        finally:
            release_frames(error)

    async def _abort_with_status(
        self, path: str, context: ServicerContext, error: Exception
    ) -> NoReturn:
        leader = (LEADER_KEY, self._leadership.address)
        if isinstance(error, grpc.aio.AbortError):
            raise error
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
        if isinstance(error, Unauthenticated):
            log_unauthenticated(context.peer(), path.rpartition("/")[2], str(error))
        self.counts.count(path, reason_name(refused.reason))
        metadata = (leader, *status_metadata(refused))
        await context.abort(CODES[refused.reason], refused.message, metadata)
