"""A repeated request has one effect and gets the first answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import CountResult, ItemRefusal, Reason, Refusal
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.cancel import CancelResult
from taskraft_service.queue.operations.kick_bury_delete import Delete
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put, PutResult
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.settlements import (
    Ack,
    Release,
    Settle,
    SettleResult,
    Touch,
    TouchedLease,
)
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.queue.operations.tubes import CreateTube, DropTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.kept_answers import decode, encode
from tests.service.queue.memory_store import MemoryStore

WINDOW_MS = 600_000


class Node:
    """A queue with a tube.

    ``reopen``: after each entry the changes are collected and the queue is reopened.
    """

    def __init__(self, *, reopen, limits=None):
        self.limits = limits or Limits()
        self.store = MemoryStore()
        self.queue = Queue(self.store, self.limits)
        self.reopen = reopen
        self.index = 0
        self.now_ms = 1_000_000
        self.do(Startup(1, 60_000, "feed", 1), CreateTube("tube", TubeKind.FIFOTTL, TubeOptions()))

    def do(self, command, *more):
        self.index += 1
        results = self.queue.apply(self.index, self.now_ms, [command, *more])
        self.repeated = self.queue.repeated
        if self.reopen:
            self.store.write(self.queue.collect_writes())
            self.queue = Queue(self.store, self.limits)
        return results[0]

    def total(self):
        return self.queue.total_statistics().total


@pytest.fixture(params=[False, True], ids=["in-memory", "from-the-store"])
def node(request):
    return Node(reopen=request.param)


def put(request_id, request_hash=7, tasks=1):
    new_tasks = [NewTask(b"body", 4) for _ in range(tasks)]
    return Put("tube", new_tasks, request_id=request_id, request_hash=request_hash)


def test_a_repeated_put_gets_the_same_ids(node):
    first = node.do(put("a", tasks=3))
    assert list(node.do(put("a", tasks=3)).ids) == list(first.ids) == [1, 2, 3]
    assert node.total() == 3


def test_a_reused_request_id_is_refused(node):
    node.do(put("a"))
    result = node.do(put("a", request_hash=8))
    assert isinstance(result, Refusal)
    assert result.reason is Reason.REQUEST_ID_REUSED
    assert node.total() == 1


def test_a_repetition_within_one_entry_is_detected(node):
    first = put("a")
    node.do(first, first)
    assert node.total() == 1


def test_a_repetition_has_the_revision_of_the_first_request(node):
    node.do(put("a"))
    first = node.index
    assert node.repeated == {}
    node.do(put("b"), put("a"), put("c"), put("b"))
    assert node.repeated == {"a": first, "b": node.index}
    node.do(put("d"))
    assert node.repeated == {}


def test_a_record_of_a_development_build_has_no_revision():
    node = Node(reopen=True)
    node.do(put("a"))
    (key,) = (key for key in node.store.pairs if key.startswith(b"q"))
    record = node.store.pairs[key]
    node.store.write([(key, record[:8] + record[17:])])
    node.queue = Queue(node.store, node.limits)
    assert list(node.do(put("a")).ids) == [1]
    assert node.repeated == {"a": node.index}


def test_a_repeated_take_gets_the_same_leases(node):
    node.do(put("p", tasks=2))
    take = Take(["tube"], tasks_max=2, request_id="t")
    first = node.do(take)
    assert node.do(take) == first
    node.do(Settle([Ack([first.tasks[0].token])]))
    assert node.do(take).tasks == [first.tasks[1]]


def test_an_empty_take_may_be_repeated(node):
    take = Take(["tube"], request_id="t")
    assert node.do(take).tasks == []
    node.do(put("p"))
    assert len(node.do(take).tasks) == 1


def test_a_refused_request_may_be_repeated(node):
    """A producer that must wait sends the request again with the same id."""
    missing = Put("later", [NewTask(b"", 0)], request_id="a")
    assert isinstance(node.do(missing), Refusal)
    node.do(CreateTube("later", TubeKind.FIFO, TubeOptions()))
    assert node.do(missing).ids == range(1, 2)


def test_a_repeated_settle_gets_the_same_refusals(node):
    node.do(put("p", tasks=3))
    node.do(Take(["tube"], tasks_max=3))
    settlements = [Ack([1, 99]), Touch([2], increment_ms=5), Release([3])]
    settle = Settle(settlements, request_id="s")
    first = node.do(settle)
    again = node.do(settle)
    assert (list(again.refused), list(again.touched)) == (list(first.refused), list(first.touched))
    assert [task.state for task in node.queue.list_tasks("tube", (), 0, 9)] == [
        State.TAKEN,
        State.READY,
    ]


def test_a_repeated_creation_gets_the_tube(node):
    create = CreateTube("more", TubeKind.FIFO, TubeOptions(), request_id="c")
    first = node.do(create)
    assert node.do(create) == first
    assert not first.existed
    node.do(DropTube("more"))
    assert node.do(create).reason is Reason.TUBE_NOT_FOUND


def test_a_repeated_opening_gets_the_first_session(node):
    first = node.do(OpenSession("one", request_id="o"))
    again = node.do(OpenSession("two", request_id="o"))
    assert again == first
    assert [session.session_id for session in node.queue.sessions()] == ["one"]


def test_a_request_id_is_known_for_a_whole_window(node):
    node.now_ms += WINDOW_MS - 1  # The time is shortly before the change of the bucket.
    node.do(put("a"))
    node.now_ms += WINDOW_MS
    node.do(put("a"))
    assert node.total() == 1


def test_a_request_id_is_forgotten_after_two_windows(node):
    node.do(put("a"))
    for _ in range(2):
        node.now_ms += WINDOW_MS
        node.do(put("b"))
    node.do(put("a"))
    assert node.total() == 3


def test_forgotten_request_ids_are_removed_from_the_store():
    node = Node(reopen=True)
    node.do(put("a"))
    assert sum(key.startswith(b"q") for key in node.store.pairs) == 1
    for _ in range(2):
        node.now_ms += WINDOW_MS
        node.do(Delete("tube", ByIds([])))
    assert sum(key.startswith(b"q") for key in node.store.pairs) == 0


@pytest.mark.parametrize("reopen", [False, True])
def test_the_oldest_request_ids_are_removed_at_the_limit(reopen):
    node = Node(reopen=reopen, limits=Limits(requests_max=10))
    for number in range(20):
        node.do(put(f"p{number}"))
    node.do(put("p19"))
    node.do(put("p15"))
    assert node.total() == 20
    node.do(put("p0"))
    assert node.total() == 21


TEXTS = st.text(max_size=20)
REFUSED = st.lists(
    st.builds(
        ItemRefusal,
        st.integers(0, 10_000),
        st.builds(
            Refusal, st.sampled_from(Reason), TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3)
        ),
    ),
    max_size=3,
)
NUMBERS = st.lists(st.integers(0, 2**63 - 1), max_size=5)
ANSWERS = st.one_of(
    st.builds(PutResult, NUMBERS, REFUSED, NUMBERS),
    st.builds(
        lambda first, n: PutResult(range(first, first + n)), st.integers(1, 99), NUMBERS.map(len)
    ),
    st.builds(CountResult, st.integers(0, 2**63 - 1), REFUSED, st.integers(0, 2**63 - 1)),
    st.builds(
        CancelResult,
        st.integers(0, 10_000),
        st.integers(0, 10_000),
        REFUSED,
        st.integers(0, 2**63 - 1),
    ),
    st.builds(
        SettleResult,
        REFUSED,
        st.lists(
            st.builds(TouchedLease, st.integers(1, 2**62), st.integers(0, 2**62), st.booleans()),
            max_size=3,
        ),
    ),
)


@given(ANSWERS)
def test_kept_answers_are_decoded_as_they_were_encoded(answer):
    read = decode(encode(answer))
    assert type(read) is type(answer)
    for name in answer.__slots__:
        kept, given_ = getattr(read, name), getattr(answer, name)
        assert (kept if isinstance(kept, int) else list(kept)) == (
            given_ if isinstance(given_, int) else list(given_)
        )


def test_the_answer_of_a_large_put_is_stored_in_few_bytes():
    assert len(encode(PutResult(range(1_000, 11_000)))) <= 16


def test_the_answer_of_an_empty_take_is_not_kept():
    assert decode(encode(TakeResult([]))).tasks == []
