"""Unary methods: where a request may be executed, and whether a retry is safe."""

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


def getting(site=ExecutionSite.BY_CONSISTENCY):
    def is_local(request):
        return request.consistency == LOCAL

    return UnaryMethod("GetTasks", pb.GetTasksRequest, site, answer, is_local)


def raw(request):
    return request.SerializeToString()


@pytest.mark.parametrize(
    ("method", "request_id", "is_idempotent"),
    [
        (putting(), "", False),
        (putting(), "r", True),
        (putting(is_read=True), "", True),
    ],
)
def test_a_mutation_is_idempotent_only_with_a_request_id(method, request_id, is_idempotent):
    request = pb.PutTasksRequest(request_id=request_id)
    assert method.is_idempotent(raw(request)) is is_idempotent


def test_a_request_in_an_unusual_encoding_is_left_to_the_parser():
    group = b"\x9b\x06\x9c\x06"  # field 99
    assert putting().is_idempotent(group + raw(pb.PutTasksRequest(request_id="r")))
    assert not putting().is_idempotent(group + raw(pb.PutTasksRequest(tube="t")))


def test_a_mutation_without_a_request_id_field_is_not_idempotent():
    keep = UnaryMethod("KeepSessions", pb.GetTasksRequest, ExecutionSite.LEADER, answer)
    assert not keep.is_idempotent(raw(pb.GetTasksRequest(tube="t")))


@pytest.mark.parametrize("site", [ExecutionSite.BY_CONSISTENCY, ExecutionSite.ANY_NODE])
def test_a_read_is_idempotent(site):
    assert getting(site).is_idempotent(raw(pb.GetTasksRequest()))


@pytest.mark.parametrize(
    ("site", "consistency", "is_local"),
    [
        (ExecutionSite.LEADER, LOCAL, False),
        (ExecutionSite.BY_CONSISTENCY, None, False),
        (ExecutionSite.BY_CONSISTENCY, LOCAL, True),
        (ExecutionSite.ANY_NODE, None, True),
    ],
)
def test_the_site_and_the_consistency_decide_whether_any_node_executes(site, consistency, is_local):
    request = pb.GetTasksRequest(consistency=consistency)
    assert getting(site).runs_on_any_node(raw(request)) is is_local


async def test_a_malformed_request_is_refused_with_the_text_of_the_service():
    for ask in (putting().is_idempotent, getting().runs_on_any_node):
        with pytest.raises(CallRefused) as caught:
            ask(b"\xff")
        assert caught.value.reason == error_pb2.Error.INVALID_FIELD
    with pytest.raises(CallRefused) as caught:
        await putting().execute(b"\xff", None, ANONYMOUS, 0.0)
    assert caught.value.metadata == {"message": "taskraft.v1.PutTasksRequest"}


async def test_a_handler_returns_a_message_or_its_bytes():
    request = pb.PutTasksRequest(tube="t")

    async def encoded(call):
        return raw(call.request)

    method = UnaryMethod("PutTasks", pb.PutTasksRequest, ExecutionSite.LEADER, encoded)
    assert await method.execute(raw(request), None, ANONYMOUS, 0.0) == raw(request)
    assert await putting().execute(raw(request), None, ANONYMOUS, 0.0) == raw(request)
