"""A list that is too long is refused before anything walks the list.

The tests are generated from the contract, so a new repeated field or map needs a maximum. They
count calls of functions, so that the speed of the machine does not matter.
"""

import asyncio

import grpc.aio
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from bench.worst.calls import call, methods_of_the_contract
from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.list_maxima import (
    LIST_MAXIMA,
    SHORT_REQUEST_BYTES,
    fields_with_lists,
)
from taskraft_service.api.rpc.message_fields import LONG_REQUEST_BYTES
from taskraft_service.api.rpc.methods import ExecutionSite, UnaryMethod, parse_request
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.clock.cluster_clock import NodeClocks
from taskraft_service.memory_node.memory_node import MemoryNode
from taskraft_service.stubs.forwarding.v1 import forwarding_pb2
from tests.bench.test_worst_requests import CALLS_PER_RUN_MAX, LongestRun
from tests.service.api.field_rules import is_map, spelled
from tests.service.counted_calls import counted_calls

REFUSAL_CALLS_MAX = 400
"""Maximum number of calls of functions in the refusal of a request with one list."""
TOTAL_CALLS_MAX = 8_000
"""Maximum number of calls in the refusal of a request with many lists."""
METHODS = methods_of_the_contract()
FORWARDED = forwarding_pb2.DESCRIPTOR.services_by_name["ForwardingService"].methods


def paths_to_lists(kind):
    """Yield the path to each list of a type of messages: the fields on the way, and the list."""
    for field in kind.fields:
        if field.is_repeated:
            yield (field,)
        if field.message_type is not None and not is_map(field):
            for rest in paths_to_lists(field.message_type):
                yield (field, *rest)


CASES = [
    pytest.param(method, path, id=f"{method.name} {spelled(path)}")
    for method in (*METHODS, *FORWARDED)
    for path in paths_to_lists(method.input_type)
]
CALLED = [case for case in CASES if case.values[0] in METHODS]
KEYS = {FieldDescriptor.TYPE_STRING: str, FieldDescriptor.TYPE_INT32: int}


def fill(message, field, count):
    """Give a list that many elements; texts are empty, numbers are 1."""
    elements = getattr(message, field.name)
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        content = value.default_value
        elements.update({KEYS[key.type](number): content for number in range(count)})
    elif field.message_type is not None:
        elements.MergeFrom([GetMessageClass(field.message_type)()] * count)
    else:
        is_text = field.type == FieldDescriptor.TYPE_STRING
        elements.extend(["" if is_text else 1] * count)


def request_with(method, path, count, parents=1):
    """Return a request with that many elements in the list at a path.

    ``parents``: the number of messages in the list that holds the list, if there is one.
    """
    request = GetMessageClass(method.input_type)()
    at, leaf = request, path[-1]
    nested = [place for place, field in enumerate(path[:-1]) if field.is_repeated]
    for place, field in enumerate(path[:-1]):
        inner = getattr(at, field.name)
        if not field.is_repeated:
            inner.SetInParent()
            at = inner
            continue
        at = inner.add()
        if nested[-1] == place:
            for rest in path[place + 1 : -1]:
                getattr(at, rest.name).SetInParent()
                at = getattr(at, rest.name)
            fill(at, leaf, count)
            inner.MergeFrom([inner[0]] * (parents - 1))
            return request
    fill(at, leaf, count)
    return request


def refused(method, request):
    """Return the refusal of a request by the parser, and the number of its calls."""
    kind, raw = type(request), request.SerializeToString()
    fields_with_lists(method.input_type)
    with pytest.raises(CallRefused) as refusal, counted_calls() as counted:
        parse_request(kind, raw)
    assert refusal.value.reason == error_pb2.Error.INVALID_FIELD
    return refusal.value, counted.calls


def test_each_list_of_a_request_has_a_maximum_and_each_maximum_a_list():
    lists = {case.values[1][-1].full_name for case in CASES}
    assert lists == set(LIST_MAXIMA)


