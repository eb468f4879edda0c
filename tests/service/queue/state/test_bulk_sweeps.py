"""Bulk sweeps: steps, progress, turns and ends, also after a restart."""

import pytest

from taskraft_service.queue.entities.bulk_sweep import BulkAction, BulkRequest, BulkState
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.bulk_sweeps import (
    RunBulkSweep,
    StartBulkSweep,
    StopBulkSweep,
)
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByFilter, ByIds
from taskraft_service.queue.operations.tubes import CreateTube, TruncateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore

LIMITS = Limits(
    bulk_sweeps_open_max=3,
    bulk_sweeps_share_max=2,
    bulk_sweeps_running_max=1,
    bulk_sweeps_kept_max=2,
    bulk_retention_ms=100,
)


class Node:
    def __init__(self):
        self.store = MemoryStore()
        self.queue = Queue(self.store, LIMITS)
        self.index = 0
        self.now_ms = 0
        self.do(Startup(1, 0, "feed", 1), CreateTube("mail", TubeKind.FIFO, TubeOptions()))
        self.do(Put("mail", [NewTask(b"", 0)] * 6))

    def do(self, *commands, at=None):
        self.index += 1
        self.now_ms = at or self.now_ms
        results = self.queue.apply(self.index, self.now_ms, commands)
        digest = self.queue.digest()
        self.store.write(self.queue.collect_writes())
        self.queue = Queue(self.store, LIMITS)
        assert self.queue.digest() == digest
        return results[0]

    def start(self, ids=(), principal="", **given):
        request = BulkRequest("mail", "", ids, BulkAction.DELETE, "", "", 100, principal)
        return self.do(StartBulkSweep(request), **given)

    def step(self, number, step, after_id, tasks_max=2):
        change = Delete("mail", ByFilter(None, tasks_max, after_id))
        return self.do(RunBulkSweep(number, step, change))

    def sweep(self, number):
        return self.queue.bulk_sweep(number)


@pytest.fixture
def node():
    return Node()


def test_the_steps_of_a_sweep_change_each_task_once(node):
    assert node.start().number == 1
    assert (node.sweep(1).state, node.sweep(1).position_max) == (BulkState.RUNNING, 6)
    assert node.step(1, 0, 0).count == 2
    assert node.step(1, 0, 0).count == 0  # a step that two leaders propose
    assert (node.sweep(1).position, node.sweep(1).changed, node.sweep(1).steps) == (2, 2, 1)
    assert node.step(1, 1, 2).count == 2
    assert node.step(1, 2, 4).count == 2
    assert (node.sweep(1).state, node.sweep(1).changed) == (BulkState.DONE, 6)
    assert node.step(1, 3, 0).count == 0


def test_refused_tasks_are_counted_by_reason(node):
    node.start(ids=(1, 2, 99))
    node.do(RunBulkSweep(1, 0, Delete("mail", ByIds([1, 2, 99]))))
    sweep = node.sweep(1)
    assert (sweep.state, sweep.changed, sweep.refused) == (BulkState.DONE, 2, 1)
    assert sweep.reasons == {Reason.TASK_NOT_FOUND: 1}


def test_sweeps_take_turns_and_their_number_is_bounded(node):
    for _ in range(3):
        node.start()
    states = [node.sweep(number).state for number in (1, 2, 3)]
    assert states == [BulkState.RUNNING, BulkState.WAITING, BulkState.WAITING]
    refusal = node.start()
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.LIMIT_REACHED
    node.do(StopBulkSweep(1))
    assert (node.sweep(1).state, node.sweep(2).state) == (BulkState.STOPPED, BulkState.RUNNING)
    assert node.step(1, 0, 0).count == 0
    assert node.do(StopBulkSweep(9)).reason is Reason.BULK_SWEEP_NOT_FOUND


def test_one_principal_has_a_share_of_the_sweeps(node):
    assert node.start(principal="a").number == 1
    assert node.start(principal="a").number == 2
    refusal = node.start(principal="a")
    assert refusal.metadata == {"limit": "bulk_sweeps_share_max", "value": "2", "principal": "a"}
    assert node.start(principal="b").number == 3
    assert node.start(principal="b").metadata == {"limit": "bulk_sweeps_open_max", "value": "3"}
    node.do(StopBulkSweep(1))
    assert node.start(principal="a").number == 4


def test_a_sweep_fails_with_its_problem(node):
    node.start()
    node.do(RunBulkSweep(1, 0, None, "NOT_ALLOWED: revoked"))
    assert (node.sweep(1).state, node.sweep(1).problem) == (
        BulkState.FAILED,
        "NOT_ALLOWED: revoked",
    )
    node.start()
    node.do(TruncateTube("mail"))
    node.step(2, 0, 0)
    assert node.sweep(2).problem == "the tube was dropped or truncated"
    node.do(Put("mail", [NewTask(b"", 0)]))
    node.start()
    node.do(RunBulkSweep(3, 0, Bury("gone", ByFilter(None, 1))))
    assert node.sweep(3).problem.startswith("TUBE_NOT_FOUND")


def test_ended_sweeps_are_kept_for_a_time_and_numbers_are_not_used_again(node):
    for number in (1, 2, 3):
        node.start(at=number)
        node.do(StopBulkSweep(number))
    node.start(at=4)
    assert [sweep.number for sweep in node.queue.bulk_sweeps()] == [4, 3, 2]
    node.do(StopBulkSweep(4))
    node.start(at=1_000)
    assert [sweep.number for sweep in node.queue.bulk_sweeps()] == [5]
