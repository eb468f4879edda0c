"""Records of acts of management: their effect, their number and their age, also after a restart."""

import pytest

from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.audit import RecordAct
from taskraft_service.queue.operations.kick_bury_delete import Delete
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.registry import ManagedCommand
from taskraft_service.queue.operations.selection import ByFilter
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore

LIMITS = Limits(audit_records_max=3, audit_retention_ms=100)
ACT = ManagedAct("root", "ipv4:10.0.0.1:5", "DeleteTasks", ("mail",), "filter='x'")


class Node:
    def __init__(self):
        self.store = MemoryStore()
        self.queue = Queue(self.store, LIMITS)
        self.index = 0
        self.do(0, Startup(1, 0, "feed", 1), CreateTube("mail", TubeKind.FIFO, TubeOptions()))

    def do(self, now_ms, *commands):
        self.index += 1
        return self.queue.apply(self.index, now_ms, commands)

    def reopen(self):
        digest = self.queue.digest()
        self.store.write(self.queue.collect_writes())
        self.queue = Queue(self.store, LIMITS)
        assert self.queue.digest() == digest

    def known(self):
        return [record for _, record in self.queue.audit_records(1 << 62)]


@pytest.fixture
def node():
    return Node()


def delete(tube="mail", **request):
    return ManagedCommand(Delete(tube, ByFilter(None, 10), **request), ACT)


def test_an_act_is_recorded_with_its_effect(node):
    node.do(5, Put("mail", [NewTask(b"", 0)] * 3), delete(), delete("gone"))
    node.reopen()
    refused, deleted = node.known()
    assert (deleted.at_ms, deleted.index, deleted.tasks, deleted.refused) == (5, 2, 3, 0)
    assert deleted.act == ACT
    assert (refused.tasks, refused.refused) == (0, Reason.TUBE_NOT_FOUND)


def test_a_repeated_request_is_recorded_once(node):
    for now_ms in (1, 2):
        (result,) = node.do(now_ms, delete(request_id="r", request_hash=7))
        assert result.count == 0
    assert [record.at_ms for record in node.known()] == [1]


def test_the_oldest_records_are_removed_at_the_limit(node):
    for now_ms in range(1, 6):
        node.do(now_ms, RecordAct(ACT))
        node.reopen()
    assert [record.at_ms for record in node.known()] == [5, 4, 3]
    assert sum(key[:2] == b"ja" for key in node.store.pairs) == 3


def test_old_records_are_removed_with_time(node):
    node.do(1, RecordAct(ACT))
    node.do(60, RecordAct(ACT))
    node.do(101)
    assert [record.at_ms for record in node.known()] == [60, 1]
    node.reopen()
    node.do(102)
    assert [record.at_ms for record in node.known()] == [60]
    node.do(1_000)
    assert node.known() == []
    node.do(1_001, RecordAct(ACT))
    assert [record.at_ms for record in node.known()] == [1_001]


def test_a_page_continues_below_a_number(node):
    for now_ms in (1, 2, 3):
        node.do(now_ms, RecordAct(ACT))
    numbers = [number for number, _ in node.queue.audit_records(1 << 62)]
    assert [number for number, _ in node.queue.audit_records(numbers[0])] == numbers[1:]
