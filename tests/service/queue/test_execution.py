"""Similar commands of an entry are executed together, with the effect of single execution."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.retry_policy import RetryPolicy
from taskraft_service.queue.entities.tube_options import OnAck, TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.settlements import Ack, Keep, Release, Settle, SettleResult
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue, execute_together, runs
from tests.service.queue.memory_store import MemoryStore

LIMITS = Limits(session_taken_max=6, head_entries_max=4, subqueue_entries_max=2, read_tasks_max=2)
TUBES = {
    "plain": (TubeKind.FIFOTTL, TubeOptions()),
    "lanes": (TubeKind.UTUBETTL, TubeOptions()),
    "wide": (TubeKind.UTUBETTL, TubeOptions(subqueue_concurrency=2)),
    "kept": (TubeKind.FIFOTTL, TubeOptions(on_ack=OnAck.KEEP, retain_ms=50)),
    "few": (TubeKind.FIFOTTL, TubeOptions(concurrency=2)),
}
NAMES = st.sampled_from((*TUBES, "nowhere"))
REQUESTS = st.sampled_from(("", "", "", "r1", "r2"))
TOKENS = st.lists(st.integers(1, 30), min_size=1, max_size=2)
NEW_TASKS = st.builds(
    lambda subqueue, ttl_ms, retry: NewTask(
        b"x", 1, subqueue=subqueue, ttl_ms=ttl_ms, retry=RetryPolicy(3) if retry else None
    ),
    st.sampled_from(("", "a", "b")),
    st.sampled_from((None, None, 20)),
    st.integers(0, 9).map(lambda number: number == 9),
)
PUTS = st.builds(
    lambda tube, tasks: Put(
        tube,
        tasks
        if tube in {"lanes", "wide"}
        else [NewTask(b"x", 1, ttl_ms=task.ttl_ms) for task in tasks],
    ),
    NAMES,
    st.lists(NEW_TASKS, min_size=1, max_size=4),
)
TAKES = st.builds(
    lambda tube, session_id, tasks_max, ttr_ms, request_id: Take(
        [tube], session_id, tasks_max=tasks_max, ttr_ms=ttr_ms, request_id=request_id
    ),
    NAMES,
    st.sampled_from(("", "s", "s", "t", "gone")),
    st.sampled_from((1, 1, 1, 2)),
    st.sampled_from((None, None, 30)),
    REQUESTS,
)
SETTLES = st.builds(
    lambda settlement, request_id: Settle([settlement], request_id=request_id),
    st.one_of(
        st.builds(Ack, TOKENS),
        st.builds(Ack, TOKENS),
        st.builds(Ack, TOKENS, keep=st.sampled_from(Keep)),
        st.builds(Release, TOKENS),
    ),
    REQUESTS,
)
ENTRIES = st.lists(
    st.tuples(
        st.sampled_from((0, 1, 25)),
        st.one_of(
            st.lists(st.one_of(TAKES, SETTLES), min_size=1, max_size=8),
            st.lists(TAKES, min_size=2, max_size=8),
            st.lists(SETTLES, min_size=2, max_size=8),
            st.lists(PUTS, min_size=1, max_size=2),
        ),
    ),
    max_size=12,
)


class Replica:
    """A queue that is collected after each entry; it can execute commands one by one."""

    def __init__(self, *, one_by_one, limits=LIMITS):
        self.one_by_one = one_by_one
        self.store = MemoryStore()
        self.queue = Queue(self.store, limits)
        self.now_ms = 1_000_000
        tubes = [CreateTube(name, kind, options) for name, (kind, options) in TUBES.items()]
        sessions = [OpenSession(name, ttr_ms=60_000) for name in ("s", "t")]
        self.do(0, [Startup(1, 60_000, "feed", 2), *tubes, *sessions])

    def do(self, later_ms, commands):
        self.now_ms += later_ms
        cut = (lambda commands: ((None, commands),)) if self.one_by_one else runs
        with patch("taskraft_service.queue.queue.runs", cut):
            results = self.queue.apply(self.queue.applied_index + 1, self.now_ms, commands)
        self.store.write(self.queue.collect_writes())
        return results


def plain(result):
    """Return a result with lists in place of other sequences."""
    if isinstance(result, TakeResult):
        return TakeResult(list(result.tasks))
    if isinstance(result, SettleResult):
        return SettleResult(list(result.refused), list(result.touched), list(result.given_up))
    return result


@given(ENTRIES)
def test_commands_executed_together_have_the_results_and_state_of_single_execution(entries):
    together, one_by_one = Replica(one_by_one=False), Replica(one_by_one=True)
    for later_ms, commands in entries:
        answers = [plain(result) for result in together.do(later_ms, commands)]
        assert answers == [plain(result) for result in one_by_one.do(later_ms, commands)]
    assert together.queue.digest() == one_by_one.queue.digest()


def test_takes_of_many_consumers_and_their_acknowledgements_are_executed_together():
    replica = Replica(one_by_one=False)
    replica.do(0, [Put("lanes", [NewTask(b"x", 1, subqueue=str(lane)) for lane in range(8)])])
    done = []
    answer = execute_together

    def noted(state, run):
        answers = answer(state, run)
        done.append((type(run[0]), len(run), len(answers)))
        return answers

    with patch("taskraft_service.queue.queue.execute_together", noted):
        takes = [Take(["lanes"], session) for session in ("s", "t") for _ in range(3)]
        taken = [task for result in replica.do(0, takes) for task in result.tasks]
        replica.do(0, [Settle([Ack([task.token])]) for task in taken])
    assert [task.session_id for task in taken] == ["s"] * 3 + ["t"] * 3
    assert done == [(Take, 6, 6), (Settle, 6, 6)]
    assert replica.queue.statistics(["lanes"])[0].total == 2


def test_a_request_repeated_within_an_entry_has_one_effect():
    replica = Replica(one_by_one=False)
    replica.do(0, [Put("plain", [NewTask(b"x", 1)] * 3)])
    take = Take(["plain"], "s", request_id="r1")
    first, again, other = replica.do(0, [take, take, replace(take, request_id="r2")])
    assert [task.id for task in first.tasks] == [task.id for task in again.tasks] == [1]
    assert [task.id for task in other.tasks] == [2]


def test_an_expired_task_ends_between_the_takes_before_and_after_it():
    limits = replace(LIMITS, steps_alone_max=1, steps_beside_max=1, steps_max=1)
    replicas = [Replica(one_by_one=number > 0, limits=limits) for number in range(2)]
    for replica in replicas:
        replica.do(0, [Put("plain", [NewTask(b"x", 1, ttl_ms=ttl) for ttl in (None, 30, None)])])
        replica.do(0, [Put("few", [NewTask(b"x", 1)] * 3)])
        # The only deadline that one entry may fire is that of this task.
        replica.do(0, [Put("kept", [NewTask(b"x", 1, ttl_ms=20)])])
        results = replica.do(30, [Take([name], "s") for name in ("plain",) * 3 + ("few",) * 3])
        assert [[task.id for task in result.tasks] for result in results] == [
            [1],
            [3],
            [],
            [1],
            [2],
            [],
        ]
    assert replicas[0].queue.digest() == replicas[1].queue.digest()
