"""The counts of sub-queues: what three lists of tasks say, and how many calls they may take."""

import pytest

from taskraft import Task, TaskPage
from taskraft.v1.task_pb2 import Task as TaskMessage
from taskraft.v1.task_pb2 import TaskSpec
from taskraft_console.data.subqueue_counts import (
    HOLDERS_MAX,
    READY_CALLS_MAX,
    SUBQUEUES_MAX,
    count_subqueues,
    counts_of,
)


def task(subqueue, *, since_ms=1, session_id=""):
    return Task(
        TaskMessage(spec=TaskSpec(subqueue=subqueue), since_ms=since_ms, session_id=session_id)
    )


def test_each_subqueue_has_its_tasks_and_holders():
    ready = [task("a", since_ms=9), task("a", since_ms=7), task("")]
    taken = [task("b", session_id=f"{number:08}-secret") for number in (1, 1, 2, 3, 4)]
    counts = counts_of(ready, taken, [task("a"), task("c", since_ms=5)], is_complete=True)
    shown = {one.name: one for one in counts.shown}
    assert [one.name for one in counts.shown] == ["a", "", "c", "b"]
    assert (shown["a"].ready, shown["a"].oldest_ms, shown["a"].is_next) == (2, 7, True)
    assert (shown["b"].ready, shown["b"].taken, shown["b"].is_next) == (0, 5, False)
    assert shown["b"].holders == ["00000001", "00000002", "00000003"][:HOLDERS_MAX]
    assert (shown["c"].ready, shown["c"].oldest_ms) == (1, 5)


def test_the_number_of_shown_subqueues_is_limited():
    counts = counts_of([task(f"{number:03}") for number in range(50)], [], [], is_complete=True)
    assert counts.count == 50
    assert [one.name for one in counts.shown] == [f"{n:03}" for n in range(SUBQUEUES_MAX)]


class EndlessTube:
    """A tube with a limited number of pages of READY tasks; the other lists have one page."""

    def __init__(self, pages):
        self.pages, self.calls = pages, 0

    def tube(self, _name):
        return self

    async def page(self, where, *, token, **_):
        self.calls += 1
        number = int(token or 1)
        is_last = where != "state = READY" or number >= self.pages
        following = "" if is_last else str(number + 1)
        return TaskPage(tasks=(task("a"),), next_token=following, now_ms=0, revision=0)


@pytest.mark.parametrize(
    ("pages", "ready", "is_complete"),
    [(1, 1, True), (READY_CALLS_MAX, READY_CALLS_MAX, True), (99, READY_CALLS_MAX, False)],
)
async def test_the_number_of_calls_is_limited(pages, ready, is_complete):
    tube = EndlessTube(pages)
    counts = await count_subqueues(tube, "endless", 1.0)
    assert (counts.shown[0].ready, counts.is_complete) == (ready, is_complete)
    assert tube.calls == ready + 2
    assert len(counts.shown) == 1
