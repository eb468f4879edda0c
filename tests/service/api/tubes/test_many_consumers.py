"""ListConsumers with very many waiting consumers looks at a bounded number in each run."""

from types import SimpleNamespace

import pytest

from taskraft.v1 import tube_service_pb2 as pb
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.rpc.request_steps import MESSAGE_STEPS, SLICE_STEPS
from taskraft_service.api.state.session_search import SessionSearch
from taskraft_service.api.tubes.consumers import CONSUMER_STEPS, ConsumersHandler
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import ConsumerProfile
from taskraft_service.limits import PAGE_SIZE_MAX
from tests.service.counted_calls import runs_of
from tests.service.leader.waiting import Board, Consumer

CONSUMERS = 10_000
SESSION = "00000000-0000-0000-0000-000000000001"


class CountedConsumer(Consumer):
    """A consumer of a session that counts how often the session and the credit are read."""

    reads = 0
    of_session = ConsumerProfile(session_id=SESSION)

    @property
    def profile(self):
        CountedConsumer.reads += 1
        return self.of_session

    def wanted_tasks(self):
        CountedConsumer.reads += 1
        return super().wanted_tasks()


class Reader:
    """A state with the tube "a"."""

    applied = SimpleNamespace(tube_number=lambda _tube: 1)

    @staticmethod
    def wall_now_ms():
        return 5


def listed(**fields):
    """Return an answer, and how many consumers each run of the event loop looked at."""
    waiters = Waiters(Board(a=0))
    for number in range(CONSUMERS):
        waiters.add(CountedConsumer("a", wanted_tasks=number % 2))
    request = pb.ListConsumersRequest(**fields)
    call = UnaryCall(request, request.SerializeToString(), None, ANONYMOUS, 0.0)

    def looked_at(run):
        before = CountedConsumer.reads
        run()
        return CountedConsumer.reads - before

    handler = ConsumersHandler(Reader(), waiters)
    runs, answer = runs_of(handler.list_consumers(call), looked_at)
    return answer, runs


@pytest.mark.parametrize("fields", [{"tube": "a"}, {"session_id": SESSION}])
def test_consumers_are_looked_at_in_slices(monkeypatch, fields):
    async def find(_search, session_id, _call):
        return SimpleNamespace(session_id=session_id)

    monkeypatch.setattr(SessionSearch, "find", find)
    answer, runs = listed(**fields)
    assert len(answer.consumers) == PAGE_SIZE_MAX
    assert CONSUMERS <= sum(runs) <= CONSUMERS + 2 * PAGE_SIZE_MAX
    # The last consumers of a list and the first messages are read in one run.
    assert max(runs) <= SLICE_STEPS // CONSUMER_STEPS + 2 * SLICE_STEPS // MESSAGE_STEPS


def test_consumers_that_accept_no_task_now_come_last():
    answer, _ = listed(tube="a")
    assert {one.wanted for one in answer.consumers} == {1}
    token = answer.next_page_token
    while token:
        answer, _ = listed(tube="a", page_token=token)
        token = answer.next_page_token
    assert {one.wanted for one in answer.consumers} == {0}
