"""Requests with hostile patterns cost names plus patterns, in short runs, or are refused.

The tests count calls of functions, so that the speed of the machine does not matter. Each request
is one that stopped a node before its steps were counted.
"""

import asyncio
from types import SimpleNamespace

import pytest

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.caller import ANONYMOUS, AnonymousCaller
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.rpc.request_steps import RequestSteps
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.tasks import takes
from taskraft_service.api.tasks.consumer_sources import ConsumerSources, check_wait
from taskraft_service.api.tasks.takes import TakeHandler
from taskraft_service.api.tubes.readable_tubes import readable_tubes
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import ConsumerProfile
from taskraft_service.limits import (
    NAME_BYTES_MAX,
    NAMES_MAX,
    TAKE_SOURCES_MAX,
    WAITING_STEPS_MAX,
    WAITING_STEPS_SHARE_MAX,
)
from tests.service.counted_calls import calls_of, runs_of
from tests.service.leader.waiting import Board, Consumer

CALLS_PER_RUN_MAX = 40_000
"""Maximum number of calls of functions between two turns of the event loop, a few milliseconds."""


def hostile(count):
    """Return patterns with 60 stars, each with another end."""
    return ["*a" * 60 + f"b{number:03}" for number in range(count)]


def alike(count):
    """Return patterns with many pieces that no beginning or end tells apart."""
    return [f"{'*a' * 30}*b{number:03}*" for number in range(count)]


class Tubes:
    """A queue with many tubes."""

    def __init__(self, names):
        self.names = tuple(sorted(names))

    def tube_names(self):
        return self.names

    def tube_number(self, name):
        return 1 if name in self.names else None


LONG = Tubes("a" * 100 + f"b{number:04}" for number in range(1_500))
SHORT = Tubes(f"x{number % 100}.{number}" for number in range(10_000))


def selected(tubes, patterns):
    """Return the calls of each run, and the tubes, of ListTubes and GetStatistics."""
    return runs_of(readable_tubes(tubes, patterns, ANONYMOUS, RequestSteps()))


def test_tubes_are_listed_by_a_thousand_hostile_patterns():
    runs, found = selected(LONG, hostile(NAMES_MAX))
    assert found == []
    assert sum(runs) < 100 * (1_500 + NAMES_MAX)


def test_tubes_are_listed_by_a_thousand_harmless_patterns():
    runs, found = selected(SHORT, [f"x{number}.*" for number in range(1_000)])
    assert found == list(SHORT.names)
    assert sum(runs) < 20 * (10_000 + 1_000)
    assert max(runs[1:]) < CALLS_PER_RUN_MAX


def test_patterns_that_nothing_tells_apart_are_refused_before_a_name_is_compared():
    with pytest.raises(CallRefused) as refused:
        selected(LONG, alike(NAMES_MAX))
    assert refused.value.reason == error_pb2.Error.TOO_MANY_STEPS


def sources_of(patterns):
    return [pb.TakeSource(tube=pattern) for pattern in patterns]


def test_tasks_are_taken_from_hostile_patterns():
    request = pb.TakeTasksRequest(sources=sources_of(hostile(TAKE_SOURCES_MAX)))
    call = UnaryCall(request, b"", None, ANONYMOUS, 0.0)
    reader = SimpleNamespace(applied=LONG)
    handler = TakeHandler(None, reader, None, None, Waiters(Board()), None, lambda: True)
    runs, found = runs_of(handler._existing(call, ConsumerSources(request.sources)))
    assert found == []
    assert sum(runs) < 100 * 1_500


@pytest.mark.parametrize("above", [0, 1])
def test_a_take_from_many_tubes_is_encoded_in_a_turn_of_its_own(monkeypatch, above):
    count = takes.TUBES_AT_ONCE + above
    queue = Tubes(f"x{number}" for number in range(count))
    request = pb.TakeTasksRequest(sources=sources_of(queue.names))
    call = UnaryCall(request, b"", None, ANONYMOUS, 0.0)
    handler = TakeHandler(None, SimpleNamespace(applied=queue), None, None, None, None, None)
    monkeypatch.setattr(takes, "request_key", lambda _call: None)
    encoded = []
    monkeypatch.setattr(takes, "narrowed_take", lambda *args: encoded.append(args[2]))

    async def taken(_call, _encoded):
        return "applied"

    monkeypatch.setattr(handler, "_taken", taken)
    taking = handler._take_at_once(call, ConsumerSources(request.sources), 0.0)
    runs, found = runs_of(taking, lambda run: (run(), len(encoded))[1])
    assert found == ("applied", list(queue.names))
    assert runs == ([0, 1] if above else [1])


