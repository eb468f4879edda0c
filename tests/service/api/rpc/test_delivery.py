"""The effect of an answer is undone if the answer cannot be sent."""

import asyncio

import grpc
import grpc.aio
import pytest

from taskraft_service.api.rpc.delivery import AnswerUndo, delivering
from taskraft_service.api.rpc.grpc_calls import ClientGone
from taskraft_service.api.rpc.server_context import CallEnded
from tests.service.api.rpc.call_loads import call_load


class Call:
    """A call whose ``write`` ends with an error, or succeeds."""

    def __init__(self, error=None, left=None):
        self.error = error
        self.left = left
        self.written = []
        self.code = grpc.StatusCode.OK

    def time_remaining(self):
        return self.left

    async def write(self, raw):
        if self.error is not None:
            raise self.error
        self.written.append(raw)

    async def abort(self, code, details="", _metadata=()):
        self.code = code
        raise CallEnded(details)


async def outcome(call, *, keeps=False):
    undone = []

    async def handle(raw, _context):
        return raw + b"!"

    undo = AnswerUndo(lambda _raw: keeps, lambda *undo: undone.append(undo))
    serve = delivering(handle, call_load().answers, undo)
    try:
        error = await serve(b"take", call)
    except BaseException as raised:  # noqa: BLE001 - the test looks at any error
        error = raised
    return error, undone


@pytest.mark.parametrize("left", [None, 0.001])
async def test_a_sent_answer_keeps_its_effect(left):
    call = Call(left=left)
    assert await outcome(call) == (None, [])
    assert call.written == [b"take!"]


@pytest.mark.parametrize("error", [ClientGone("gone"), asyncio.CancelledError()])
async def test_an_answer_to_a_client_that_has_gone_is_undone(error):
    call = Call(error)
    ended_by, undone = await outcome(call)
    assert isinstance(ended_by, asyncio.CancelledError)
    assert undone == [(b"take", b"take!", call)]


async def test_an_answer_after_the_deadline_is_undone():
    call = Call(left=0.0)
    ended_by, undone = await outcome(call)
    assert isinstance(ended_by, CallEnded)
    assert undone == [(b"take", b"take!", call)]
    assert (call.code, call.written) == (grpc.StatusCode.DEADLINE_EXCEEDED, [])


async def test_an_answer_that_keeps_its_effect_is_returned_to_the_server():
    call = Call(left=0.0)
    assert await outcome(call, keeps=True) == (b"take!", [])
    assert (call.code, call.written) == (grpc.StatusCode.OK, [])
