"""The memory limit of temporary tubes refuses puts; settlements continue at the limit."""

import pytest

from taskraft_service.leader.temporary.memory_queue import MemoryQueue, growth_bytes
from taskraft_service.machine.queue_locator import origin_of
from taskraft_service.queue.entities.id_layout import (
    CELL_BIT,
    SEQUENCE_BITS,
    SEQUENCE_RESERVE,
    TERM_BITS,
    is_nearly_used_up,
)
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube_driver import NO_DRIVERS
from taskraft_service.queue.entities.tube_options import OnAck, TubeKind, TubeOptions
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.kick_bury_delete import Kick
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.settlements import Ack, Keep, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.transitions.updating import TaskUpdate

BYTES_MAX = 100_000


@pytest.fixture
def memory():
    one = MemoryQueue(origin_of(1), BYTES_MAX, NO_DRIVERS)
    one.apply(1, [CreateTube("t", TubeKind.FIFOTTL, TubeOptions(on_ack=OnAck.KEEP))])
    return one


def put(size, count=1):
    return Put("t", [NewTask(b"x" * size, size)] * count)


def test_a_put_beyond_the_limit_is_refused_as_a_whole(memory):
    (refusal,) = memory.apply(2, [put(30_000, 4)])
    assert (refusal.reason, refusal.metadata["value"]) == (Reason.LIMIT_REACHED, str(BYTES_MAX))
    assert memory.queue.last_id("t") == origin_of(1).task
    (done,) = memory.apply(2, [put(30_000, 3)])
    assert len(done.ids) == 3
    assert 90_000 < memory.memory_bytes <= BYTES_MAX


def test_removed_tasks_free_memory_at_once(memory):
    for _ in range(20):
        (done,) = memory.apply(2, [put(30_000, 3)])
        (taken,) = memory.apply(3, [Take(["t"], tasks_max=3)])
        tokens = [task.token for task in taken.tasks]
        memory.apply(4, [Settle([Ack(tokens, keep=Keep.REMOVE)])])
    assert len(done.ids) == 3


def test_results_may_use_a_reserve_above_the_limit_of_puts(memory):
    memory.apply(2, [put(30_000, 3)])
    (taken,) = memory.apply(3, [Take(["t"], tasks_max=3)])
    tokens = [task.token for task in taken.tasks]
    assert isinstance(memory.apply(4, [put(10_000)])[0], Refusal)
    (settled,) = memory.apply(4, [Settle([Ack(tokens[:1], result=b"r" * 10_000)])])
    assert not settled.refused
    (refusal,) = memory.apply(5, [Settle([Ack(tokens[1:], result=b"r" * 15_000)])])
    assert refusal.reason is Reason.LIMIT_REACHED
    (settled,) = memory.apply(6, [Settle([Ack(tokens[1:])])])
    assert not settled.refused


def test_the_growth_of_every_command_with_content_is_computed():
    update = TaskUpdate(content=b"u" * 10)
    assert growth_bytes(put(100, 3)) >= 300
    assert growth_bytes(UpdateTasks("t", ByIds([1, 2]), update)) == 20
    assert growth_bytes(Kick("t", 5, update=update)) == 50
    assert growth_bytes(Settle([Ack([1, 2], result=b"r" * 7, update=update)])) == 34
    assert growth_bytes(Settle([Ack([1, 2])])) == 0
    assert growth_bytes(Take(["t"])) == 0
    assert growth_bytes(ExecuteBatch([put(100, 3), Settle([Ack([1], result=b"r" * 7)])])) >= 307


def test_a_batch_is_limited_like_its_operations(memory):
    (refusal,) = memory.apply(2, [ExecuteBatch([put(30_000, 2), put(30_000, 2)])])
    assert refusal.reason is Reason.LIMIT_REACHED
    (done,) = memory.apply(2, [ExecuteBatch([put(30_000, 2), put(30_000, 1)])])
    assert [len(one.ids) for one in done.results] == [2, 1]
    (refusal,) = memory.apply(3, [ExecuteBatch([put(10_000, 1)])])
    assert refusal.reason is Reason.LIMIT_REACHED, "the reserve is not for new tasks"
    (taken,) = memory.apply(4, [Take(["t"])])
    ends = Settle([Ack([taken.tasks[0].token], result=b"r" * 10_000)])
    (done,) = memory.apply(5, [ExecuteBatch([ends])])
    assert not isinstance(done, Refusal), "commands that free memory may use the reserve"


def test_ids_of_later_leaderships_are_greater():
    first, second = origin_of(7), origin_of(8)
    assert first.task < second.task < 1 << 63
    assert second.task - first.task == 1 << SEQUENCE_BITS


@pytest.mark.parametrize("term", [1, (1 << TERM_BITS) - 1, 1 << TERM_BITS, (1 << 40) + 5])
def test_the_bits_of_the_cell_are_zero_in_every_term(term):
    last = origin_of(term).token + (1 << SEQUENCE_BITS) - 1
    assert (last & (1 << 62) - 1) >> CELL_BIT == 0
    assert last >> 62 == 1


def test_a_leadership_is_used_up_before_its_numbers_repeat(memory):
    assert not is_nearly_used_up(memory.highest_number())
    memory.apply(2, [put(10, 2)])
    assert memory.highest_number() == memory.queue.last_id("t"), "a task id"
    (taken,) = memory.apply(3, [Take(["t"])])
    assert memory.highest_number() >= taken.tasks[0].token
    end = origin_of(1).token + (1 << SEQUENCE_BITS)
    assert not is_nearly_used_up(end - SEQUENCE_RESERVE - 1)
    assert is_nearly_used_up(end - SEQUENCE_RESERVE)
    assert is_nearly_used_up(end - 1)