@pytest.mark.parametrize(("method", "path"), CASES)
def test_a_list_that_is_too_long_is_refused_with_its_length_in_few_calls(method, path):
    most = LIST_MAXIMA[path[-1].full_name].each
    lengths = (most + 1, SHORT_REQUEST_BYTES + most, LONG_REQUEST_BYTES // 2)
    for length in lengths:
        request = request_with(method, path, length)
        if request.ByteSize() <= SHORT_REQUEST_BYTES:
            continue  # the handler refuses the request, see below
        refusal, calls = refused(method, request)
        assert refusal.metadata["field"] == f"{spelled(path[:-1])}.{path[-1].name}".lstrip(".")
        assert refusal.metadata["value"] == str(length)
        assert refusal.metadata["limit"] == f"..{most}"
        assert calls <= REFUSAL_CALLS_MAX


@pytest.mark.parametrize(("method", "path"), CASES)
def test_lists_that_are_too_long_together_are_refused_in_few_calls(method, path):
    each, total = LIST_MAXIMA[path[-1].full_name]
    holders = [field for field in path[:-1] if field.is_repeated]
    if not holders:
        assert each <= total
        return
    parents = total // each + 1
    while (request := request_with(method, path, each, parents)).ByteSize() <= SHORT_REQUEST_BYTES:
        parents *= 2
    refusal, calls = refused(method, request)
    limit = LIST_MAXIMA[holders[-1].full_name].each
    assert refusal.metadata["limit"] == f"..{limit if parents > limit else total}"
    assert calls <= TOTAL_CALLS_MAX


@pytest.fixture(scope="module")
def node():
    """The event loop of a node in memory, and a channel to the node."""
    loop = asyncio.new_event_loop()

    async def started():
        node = MemoryNode(NodeClocks())
        await node.start()
        return node.channel()

    async def end():
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    yield loop, loop.run_until_complete(started())
    loop.run_until_complete(end())
    loop.close()


@pytest.mark.parametrize(("method", "path"), CALLED)
def test_a_call_with_one_element_too_many_leaves_the_event_loop_to_others(node, method, path):
    loop, channel = node
    request = request_with(method, path, LIST_MAXIMA[path[-1].full_name].each + 1)

    async def longest_run():
        with LongestRun() as longest, pytest.raises(grpc.aio.AioRpcError) as error:
            await call(channel, method, request)
        return error.value.code(), longest.calls

    code, calls = loop.run_until_complete(longest_run())
    assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
    assert 0 < calls <= CALLS_PER_RUN_MAX


async def test_a_request_is_refused_before_its_caller_is_authorized():
    class Caller:
        def authorize(self, request):
            raise AssertionError(request)

    async def handler(call):
        raise AssertionError(call)

    method = UnaryMethod("PutTasks", pb.PutTasksRequest, ExecutionSite.LEADER, handler)
    with pytest.raises(CallRefused) as refusal:
        await method.execute(b"\x1a\x00" * 100_000, None, Caller(), 0.0)
    assert refusal.value.metadata["field"] == "tasks"


def test_the_path_of_a_refusal_names_the_place_of_each_list():
    few, many = ({"headers_remove": ["h" * 100] * count} for count in (64, 65))
    settlements = [
        {"tokens": [1], "ack": {}},
        {"tokens": [2], "bury": {"update": few}},
        {"tokens": [3], "release": {"update": many}},
    ]
    operations = [{"put": {}}, {"settle": {"settlements": settlements}}]
    with pytest.raises(CallRefused) as refusal:
        parse_request(
            pb.ExecuteBatchRequest,
            pb.ExecuteBatchRequest(operations=operations).SerializeToString(),
        )
    field = "operations[1].settle.settlements[2].release.update.headers_remove"
    assert refusal.value.metadata["field"] == field
    assert refusal.value.message == f"{field}: 65 items, more than 64"


def test_the_dependencies_of_all_tasks_of_a_put_have_a_maximum_together():
    plain, last = task_pb2.TaskSpec(payload=b"x" * 100), task_pb2.TaskSpec(depends_on=[{"item": 0}])
    full = task_pb2.TaskSpec(depends_on=[{"item": 0}] * 100)
    request = pb.PutTasksRequest(tube="t", tasks=[plain, *[full] * 20])
    assert parse_request(pb.PutTasksRequest, request.SerializeToString()) == request
    request.tasks.append(last)
    with pytest.raises(CallRefused) as refusal:
        parse_request(pb.PutTasksRequest, request.SerializeToString())
    assert refusal.value.message == (
        "tasks[21].depends_on: 2001 items in all lists of this field, more than 2000"
    )


def test_a_put_of_tasks_with_only_a_payload_is_not_walked():
    tasks = [task_pb2.TaskSpec(payload=b"x" * 100)] * 1_000
    raw = pb.PutTasksRequest(tube="t", tasks=tasks).SerializeToString()
    parse_request(pb.PutTasksRequest, raw)
    with counted_calls() as counted:
        parse_request(pb.PutTasksRequest, raw)
    assert counted.calls < 100
