"""A temporary tube answers every command as a replicated tube does."""

from __future__ import annotations

import asyncio
from dataclasses import fields, is_dataclass, replace

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from taskraft.v1 import task_pb2
from taskraft_service.command_codecs.put import new_task
from taskraft_service.entries.body_editor import edit_body
from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.leader.temporary import memory_queue
from taskraft_service.leader.temporary.command_router import CommandRouter
from taskraft_service.leader.temporary.temporary_tubes import TemporaryTubes
from taskraft_service.leader.waiters import Waiters
from taskraft_service.machine.queue_locator import QueueLocator, origin_of
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.tube_options import Durability, TubeKind, TubeOptions
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.groups import CancelGroup, CreateGroup, StartGroup
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    UpdateSchedule,
)
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import AttachSession, KeepSessions, OpenSession
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.transitions.updating import TaskUpdate
from taskraft_service.storage.memory import MemoryStore
from tests.service.queue.random_combinations import COMMON, composed_command
from tests.service.queue.random_commands import PASSED, any_command
from tests.service.queue.test_composed_properties import OPENING as COMPOSED_OPENING
from tests.service.queue.test_queue_properties import LIMITS as SMALL
from tests.service.queue.test_queue_properties import NEWEST, OPENING, plain

# All due deadlines fire in one entry, because the two sides have different numbers of entries.
LIMITS = replace(SMALL, steps_alone_max=99, steps_beside_max=99, steps_max=99)
DRIVERS = {NEWEST.name: NEWEST}
TERM = 3
SHIFT = origin_of(TERM).task
IDS = ("id", "ids", "task_id", "token", "tokens", "existing_id", "after_id", "continue_after_id")
"""Fields of commands and results that hold task ids and lease tokens."""
FAILED = range(1, 6)
"""Tasks whose failure records are compared."""
ELSEWHERE = (Startup, AttachSession, KeepSessions, OpenSession)
"""Rules that let sessions expire, which both sides see in different orders."""


def told(command):
    """Return a command with contents as clients encode them."""
    if isinstance(command, NewTask):
        payload = task_pb2.TaskSpec(payload=command.body)
        return replace(command, body=payload.SerializeToString())
    if isinstance(command, TaskUpdate):
        changes = task_pb2.TaskUpdate(payload=command.content)
        return replace(command, content=changes.SerializeToString())
    return each_part(command, told)


def each_part(value, change):
    if isinstance(value, (list, range)):
        return [change(one) for one in value]
    if isinstance(value, tuple):
        return tuple(change(one) for one in value)
    if is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **{name: change(part) for name, part in parts.items()})
    return value


def shifted(value, by):
    """Return a command or a result with its task ids and tokens shifted; 0 stays."""
    if isinstance(value, (list, range)):
        return [shifted(one, by) for one in value]
    if isinstance(value, tuple):
        return tuple(shifted(one, by) for one in value)
    if not is_dataclass(value):
        return value
    parts = {field.name: getattr(value, field.name) for field in fields(value)}
    return replace(
        value,
        **{
            name: moved(part, by) if name in IDS else shifted(part, by)
            for name, part in parts.items()
        },
    )


def moved(number, by):
    if isinstance(number, int):
        return number + by if number else 0
    return None if number is None else [moved(one, by) for one in number]


class Clock:
    time_ms = 0

    def now_ms(self):
        return self.time_ms


class Log:
    """Applies commands at once, like a cluster of one node."""

    def __init__(self, clock):
        self.clock = clock
        self.queue = Queue(MemoryStore(), LIMITS, new_task, edit_body, DRIVERS)
        self.listeners = []

    def submit(self, encoded, deadline=None):
        del deadline
        index, now_ms = self.queue.applied_index + 1, self.clock.now_ms()
        (result,) = self.queue.apply(index, now_ms, [encoded.command])
        for listener in self.listeners:
            listener(now_ms)
        future = asyncio.get_running_loop().create_future()
        future.set_result(AppliedCommand(index, now_ms, 0, result))
        return future

    def wake(self):
        pass


