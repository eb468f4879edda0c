"""What a method says of a request before it is served: who may answer it, and whether twice."""

import pytest

from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.rpc.methods import ExecutionSite, UnaryMethod
from taskraft_service.api.rpc.status import CallRefused

LOCAL = task_pb2.Consistency(level=task_pb2.Consistency.LOCAL)


async def answer(call):
    return call.request


def putting(**fields):
    return UnaryMethod("PutTasks", pb.PutTasksRequest, ExecutionSite.LEADER, answer, **fields)


def getting(route=ExecutionSite.BY_CONSISTENCY):
    def is_local(request):
        return request.consistency == LOCAL

    return UnaryMethod("GetTasks", pb.GetTasksRequest, route, answer, is_local)


def raw(request):
    return request.SerializeToString()


@pytest.mark.parametrize(
    ("method", "request_id", "is_repeatable"),
    [
        (putting(), "", False),
        (putting(), "r", True),
        (putting(is_read=True), "", True),
    ],
)
def test_a_change_is_tried_twice_only_where_it_is_known_again(method, request_id, is_repeatable):
    request = pb.PutTasksRequest(request_id=request_id)
    assert method.is_repeatable(raw(request)) is is_repeatable


@pytest.mark.parametrize("route", [ExecutionSite.BY_CONSISTENCY, ExecutionSite.ANY_NODE])
def test_a_read_is_tried_twice(route):
    assert getting(route).is_repeatable(raw(pb.GetTasksRequest()))


@pytest.mark.parametrize(
    ("route", "consistency", "is_local"),
    [
        (ExecutionSite.LEADER, LOCAL, False),
        (ExecutionSite.BY_CONSISTENCY, None, False),
        (ExecutionSite.BY_CONSISTENCY, LOCAL, True),
        (ExecutionSite.ANY_NODE, None, True),
    ],
)
def test_any_node_answers_what_may_be_old_or_is_about_itself(route, consistency, is_local):
    request = pb.GetTasksRequest(consistency=consistency)
    assert getting(route).is_local(raw(request)) is is_local


async def test_what_is_no_request_is_refused_with_our_own_words():
    for ask in (putting().is_repeatable, getting().is_local):
        with pytest.raises(CallRefused) as caught:
            ask(b"\xff")
        assert caught.value.reason == error_pb2.Error.INVALID_FIELD
    with pytest.raises(CallRefused) as caught:
        await putting().serve(b"\xff", None, ANONYMOUS, 0.0)
    assert caught.value.metadata == {"message": "taskraft.v1.PutTasksRequest"}


async def test_an_answer_may_be_a_message_or_its_bytes():
    request = pb.PutTasksRequest(tube="t")

    async def encoded(call):
        return raw(call.request)

    method = UnaryMethod("PutTasks", pb.PutTasksRequest, ExecutionSite.LEADER, encoded)
    assert await method.serve(raw(request), None, ANONYMOUS, 0.0) == raw(request)
    assert await putting().serve(raw(request), None, ANONYMOUS, 0.0) == raw(request)
