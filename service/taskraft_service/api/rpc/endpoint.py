"""Serve the methods of the contract: one path for draining, forwarding, counting and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio
import structlog

from taskraft.v1 import error_pb2
from taskraft_replication.errors import NotRaftLeader
from taskraft_service.access.authenticator import OPEN_AUTHENTICATOR, Authenticator
from taskraft_service.access.caller import Caller
from taskraft_service.api.rpc.context import ServicerContext, check_size, deadline_of
from taskraft_service.api.rpc.forwarding import Forwarder, ThisNodeLeads
from taskraft_service.api.rpc.forwarding_metadata import hop_count, trace_context, waited_seconds
from taskraft_service.api.rpc.methods import (
    AnyUnaryMethod,
    ServerStreamHandler,
    ServiceMethods,
    StreamHandler,
)
from taskraft_service.api.rpc.refusals import refused_for
from taskraft_service.api.rpc.status import (
    CODES,
    RETRY_DELAY_MS,
    RETRYABLE_REASONS,
    STATUS_KEY,
    CallRefused,
    reason_name,
    rpc_status,
)
from taskraft_service.leader.proposal import NotProposed

log: Final = structlog.get_logger(__name__)

LEADER_KEY: Final = "x-taskraft-leader"
PUSHBACK_KEY: Final = "grpc-retry-pushback-ms"
EXECUTION_ATTEMPTS_MAX: Final = 8
"""How often a call follows a leadership that moves before it gives up."""


@dataclass(slots=True)
class CallCounts:
    """Calls since the process started, by method and outcome; read by the metrics."""

    by_outcome: dict[tuple[str, str], int]

    def count(self, method: str, outcome: str) -> None:
        """Count one call; ``outcome`` is "OK" or a reason."""
        key = (method, outcome)
        self.by_outcome[key] = self.by_outcome.get(key, 0) + 1


class GrpcEndpoint:
    """Puts servicers on a gRPC server.

    Args:
        forwarder: passes calls on.
        defect_met: hears of each exception that is no answer to a caller.
    """

    def __init__(
        self, forwarder: Forwarder, defect_met: Callable[[Exception], None] = lambda _: None
    ) -> None:
        self._defect_met = defect_met
        self._leadership = forwarder.leadership
        self._forwarder = forwarder
        self._in_hand = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False
        self.counts = CallCounts({})

    def handler(
        self, servicer: ServiceMethods, gate: Authenticator = OPEN_AUTHENTICATOR
    ) -> grpc.GenericRpcHandler:
        """Return the handlers of all methods of a service, behind a gate."""
        unary = {rpc.name: rpc for rpc in servicer.unary}
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {}
        for method in servicer.service.methods:
            path = f"/{servicer.service.full_name}/{method.name}"
            if method.name in servicer.streams:
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(
                    self._streaming(path, servicer.streams[method.name], gate)
                )
            elif method.name in servicer.readings:
                handlers[method.name] = grpc.unary_stream_rpc_method_handler(
                    self._reading(path, servicer.readings[method.name], gate)
                )
            else:
                handlers[method.name] = grpc.unary_unary_rpc_method_handler(
                    self._unary(path, unary[method.name], gate)
                )
        return grpc.method_handlers_generic_handler(servicer.service.full_name, handlers)

    # ------------------------------------------------------------------------------ calls in hand

    def _take_up(self) -> None:
        self._in_hand += 1
        self._idle.clear()

    def _put_down(self) -> None:
        self._in_hand -= 1
        if not self._in_hand:
            self._idle.set()

    async def drained(self, patience: float) -> bool:
        """Wait until no call is in hand, for at most ``patience`` seconds; tell whether that is so.

        Calls of other services (a watch of the health, say) never end and do not count.
        """
        try:
            async with asyncio.timeout(patience):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    # ------------------------------------------------------------------------------ kinds of calls

    def _unary(
        self, path: str, rpc: AnyUnaryMethod, gate: Authenticator
    ) -> Callable[[bytes, ServicerContext], Awaitable[bytes]]:
        async def handle(raw: bytes, context: ServicerContext) -> bytes:
            self._take_up()
            try:
                caller = gate.admit(context)
                answer = await self._answer(path, rpc, raw, context, caller)
            except Exception as error:
                await self._abort(path, context, error)
                raise
            finally:
                self._put_down()
            self.counts.count(path, "OK")
            context.set_trailing_metadata(((LEADER_KEY, self._leadership.address),))
            return answer

        return handle

    async def _answer(
        self, path: str, rpc: AnyUnaryMethod, raw: bytes, context: ServicerContext, caller: Caller
    ) -> bytes:
        """Answer here or let the leader answer, following it while leadership moves."""
        check_size(raw)
        deadline = deadline_of(context)
        metadata = dict(context.invocation_metadata() or ())
        begun = asyncio.get_running_loop().time() - waited_seconds(metadata)
        for _ in range(EXECUTION_ATTEMPTS_MAX):
            if self.draining:
                raise CallRefused(error_pb2.Error.DRAINING, "this node is stopping")
            if self._leadership.serves or rpc.is_local(raw):
                try:
                    return await rpc.serve(raw, deadline, caller, begun)
                except (NotProposed, NotRaftLeader):
                    # Leadership moved before anything was written: the new leader answers.
                    pass
            if hop_count(metadata):
                if await self._forwarder.serves_soon(deadline):
                    continue
                break
            try:
                repeatable = rpc.is_repeatable(raw)
                return await self._forwarder.unary(
                    path,
                    raw,
                    deadline,
                    repeatable=repeatable,
                    principal=caller.name,
                    trace=trace_context(metadata),
                    begun=begun,
                )
            except ThisNodeLeads:
                pass
        address = self._leadership.address
        raise CallRefused(
            error_pb2.Error.NOT_LEADER, "this node does not lead", {"leader": address}
        )

    def _streaming(
        self, path: str, method: StreamHandler, gate: Authenticator
    ) -> Callable[[object, ServicerContext], Awaitable[None]]:
        async def handle(_requests: object, context: ServicerContext) -> None:
            await self._run(path, context, lambda: method(context, gate.admit(context)))

        return handle

    def _reading(
        self, path: str, method: ServerStreamHandler, gate: Authenticator
    ) -> Callable[[bytes, ServicerContext], Awaitable[None]]:
        async def handle(raw: bytes, context: ServicerContext) -> None:
            await self._run(path, context, lambda: method(raw, context, gate.admit(context)))

        return handle

    async def _run(
        self, path: str, context: ServicerContext, work: Callable[[], Awaitable[None]]
    ) -> None:
        self._take_up()
        try:
            context.set_trailing_metadata(((LEADER_KEY, self._leadership.address),))
            await work()
        except Exception as error:  # noqa: BLE001 - every error gets a status
            await self._abort(path, context, error)
        else:
            self.counts.count(path, "OK")
        finally:
            self._put_down()

    # ------------------------------------------------------------------------------ errors

    async def _abort(self, path: str, context: ServicerContext, error: Exception) -> None:
        """End a call with the status of an error; does not return."""
        leader = (LEADER_KEY, self._leadership.address)
        if isinstance(error, grpc.aio.AioRpcError):
            # The leader's own answer to a call that was passed on.
            packed = [(key, text) for key, text in error.trailing_metadata() or ()]
            kept = [item for item in packed if item[0] in (STATUS_KEY, PUSHBACK_KEY)]
            self.counts.count(path, error.code().name)
            await context.abort(error.code(), error.details() or "", (*kept, leader))
        if isinstance(error, grpc.aio.AbortError):
            raise error
        refused = refused_for(error)
        if refused is None:
            log.error("a call failed by a defect", method=path, exc_info=error)
            self._defect_met(error)
            refused = CallRefused(error_pb2.Error.INTERNAL_ERROR, "a defect of the server")
        self.counts.count(path, reason_name(refused.reason))
        metadata: list[tuple[str, str | bytes]] = [
            leader,
            (STATUS_KEY, rpc_status(refused).SerializeToString()),
        ]
        if refused.reason in RETRYABLE_REASONS:
            metadata.append((PUSHBACK_KEY, str(refused.retry_ms or RETRY_DELAY_MS)))
        await context.abort(CODES[refused.reason], refused.message, tuple(metadata))
