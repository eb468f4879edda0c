"""The caller of the drill ``hostile-requests`` sends the request of each method of the contract."""

import random
from types import SimpleNamespace

import grpc
import grpc.aio

from bench.worst.calls import methods_of_the_contract
from tests.drill import request_sender
from tests.drill.request_sender import RequestSender


def sender():
    return RequestSender(SimpleNamespace(channel=None), random.Random(1))


async def test_each_round_has_the_request_of_each_method_once(monkeypatch):
    async def call(_channel, _method, _request):
        pass

    async def request(_stage):
        return None

    methods = [method.name for method in methods_of_the_contract()]
    monkeypatch.setattr(request_sender, "call", call)
    monkeypatch.setattr(request_sender, "WORST", dict.fromkeys(methods, request))
    one = sender()
    for _ in range(2 * len(methods)):
        await one.send(one.next_method())
    assert one.answered == dict.fromkeys(methods, 2)
    assert (one.refused, one.unanswered) == (0, 0)


async def test_a_call_that_no_node_answers_counts_apart(monkeypatch):
    codes = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED]

    async def request(_stage):
        raise grpc.aio.AioRpcError(codes.pop(0), grpc.aio.Metadata(), grpc.aio.Metadata())

    methods = [method.name for method in methods_of_the_contract()]
    monkeypatch.setattr(request_sender, "WORST", dict.fromkeys(methods, request))
    one = sender()
    for _ in range(2):
        await one.send(one.next_method())
    assert (one.answered.total(), one.refused, one.unanswered) == (0, 1, 1)
