"""A tube is reported as missing only after a read barrier."""

import pytest

from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.state.checks import ExistenceCheck
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.memory import MemoryStore


class Reading:
    """The local state, and the tubes that are applied during a read barrier."""

    def __init__(self, *late):
        self.applied = Queue(MemoryStore(), Limits())
        self.late = late
        self.barriers = 0

    async def barrier(self):
        self.barriers += 1
        create = [CreateTube(name, TubeKind.FIFO, TubeOptions()) for name in self.late]
        self.applied.apply(self.barriers, 0, create)


def known(reading, *, creates_tubes=False):
    return ExistenceCheck(reading, creates_tubes=lambda: creates_tubes)


async def test_a_tube_that_is_not_applied_yet_is_found_after_a_barrier():
    reading = Reading("late")
    await known(reading).check_tubes(["late"])
    assert reading.barriers == 1
    await known(reading).check_tubes(["late"])
    assert reading.barriers == 1, "a known tube needs no barrier"


async def test_a_tube_that_is_missing_after_a_barrier_is_refused():
    reading = Reading()
    with pytest.raises(CallRefused):
        await known(reading).check_tubes(["missing"])
    assert reading.barriers == 1
    await known(reading, creates_tubes=True).check_tubes(["missing"])
    await known(reading).check_tubes(["mis*"])
    assert reading.barriers == 1
