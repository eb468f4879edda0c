"""The end task of a group: refusals by its tube, and the signal to waiting consumers."""

from taskraft_service.queue.entities.group import GroupState, GroupTask
from taskraft_service.queue.entities.new_task import NewTask, OnConflict
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.groups import CancelGroup, CreateGroup, StartGroup
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.tubes import CreateTube, DropTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore


def urgent(body):
    """Return a task with a priority, which not every kind of tube supports."""
    return NewTask(body, len(body), priority=-5)


class Node:
    def __init__(self, **limits):
        self.queue = Queue(MemoryStore(), Limits(**limits), new_task=urgent)
        self.index = 0
        self.do(
            Startup(1, 0, "feed", 1),
            CreateTube("plain", TubeKind.FIFO, TubeOptions()),
            CreateTube("timed", TubeKind.FIFOTTL, TubeOptions()),
        )

    def do(self, *commands, now_ms=1_000):
        self.index += 1
        return self.queue.apply(self.index, now_ms, commands)

    def group(self, name):
        return self.queue.group(name)


def test_a_group_shows_why_its_end_task_was_refused():
    node = Node()
    (refused,) = node.do(CreateGroup("g", GroupTask("plain", b"end")))
    assert refused.reason is Reason.INVALID_FIELD, "an unsupported end task is refused at once"
    node.do(CreateGroup("g", GroupTask("timed", b"end")))
    node.do(DropTube("timed"), CreateTube("timed", TubeKind.FIFO, TubeOptions()), StartGroup("g"))
    group = node.group("g")
    assert group.state is GroupState.ENDED
    assert group.refusal.reason is Reason.INVALID_FIELD
    assert group.last_task_id == 0
    assert [*node.queue.woken_tubes()] == []


def test_an_end_task_follows_its_spec_and_signals_its_tube():
    node = Node()
    node.do(CreateGroup("g", None, GroupTask("timed", b"abort")), CancelGroup("g", revoke=False))
    assert node.group("g").last_task_id == 1
    assert node.group("g").refusal is None
    (task,) = node.queue.get_tasks("timed", [1])
    assert (task.priority, task.body) == (-5, b"abort")
    assert [*node.queue.woken_tubes()] == ["timed"]


def test_groups_that_end_together_put_their_tasks_in_the_order_of_their_creation():
    node = Node(steps_alone_max=1, steps_beside_max=1, steps_max=1)
    names = ("b", "a", "c")
    node.do(*(CreateGroup(name, GroupTask("timed", name.encode())) for name in names))
    node.do(*(StartGroup(name) for name in reversed(names)))
    bodies = [task.body for task in node.queue.get_tasks("timed", [1, 2, 3])]
    assert sorted(bodies) == [b"a", b"b", b"c"]
    assert [node.group(name).last_task_id for name in ("c", "a", "b")] == [1, 2, 3]


def test_starting_a_group_signals_the_tubes_of_its_tasks():
    node = Node()
    node.do(CreateGroup("g"), Put("timed", [NewTask(b"", 0, group="g")]))
    assert [*node.queue.woken_tubes()] == []
    node.do(StartGroup("g"))
    assert [*node.queue.woken_tubes()] == ["timed"]


def test_a_refused_group_removes_no_ended_group():
    node = Node(groups_max=1)
    node.do(CreateGroup("old"), StartGroup("old"))
    (refused,) = node.do(CreateGroup("new", GroupTask("plain", b"has a priority")))
    assert refused.reason is Reason.INVALID_FIELD
    assert node.queue.group("old").state is GroupState.ENDED
    node.do(CreateGroup("new", GroupTask("timed", b"has a priority")))
    assert node.queue.group("old") is None


def test_a_task_that_a_later_item_of_its_put_replaces_stays_in_its_group():
    node = Node()
    replacing = OnConflict.REPLACE_IF_WAITING
    first = NewTask(b"one", 3, unique_key=("k",), group="g")
    second = NewTask(b"two", 3, unique_key=("k",), on_conflict=replacing)
    node.do(CreateGroup("g"), Put("timed", [first, second]))
    (task,) = node.queue.list_tasks("timed", (), 0, 9)
    assert (task.body, task.extras.group) == (b"two", "g")
    assert node.queue.group("g").open == 1