class Pair:
    """The same tubes in two kinds: replicated and temporary."""

    def __init__(self):
        self.clock = Clock()
        self.plain, self.log = Log(self.clock), Log(self.clock)
        self.queues = QueueLocator(lambda: self.log.queue)
        self.temporary = TemporaryTubes(
            self.queues, self.clock, Waiters(None), 1 << 30, DRIVERS, lambda _error: None
        )
        self.log.listeners.append(self.temporary.applied)
        self.router = CommandRouter(self.log, self.temporary)
        self.temporary.begin(TERM)

    async def do(self, passed, command):
        """Execute a command on both sides, and compare the results and the contents."""
        self.clock.time_ms += passed
        here = shifted(command, SHIFT)
        if isinstance(command, CreateTube):
            options = replace(command.options, durability=Durability.TEMPORARY)
            here = replace(here, options=options)
        expected = (await self.plain.submit(EncodedCommand(command, b"", b""))).result
        found = (await self.router.submit(EncodedCommand(here, b"", b""))).result
        if isinstance(command, (CreateTube, UpdateTube)):
            assert isinstance(found, Refusal) is isinstance(expected, Refusal)
        else:
            assert plain(shifted(found, -SHIFT)) == plain(shifted(expected, 0))

    def shown(self):
        """Yield each view of the temporary tubes with the same view of the replicated tubes."""
        # An entry without a command fires all due deadlines, also those that the last command
        # created.
        self.temporary.advance()
        queue = self.plain.queue
        queue.apply(queue.applied_index + 1, self.clock.now_ms(), [])
        for view in queue.tubes():
            name, there = view.name, self.queues.queue_of(view.name)
            yield (
                shifted(there.list_tasks(name, (), 0, 1_000), -SHIFT),
                shifted(queue.list_tasks(name, (), 0, 1_000), 0),
            )
            yield self.queues.statistics([name]), queue.statistics([name])
            yield there.ready_count(name), queue.ready_count(name)
            yield (
                shifted(there.failed_tasks(name, ByIds([SHIFT + n for n in FAILED])), -SHIFT),
                shifted(queue.failed_tasks(name, ByIds(FAILED)), 0),
            )
            yield self.log.queue.list_tasks(name, (), 0, 1), []


def makes_sense_here(command):
    if isinstance(command, UpdateTube):
        return "ttl_scope" not in command.names
    return not isinstance(command, ELSEWHERE)


STEPS = st.lists(st.tuples(PASSED, any_command().filter(makes_sense_here)), max_size=30)
BEGINNING = [command for command in OPENING if not isinstance(command, ELSEWHERE)] + [
    OpenSession(name, "", FOREVER_MS) for name in ("session-one", "session-two")
]

ABOVE = (CreateGroup, StartGroup, CancelGroup, CreateSchedule, UpdateSchedule, RunSchedule)
"""Rules on entities that temporary tubes do not support."""


def alone(command):
    """Return a command whose tasks have no group and no dependencies."""
    match command:
        case Put(tasks=tasks):
            free = [replace(task, group="", dependencies=None) for task in tasks]
            return replace(command, tasks=free)
        case ExecuteBatch(operations):
            return replace(command, operations=[*map(alone, operations)])
        case _:
            return command


def is_about_tubes(command):
    return not isinstance(command, (*ELSEWHERE, *ABOVE, DeleteSchedule))


COMPOSED_STEPS = st.lists(
    st.tuples(PASSED, (COMMON | composed_command()).filter(is_about_tubes).map(alone)),
    max_size=30,
)
COMPOSED_BEGINNING = [
    *filter(is_about_tubes, COMPOSED_OPENING),
    OpenSession("session", "", FOREVER_MS),
]


@pytest.fixture(autouse=True, scope="module")
def small():
    """Keep few tasks in memory and most of them in the store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_queue, "LIMITS", LIMITS)
        patch.setattr(memory_queue, "COLLECT_TASKS", 3)
        yield


# No shrinking: an example has few entries, each with many commands.
@settings(max_examples=40, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(steps=STEPS)
@example(
    steps=[
        (0, CreateTube("temp", TubeKind.FIFOTTL, TubeOptions())),
        (0, Put("temp", [NewTask(b"", 0)])),
        (0, Take(["temp"], ttr_ms=10)),
        (20, DropTube("temp")),
    ]
)
def test_a_temporary_tube_answers_like_a_replicated_one(steps):
    assert asyncio.run(differences(BEGINNING, steps)) == []


@settings(max_examples=40, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(steps=COMPOSED_STEPS)
@example(
    # No tube is named "absent".
    steps=[
        (20, ExecuteBatch([Move("line", ByIds([3]), "tried"), Move("absent", ByIds([4]), "tried")]))
    ]
)
def test_drivers_batches_and_subqueues_answer_like_in_a_replicated_one(steps):
    assert asyncio.run(differences(COMPOSED_BEGINNING, steps)) == []


async def differences(beginning, steps):
    """Execute commands on both sides; return the differences after the first differing step."""
    pair = Pair()
    for command in beginning:
        await pair.do(1, command)
    for passed, command in steps:
        await pair.do(passed, told(command))
        different = [each for each in pair.shown() if each[0] != each[1]]
        if different:
            return different
    return []
