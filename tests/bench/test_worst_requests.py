"""The most expensive request of each method keeps the event loop for a limited number of calls.

The test counts calls of functions between two turns of the event loop of a node in memory, so that
the speed of the machine does not matter.
"""

import asyncio
from asyncio import events
from collections import defaultdict

import grpc
import grpc.aio
import pytest

from bench.worst.calls import call, methods_of_the_contract
from bench.worst.exemptions import EXEMPT
from bench.worst.requests import WORST
from bench.worst.stage import Size, Stage
from taskraft_service.api.rpc.list_maxima import LIST_MAXIMA
from taskraft_service.clock.cluster_clock import NodeClocks
from taskraft_service.machine.collect_policy import CollectPolicy
from taskraft_service.memory_node import memory_machine
from taskraft_service.memory_node.memory_node import MemoryNode
from tests.service.api.field_rules import is_map
from tests.service.counted_calls import counted_calls

SIZE = Size(tubes=400, sessions=1_000, schedules=400, groups=400, tasks=20_000)
CALLS_PER_RUN_MAX = 130_000
"""Maximum number of calls of functions in one run, about 10 ms."""
ONE_COMMAND = {
    "PutTasks": 340_000,
    "TakeTasks": 260_000,
    "SettleTasks": 380_000,
    "Subscribe": 380_000,
    "KickTasks": 260_000,
    "ExecuteBatch": 400_000,
    "UpdateTasks": 260_000,
}
"""Maximum of the methods whose command changes 1 000 tasks in many fields, about 12 to 50 ms. The
entry with such a command holds no other, see ``ENTRY_ITEMS_MAX``."""
OTHERS = {
    # Needs a store on disk, and other members.
    **dict.fromkeys(("OpenTaskSnapshot", "ReadTaskSnapshot", "SaveSnapshot"), "UNIMPLEMENTED"),
    "AddMember": "UNIMPLEMENTED",
    **dict.fromkeys(("PromoteMember", "RemoveMember", "TransferLeadership"), "NOT_FOUND"),
}
"""Methods that a node in memory refuses, with the codes."""


class LongestRun:
    """Counts the calls of each run of the event loop while its block runs."""

    def __enter__(self):
        self.calls = 0
        self._run = events.Handle._run

        def counted_run(handle):
            with counted_calls() as counted:
                self._run(handle)
            self.calls = max(self.calls, counted.calls)

        events.Handle._run = counted_run
        return self

    def __exit__(self, *_error):
        events.Handle._run = self._run


NEVER = 1 << 60


@pytest.fixture(scope="module")
def stage():
    """The event loop of a node, a client with many objects in the node, and its state machine.

    The machine writes no batch by itself, because a node in memory writes without steps.
    """
    loop = asyncio.new_event_loop()
    pace = CollectPolicy(NEVER, NEVER, NEVER, NEVER, NEVER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_machine, "_PACE", pace)
        yield from filled_stage(loop)
    loop.close()


def filled_stage(loop):

    async def filled():
        node = MemoryNode(NodeClocks())
        await node.start()
        one = Stage(node.channel(), SIZE)
        await one.fill()
        return one, node.machine

    async def end():
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    yield loop, *loop.run_until_complete(filled())
    loop.run_until_complete(end())


def test_each_method_of_the_contract_has_a_request():
    assert {method.name for method in methods_of_the_contract()} == set(WORST)


def lists_of(kind, within=()):
    """Yield the descriptors of all lists in messages of a type."""
    for field in kind.fields:
        message = field.message_type
        if field.is_repeated:
            yield field
        if message is not None and not is_map(field) and message not in within:
            yield from lists_of(message, (*within, message))


def lengths_of(message, found):
    """Add the lengths of all lists in a message to ``found``, by the full name of the field."""
    for field, value in message.ListFields():
        if field.is_repeated:
            found[field.full_name].append(len(value))
        if field.message_type is not None and not is_map(field):
            for one in value if field.is_repeated else [value]:
                lengths_of(one, found)


def short_name(field):
    """Return the name of a field without its package."""
    return field.full_name.removeprefix(f"{field.file.package}.")


METHODS_WITH_LISTS = [
    method for method in methods_of_the_contract() if [*lists_of(method.input_type)]
]


@pytest.mark.parametrize("method", METHODS_WITH_LISTS, ids=lambda method: method.name)
def test_each_list_has_its_maximum_length_or_a_reason(stage, method):
    loop, filled, *_ = stage
    request = loop.run_until_complete(WORST[method.name](filled))
    lengths = defaultdict(list)
    lengths_of(request, lengths)
    short = set()
    for field in lists_of(method.input_type):
        maximum, found = LIST_MAXIMA[field.full_name], lengths[field.full_name]
        if max(found, default=0) < maximum.each and sum(found) < maximum.total:
            short.add(short_name(field))
    assert short == {name for one, name in EXEMPT if one == method.name}


def test_each_exemption_is_of_a_method_with_lists():
    assert {name for name, _ in EXEMPT} <= {method.name for method in METHODS_WITH_LISTS}


@pytest.mark.parametrize("method", methods_of_the_contract(), ids=lambda method: method.name)
def test_the_most_expensive_request_leaves_the_event_loop_to_others(stage, method):
    loop, filled, machine = stage

    async def outcome():
        try:
            request = await WORST[method.name](filled)
            machine.collect()  # otherwise the run may also write what was prepared
            await asyncio.sleep(0)
            with LongestRun() as longest:
                await call(filled.channel, method, request)
        except grpc.aio.AioRpcError as error:
            return error.code().name, 0
        return "OK", longest.calls

    code, calls = loop.run_until_complete(outcome())
    assert code == OTHERS.get(method.name, "OK")
    assert calls <= ONE_COMMAND.get(method.name, CALLS_PER_RUN_MAX)
