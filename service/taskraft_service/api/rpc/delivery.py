"""Send the answer of a call, count its bytes, and undo its effect if the caller has gone.

A take leases tasks to its caller. If the call ends between the take and its answer, because the
caller cancelled the call, because the connection broke or because the deadline passed, nobody would
settle these leases, and each task would wait for its time to run. A cancellation that crosses the
answer on the network is not noticed: gRPC confirms no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from taskraft_service.api.rpc.answer_bytes import (
    COUNTED_ANSWER_BYTES,
    AnswerRoom,
    answer_of_call,
    count_answer,
)
from taskraft_service.api.rpc.forwarding_metadata import ANSWER_BYTES_KEY, hop_count
from taskraft_service.api.rpc.grpc_calls import ClientGone
from taskraft_service.api.rpc.method_table import UnaryHandle
from taskraft_service.api.rpc.server_context import ServerContext


@dataclass(slots=True, frozen=True)
class AnswerUndo:
    """Undoes the answers of a method that could not be sent.

    Args:
        keeps: returns whether the answer to a request keeps its effect, sent or not.
        undo: called with the request, the answer and the call if the answer was not sent.
    """

    keeps: Callable[[bytes], bool]
    undo: Callable[[bytes, bytes, ServerContext], None]


def delivering(
    handle: UnaryHandle, room: AnswerRoom, undo: AnswerUndo | None = None
) -> UnaryHandle:
    """Return a handler that itself writes large answers, and answers that may have to be undone.

    The bytes of a large answer count until the transport has taken the answer. A written answer
    costs the native edge one more exchange with its thread. The handler returns all other answers,
    which the native edge sends together with the status.

    Args:
        handle: serves a call and returns its answer.
        room: counts the bytes of answers.
        undo: undoes answers that were not sent; None: no answer has to be undone.
    """

    async def serve(raw: bytes, context: ServerContext) -> bytes | None:
        answer_of_call.set(room)
        try:
            answer = await handle(raw, context)
        except BaseException:
            count_answer(0)
            del raw  # the context keeps the traceback of an error, which refers to this frame
            raise
        try:
            if answer is None:
                return None
            is_counted = len(answer) > COUNTED_ANSWER_BYTES
            may_undo = undo is not None and not undo.keeps(raw)
            if not (is_counted or may_undo):
                return answer
            if is_counted:
                count_answer(len(answer))
                await _announce(len(answer), context)
            if undo is not None and may_undo:
                await _write_or_undo(undo, raw, answer, context)
                return None
            writing = context.write(answer)
            del answer  # the server has the only reference, and can release it
            try:
                await writing
            except ClientGone as error:
                raise asyncio.CancelledError from error
            return None
        finally:
            if answer_of_call.get() is not room:
                count_answer(0)

    return serve


async def _announce(size: int, context: ServerContext) -> None:
    """Tell the node that forwarded a call the size of the answer, so that the node makes room."""
    if hop_count(dict(context.invocation_metadata() or ())):
        await context.send_initial_metadata(((ANSWER_BYTES_KEY, str(size)),))


async def _write_or_undo(
    undo: AnswerUndo, raw: bytes, answer: bytes, context: ServerContext
) -> None:
    """Write an answer; undo its effect if the call has ended."""
    if context.time_remaining() == 0:
        undo.undo(raw, answer, context)
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    try:
        await context.write(answer)
    except BaseException as error:
        undo.undo(raw, answer, context)
        if isinstance(error, ClientGone):
            raise asyncio.CancelledError from error
        raise
