"""The record of a task keeps everything that the queue needs to go on after a restart."""

import pytest

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.task_codec import (
    read_task,
    read_type,
    without_session,
    write_task,
)
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore


def taken_task(taker):
    queue = Queue(MemoryStore(), Limits(), None)
    task = NewTask(b"body", 4, type="kind", subqueue="lane", unique_key=("key",))
    commands = [
        CreateTube("mail", TubeKind.UTUBETTL, TubeOptions()),
        Put("mail", [task]),
        Take(["mail"], taker=taker),
    ]
    *_, taken = queue.apply(1, 10, commands)
    state = queue._state
    return state.tubes["mail"], state.leases[taken.tasks[0].token]


@pytest.mark.parametrize("taker", ["", "mailer", "é" * 128])
def test_the_record_keeps_who_has_taken_the_task(taker):
    tube, task = taken_task(taker)
    record = write_task(task)
    again, session_number = read_task(tube, task.id, record)
    assert (again.taker, session_number) == (taker, 0)
    assert write_task(again) == record
    assert read_type(record) == "kind"
    assert (again.subqueue, again.body, again.extras) == ("lane", b"body", task.extras)
    assert without_session(record) == record


def test_a_lease_without_a_taker_takes_no_room():
    sizes = [len(write_task(taken_task(taker)[1])) for taker in ("", "mailer")]
    assert sizes[1] - sizes[0] == 2 + len("mailer")
