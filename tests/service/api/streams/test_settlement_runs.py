"""Acknowledgements that arrive together on a stream: one command, an answer for each message."""

import asyncio

import pytest

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.leader.command_submitter import AppliedCommand, LeaderOverloaded
from taskraft_service.limits import PUT_TASKS_MAX
from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.operations.acknowledge import stale
from taskraft_service.queue.operations.settlements import SettleResult
from tests.service.api.streams.linked_stream import Linked
from tests.turns import turns_until


def acks(name, *tokens, **fields):
    settlements = [pb.Settlement(tokens=[token], ack=pb.Settlement.Ack()) for token in tokens]
    return pb.SubscribeRequest(settlements=settlements, request_id=name, **fields)


async def submitted_together(*messages):
    """Return a stream whose messages arrived in one read, and its running task."""
    one = Linked(*messages)
    one.stream.arrives_together = True
    running = one.run()
    await turns_until(lambda: one.stream.sent.empty() and one.submitter.proposed)
    return one, running


def tokens_of(command):
    return [list(settlement.tokens) for settlement in command.settlements]


async def test_acknowledgements_that_arrive_together_are_one_command_with_own_answers():
    one, running = await submitted_together(acks("a", 1, 2), acks("b", 3), acks("c", 4, 5))
    ((command, future),) = one.submitter.proposed
    assert tokens_of(command) == [[1, 2, 3, 4, 5]]
    refused = [ItemRefusal(item, stale(item + 1)) for item in (1, 3, 4)]
    future.set_result(AppliedCommand(1, 1, 0, SettleResult(refused)))
    one.stream.send(None)
    await running
    assert [
        (settled.request_id, [error.item for error in settled.errors])
        for settled in one.stream.settled
    ] == [("a", [1]), ("b", []), ("c", [0, 1])]


async def test_only_plain_acknowledgements_without_a_key_share_a_command():
    kept = pb.Settlement(tokens=[2], ack={"keep": "DONE"})
    touched = pb.Settlement(tokens=[4], touch={"restart": True})
    one, running = await submitted_together(
        acks("a", 1),
        pb.SubscribeRequest(settlements=[kept], request_id="b"),
        acks("c", 3),
        pb.SubscribeRequest(settlements=[touched], request_id="d"),
        acks("e", 5, idempotency_key="k"),
        acks("f", 6),
        acks("g", 7),
    )
    commands = [command for command, _ in one.submitter.proposed]
    assert [tokens_of(command) for command in commands] == [[[n]] for n in range(1, 6)] + [[[6, 7]]]
    assert [bool(command.request_id) for command in commands] == [False] * 4 + [True, False]
    for _, future in reversed(one.submitter.proposed):
        future.set_result(AppliedCommand(1, 1, 0, SettleResult()))
    one.stream.send(None)
    await running
    assert [settled.request_id for settled in one.stream.settled] == list("abcdefg")


async def test_a_run_of_acknowledgements_respects_the_maximum_of_a_command():
    most = list(range(1, PUT_TASKS_MAX))
    one, running = await submitted_together(acks("a", *most), acks("b", 2_000), acks("c", 2_001))
    (first, _), (second, _) = one.submitter.proposed
    assert tokens_of(first) == [[*most, 2_000]]
    assert tokens_of(second) == [[2_001]]
    running.cancel()
    await asyncio.wait((running,))


async def test_an_invalid_message_between_acknowledgements_gets_its_own_error():
    one, running = await submitted_together(acks("a", 1), acks("b", -1), acks("c", 2))
    for _, future in one.submitter.proposed:
        future.set_result(AppliedCommand(1, 1, 0, SettleResult()))
    one.stream.send(None)
    await running
    reasons = [(settled.request_id, settled.error.reason) for settled in one.stream.settled]
    assert reasons == [("a", 0), ("b", error_pb2.Error.INVALID_FIELD), ("c", 0)]


async def test_acknowledgements_before_a_message_that_ends_the_stream_are_submitted():
    one = Linked(acks("a", 1), pb.SubscribeRequest(credit={"tasks": -1}))
    one.stream.arrives_together = True
    with pytest.raises(CallRefused):
        await one.run()
    ((command, _),) = one.submitter.proposed
    assert tokens_of(command) == [[1]]


async def test_a_refused_run_is_reported_for_each_message():
    one = Linked(acks("a", 1), acks("b", 2), None)
    one.stream.arrives_together = True
    one.submitter.refusal = LeaderOverloaded("x")
    await one.run()
    reasons = [(settled.request_id, settled.error.reason) for settled in one.stream.settled]
    assert reasons == [(name, error_pb2.Error.OVERLOADED) for name in "ab"]
