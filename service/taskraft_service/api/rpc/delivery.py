"""Send the answer of a call, and undo its effect if the caller has gone.

A take leases tasks to its caller. If the call ends between the take and its answer, because the
caller cancelled the call, because the connection broke or because the deadline passed, nobody would
settle these leases, and each task would wait for its time to run. A cancellation that crosses the
answer on the network is not noticed: gRPC confirms no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc

from taskraft_service.api.rpc.grpc_calls import ClientGone
from taskraft_service.api.rpc.method_table import UnaryHandle
from taskraft_service.api.rpc.server_context import ServerContext


def delivering(
    handle: UnaryHandle,
    keeps: Callable[[bytes], bool],
    undo: Callable[[bytes, bytes, ServerContext], None],
) -> UnaryHandle:
    """Return a handler that itself writes each answer that may have to be undone.

    A written answer costs the native edge one more exchange with its thread. The handler returns
    all other answers, which the native edge sends together with the status.

    Args:
        handle: serves a call and returns its answer.
        keeps: returns whether the answer to a request keeps its effect, sent or not.
        undo: called with the request, the answer and the call if the answer was not sent.
    """

    async def serve(raw: bytes, context: ServerContext) -> bytes | None:
        answer = await handle(raw, context)
        if answer is None or keeps(raw):
            return answer
        if context.time_remaining() == 0:
            undo(raw, answer, context)
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        try:
            await context.write(answer)
        except BaseException as error:
            undo(raw, answer, context)
            if isinstance(error, ClientGone):
                raise asyncio.CancelledError from error
            raise
        return None

    return serve
