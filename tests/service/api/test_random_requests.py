"""Random requests get typed answers, never a bug, and a refused request changes nothing."""

import asyncio

import grpc
import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings

from taskraft.v1 import bulk_sweep_pb2, error_pb2, tube_service_pb2
from taskraft_service.leader.node_phases import NodePhase
from tests.service.api.random_requests import requests_of
from tests.service.api.test_bad_input import METHODS, SERVICES
from tests.service.conftest import config_in, put, reason_of, running, take

pytestmark = pytest.mark.real_time

Tube = tube_service_pb2.Tube
CHANGES_MEMBERS = {"AddMember", "PromoteMember", "RemoveMember", "TransferLeadership"}
REQUESTS = {
    method.name: requests_of(method.input_type)
    for service in SERVICES
    for method in service.methods
    if method.name not in CHANGES_MEMBERS
}
LAST = ("DropTube", "Subscribe")
"""Methods that are called last, because they end tubes or leases that other methods need."""
EXAMPLES = 14
CALL_SECONDS = 5
FAR_MS = 80_000_000
FOLLOW_SECONDS = 0.05
"""Time for which a stream without end is read."""
REASONS = set(error_pb2.Error.Reason.keys())
DEFECTS = {"INTERNAL_ERROR", "REASON_UNSPECIFIED", "NOT_IMPLEMENTED", "COMMIT_UNKNOWN"}


async def furnish(node):
    """Create a tube of each sort, with tasks in some states."""
    memory = tube_service_pb2.TubeOptions(durability=tube_service_pb2.TubeOptions.TEMPORARY)
    for tube in (
        Tube(name="timed", kind=Tube.FIFOTTL),
        Tube(name="plain", kind=Tube.FIFO),
        Tube(name="lanes", kind=Tube.UTUBETTL),
        Tube(name="memory", kind=Tube.FIFOTTL, options=memory),
    ):
        await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
        await put(node, b"1", b"2", b"3", tube=tube.name)
        await take(node, tube.name, tasks_max=1, ttr_ms=FAR_MS)


def state_of(node):
    """Return the state that a refused call must not change, without the parts that time changes."""
    queue, queues = node.queue, node.server.components.queues
    names = [tube.name for tube in queue.tubes()]
    return [
        queue.tubes(),
        [queues.queue_of(name).list_tasks(name, (), 0, 1000) for name in names],
        queue.schedules(),
        queue.groups(),
        queue.consumers(),
        queue.settings,
    ]


async def reason_for(node, method, request):
    """Return the reason of a refused call; empty if it was answered."""
    path, is_stream = METHODS[method]
    raw = request.SerializeToString()
    try:
        if method == "Subscribe":
            async with asyncio.timeout(FOLLOW_SECONDS):
                async for _ in node.channel.stream_stream(path)(iter([raw])):
                    pass
        elif is_stream:
            async with asyncio.timeout(FOLLOW_SECONDS):
                async for _ in node.channel.unary_stream(path)(raw):
                    pass
        else:
            await node.channel.unary_unary(path)(raw, timeout=CALL_SECONDS)
    except TimeoutError:
        return ""
    except grpc.aio.AioRpcError as error:
        return reason_of(error) or error.code().name
    return ""


async def stop_sweeps(node):
    """Stop the bulk sweeps, which the leader executes step by step after the answer."""
    for sweep in (await node.tasks.ListBulkSweeps(bulk_sweep_pb2.ListBulkSweepsRequest())).sweeps:
        if sweep.state in (bulk_sweep_pb2.BulkSweep.WAITING, bulk_sweep_pb2.BulkSweep.RUNNING):
            stop = bulk_sweep_pb2.StopBulkSweepRequest(number=sweep.number)
            await node.tasks.StopBulkSweep(stop)


def test_random_requests_cause_no_bug_and_refused_ones_change_nothing(tmp_path):
    with asyncio.Runner() as runner:
        lifetime = running(config_in(tmp_path, payload_bytes_max=8192))
        node = runner.run(lifetime.__aenter__())
        try:
            runner.run(furnish(node))
            for method in [*sorted(REQUESTS.keys() - LAST), *LAST]:
                try_some(runner, node, method, REQUESTS[method])
            assert node.server.components.phases.phase is NodePhase.RUNNING
        finally:
            runner.run(lifetime.__aexit__(None, None, None))


def try_some(runner, node, method, requests):
    """Call a method with random requests.

    Failing requests are not shrunk, because each call changes the state.
    """

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(requests)
    def answers_or_refuses(request):
        before = state_of(node)
        reason = runner.run(reason_for(node, method, request))
        if reason:
            assert reason in REASONS, (method, request)
            assert reason not in DEFECTS, (method, request)
            assert method == "Subscribe" or state_of(node) == before, (method, request)
        elif method == "StartBulkSweep":
            runner.run(stop_sweeps(node))

    answers_or_refuses()
