"""Memory holds only the waiting tasks that will soon be taken, after any sequence of reads."""

from __future__ import annotations

import pytest

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.settlements import Release, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore
from tests.service.queue.state.test_working_set import read_all_ahead

LIMITS = Limits(
    head_entries_max=16,
    read_tasks_max=8,
    ahead_tasks_max=16,
    subqueue_entries_max=4,
    subqueues_max=5,
    type_entries_max=4,
    types_max=3,
)
HEADS_MAX = LIMITS.head_entries_max * (1 + LIMITS.subqueues_max + LIMITS.types_max)
"""Maximum number of entries in the heads of all orders of a tube."""
ROUNDS = 200


class Desk:
    """Two tubes; ``collect`` writes changes and reads ahead, like a node under load."""

    def __init__(self, kind, options):
        self.store = MemoryStore()
        self.queue = Queue(self.store, LIMITS)
        self.index = 0
        tubes = [CreateTube(name, kind, TubeOptions(**options)) for name in ("mail", "news")]
        self.do(Startup(1, 0, "feed", 1), *tubes)

    def do(self, *commands):
        self.index += 1
        return self.queue.apply(self.index, self.index, commands)

    def collect(self):
        for _ in range(2):
            self.store.write(self.queue.collect_writes())
            read_all_ahead(self.queue)

    @property
    def resident(self):
        """Number of waiting tasks of the first tube in memory."""
        tasks = self.queue._state.tubes["mail"].tasks.values()
        return sum(task.state is State.READY for task in tasks)

    @property
    def waiting(self):
        return self.queue._state.tubes["mail"].counters.states[State.READY]


@pytest.mark.parametrize("is_typed", [False, True], ids=["any", "of many types"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (TubeKind.FIFOTTL, {}),
        (TubeKind.UTUBETTL, {}),
        (TubeKind.UTUBETTL, {"subqueue_weights": (("other", 2),)}),
    ],
    ids=["fifottl", "utubettl", "weights"],
)
def test_tasks_read_ahead_leave_memory_when_others_come_before_them(kind, options, is_typed):
    desk = Desk(kind, options)
    for number in range(ROUNDS):
        name = f"type {number}" if is_typed else ""
        new = [
            NewTask(
                b"x",
                1,
                priority=-number,
                type=name,
                subqueue="" if kind is TubeKind.FIFOTTL else f"{number}/{place}",
            )
            for place in range(20)
        ]
        desk.do(Put("mail", new))
        desk.collect()
        (answer,) = desk.do(Take(["mail"], tasks_max=2, types=[name] if is_typed else ()))
        assert len(answer.tasks) == 2
        desk.do(Settle([Release([task.token for task in answer.tasks])]))
        desk.collect()
        assert desk.resident <= HEADS_MAX
    assert desk.waiting == 20 * ROUNDS


def test_tasks_that_a_bounded_take_skips_leave_memory():
    desk = Desk(TubeKind.FIFOTTL, {})
    front = NewTask(b"x", 1, priority=9, position=Position.FRONT)
    desk.do(Put("mail", [front] * 2 * LIMITS.head_entries_max))
    for number in range(ROUNDS):
        desk.do(Put("mail", [NewTask(b"x", 1, priority=-number)]))
        desk.do(Put("news", [NewTask(b"x", 1, priority=0, position=Position.FRONT)]))
        desk.collect()
        (answer,) = desk.do(Take(["mail", "news"], tasks_max=1, priority_bound=0))
        assert [task.tube for task in answer.tasks] == ["news"]
        desk.collect()
        assert desk.resident <= LIMITS.head_entries_max