def test_a_take_lists_tubes_by_the_order_of_its_sources():
    request = pb.TakeTasksRequest(sources=sources_of(["x2.2*", "x1.1", "x1.*0*"]))
    call = UnaryCall(request, b"", None, ANONYMOUS, 0.0)
    tubes = Tubes(["x1.1", "x1.10", "x1.2", "x1.20", "x2.2", "x2.20", "x3.1"])
    handler = TakeHandler(None, SimpleNamespace(applied=tubes), None, None, None, None, None)
    _, found = runs_of(handler._existing(call, ConsumerSources(request.sources)))
    assert found == ["x2.2", "x2.20", "x1.1", "x1.10", "x1.20"]


def test_a_wait_with_patterns_that_nothing_tells_apart_is_refused_without_any_tube():
    sources = ConsumerSources(sources_of(alike(TAKE_SOURCES_MAX)))
    with pytest.raises(CallRefused) as refused:
        check_wait(sources, Waiters(Board()), (), RequestSteps())
    assert refused.value.reason == error_pb2.Error.TOO_MANY_STEPS


def test_the_patterns_of_all_waiting_consumers_are_bounded():
    waiters, waiting = Waiters(Board()), []

    def add(number):
        patterns = [f"{'*a' * 20}*{number}.{place}*" for place in range(20)]
        check_wait(ConsumerSources(sources_of(patterns)), waiters, (), RequestSteps())
        waiting.append(Consumer(*patterns))
        waiters.add(waiting[-1])

    def add_many():
        for number in range(10_000):
            add(number)

    with pytest.raises(CallRefused) as refused:
        add_many()
    assert refused.value.reason == error_pb2.Error.OVERLOADED
    waiters.expect_ready("a" * NAME_BYTES_MAX, 1)
    new_tube = calls_of(waiters.claims)
    assert new_tube < 2 * WAITING_STEPS_MAX + 10 * len(waiting)
    waiters.remove(waiting[0])
    add(10_000)


class Named(AnonymousCaller):
    """A caller with a name that may do everything."""

    def __init__(self, name):
        super().__init__()
        self.name = name


def test_one_principal_leaves_room_for_the_patterns_of_others():
    waiters = Waiters(Board())

    def add(name, number):
        patterns = [f"{'*a' * 20}*{name}{number}.{place}*" for place in range(20)]
        sources = ConsumerSources(sources_of(patterns), Named(name))
        check_wait(sources, waiters, (), RequestSteps())
        consumer = Consumer(*patterns)
        consumer.profile = ConsumerProfile(principal=name)
        waiters.add(consumer)
        return consumer

    def add_more(name):
        for number in range(1, 10_000):
            add(name, number)

    def add_many(name):
        first = add(name, 0)
        with pytest.raises(CallRefused) as refused:
            add_more(name)
        assert refused.value.reason == error_pb2.Error.OVERLOADED
        return first, refused.value.metadata

    first, metadata = add_many("rival")
    share = str(WAITING_STEPS_SHARE_MAX)
    limit = {"limit": "waiting_steps_share_max", "value": share, "principal": "rival"}
    assert metadata == limit
    other, metadata = add_many("mailer")
    assert metadata == {"limit": "waiting_steps_max", "value": str(WAITING_STEPS_MAX)}
    waiters.remove(other)
    waiters.remove(first)
    add("rival", 10_000)
    assert WAITING_STEPS_SHARE_MAX == WAITING_STEPS_MAX * 3 // 4


def test_consumers_with_the_same_patterns_are_compared_once():
    waiters = Waiters(Board())
    for _ in range(1_000):
        waiters.add(Consumer(*hostile(TAKE_SOURCES_MAX)))
    waiters.expect_ready("mail", 1)
    assert calls_of(waiters.claims) < 500


def test_a_consumer_of_all_tubes_is_added_in_short_runs():
    waiters = Waiters(Board(**dict.fromkeys(SHORT.names, 0)))
    consumer = Consumer("*")
    runs = [calls_of(waiters.add, consumer)]
    is_left = True

    def add_more():
        nonlocal is_left
        is_left = waiters.add_more(consumer)

    while is_left:
        runs.append(calls_of(add_more))
    assert len(waiters.tubes_of(consumer)) == 10_000
    assert max(runs) < 40_000
    assert len(runs) > 5


async def test_a_consumer_that_leaves_while_it_is_added_waits_on_no_tube():
    waiters = Waiters(Board(**dict.fromkeys(SHORT.names, 0)))
    consumer = Consumer("*")
    waiters.add(consumer)
    waiters.remove(consumer)
    assert not waiters.add_more(consumer)
    await asyncio.sleep(0)
    assert waiters._tubes == {}
