"""Each command says how many tasks it changes at most, because an entry has a limit for them."""

import pytest

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.operations.admin import Restart, Snatch
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.registry import items_of
from taskraft_service.queue.operations.selection import SCAN_ITEMS, ByFilter, ByIds
from taskraft_service.queue.operations.sessions import CloseSession, KeepSessions
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube

THREE = ByIds([1, 2, 3])


@pytest.mark.parametrize(
    ("command", "items"),
    [
        (Put("a", [NewTask(b"", 0)] * 4), 4),
        (Take(["a"], tasks_max=7), 7),
        (Take(["a"] * 1_000, tasks_max=7), 50),
        (Settle([Ack([1, 2]), Ack([3])]), 3),
        (Kick("a", count=9), 9),
        (Kick("a", selector=THREE), 3),
        (Bury("a", THREE), 3),
        (Delete("a", THREE), 3),
        (Delete("a", ByFilter(None, 10)), SCAN_ITEMS),
        (Delete("a", ByFilter(None, SCAN_ITEMS + 1)), SCAN_ITEMS + 1),
        (Snatch("a", THREE), 3),
        (Restart("a", THREE), 3),
        (KeepSessions(["x", "y"]), 2),
        (CloseSession("x"), 1),
        (CreateTube("a", TubeKind.FIFO, TubeOptions()), 5),
        (DropTube("a"), 5),
        (TruncateTube("a"), 5),
        (ExecuteBatch([Delete("a", THREE), Kick("a", count=9)]), 12),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_command_says_how_many_tasks_it_changes(command, items):
    assert items_of(command) == items
