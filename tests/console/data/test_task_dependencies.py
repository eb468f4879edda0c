"""The dependencies of a task: each task is read once, up to a limit."""

from taskraft import Task, errors
from taskraft.v1.task_pb2 import Task as TaskMessage
from taskraft_console.data.task_dependencies import DEPTH_MAX, TASKS_MAX, find_dependencies


class Tubes:
    """A client whose tasks wait for the tasks with the given ids."""

    def __init__(self, befores):
        self.befores, self.reads = befores, []

    def tube(self, _name):
        return self

    def task(self, number):
        message = TaskMessage(tube="t", id=number)
        for before in self.befores[number]:
            message.waits_for.add(tube="t", id=before)
        return Task(message)

    async def peek(self, number, **_):
        self.reads.append(number)
        if number not in self.befores:
            raise errors.TaskNotFound(f"there is no task {number}")
        return self.task(number)


async def test_each_task_is_read_once_and_a_missing_task_is_left_out():
    client = Tubes({1: [2, 3], 2: [4], 3: [4, 5], 4: []})
    found, is_whole = await find_dependencies(client, client.task(1), 1.0)
    assert ([one.id for one in found], is_whole) == ([2, 3, 4], True)
    assert sorted(client.reads) == [2, 3, 4, 5]


async def test_the_number_of_tasks_is_limited():
    client = Tubes({1: range(2, 102), **{number: [] for number in range(2, 102)}})
    found, is_whole = await find_dependencies(client, client.task(1), 1.0)
    assert (len(found), len(client.reads), is_whole) == (TASKS_MAX, TASKS_MAX, False)


async def test_the_length_of_a_chain_is_limited():
    client = Tubes({number: [number + 1] for number in range(1, 20)})
    found, is_whole = await find_dependencies(client, client.task(1), 1.0)
    assert (len(found), is_whole) == (DEPTH_MAX, False)
