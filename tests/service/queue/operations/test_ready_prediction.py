"""Prediction of how many tasks an entry makes ready."""

import pytest

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.kick_bury_delete import Kick
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByFilter, ByIds
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.memory import MemoryStore


@pytest.fixture
def queue():
    queue = Queue(MemoryStore(), Limits())
    queue.apply(1, 0, [CreateTube("t", TubeKind.FIFOTTL, TubeOptions())])
    return queue


@pytest.mark.parametrize(
    ("kick", "most"),
    [
        (Kick("t", 7), 7),
        (Kick("t", selector=ByIds([1, 2, 3])), 3),
        (Kick("t", selector=ByFilter(None, 5)), 5),
    ],
)
def test_a_kick_makes_as_many_tasks_ready_as_it_names(queue, kick, most):
    assert queue.predict_ready_tubes([kick], 0) == {"t": 1 + most}


def test_puts_are_counted_by_tube(queue):
    new = NewTask(b"", 0)
    assert queue.predict_ready_tubes([Put("t", [new, new]), Put("t", [new])], 0) == {"t": 3}
