"""Aim random commands at tasks of the naive queue; most random numbers would find no task.

A random number selects among the suitable tasks. One number in eight, and every eighth entry, stays
unchanged, because commands about missing tasks must be answered too.
"""

from __future__ import annotations

from dataclasses import replace

from taskraft_service.queue.entities.group import GroupState
from taskraft_service.queue.entities.new_task import ItemReference, TaskReference
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.operations.admin import Restart, Snatch, Switch
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.cancel import Cancel
from taskraft_service.queue.operations.groups import CancelGroup, StartGroup
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick, ReleaseAll
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.registry import ManagedCommand
from taskraft_service.queue.operations.schedules import DeleteSchedule, RunSchedule, UpdateSchedule
from taskraft_service.queue.operations.selection import ByFilter, ByIds, ByKeys
from taskraft_service.queue.operations.sessions import AttachSession, CloseSession, KeepSessions
from taskraft_service.queue.operations.settlements import Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.state.schedule_registry import ScheduledTime
from tests.service.queue.model.subqueues import PLAIN_KINDS

UNTIMED = {
    "delay_ms": None,
    "ttl_ms": None,
    "ttr_ms": None,
    "visible_at_ms": None,
    "priority": None,
}
MISSES = 8
"""One number in this many stays unchanged, and so does one entry in this many."""
SUITABLE = {
    Kick: (State.BURIED,),
    Bury: (State.READY, State.DELAYED),
    Delete: tuple(State),
    Move: (State.READY, State.DELAYED, State.BURIED),
    Snatch: (State.TAKEN,),
    Restart: (State.DELAYED, State.BURIED, State.DONE, State.ZOMBIE),
    Switch: (State.READY, State.DELAYED, State.BURIED, State.DONE, State.ZOMBIE),
    Cancel: (State.READY, State.DELAYED, State.TAKEN, State.BURIED, State.HELD),
    UpdateTasks: (State.READY, State.DELAYED, State.BURIED, State.HELD),
    Take: (State.READY, State.DELAYED, State.BURIED),
}
"""States of the tasks that a command can change."""


def targeted(model, commands):
    """Return the commands of an entry, most of them targeted at entities of the model."""
    if model.index % MISSES == MISSES - 1:
        return commands
    targeting = Targeting(model)
    return [targeting.command(command) for command in commands]


class Targeting:
    """Prefers tasks that no command of the entry is targeted at; a batch uses only such tasks."""

    def __init__(self, model):
        self.model = model
        self.named = []
        self.in_batch = False

    def command(self, command):  # noqa: C901 - one line per command
        match command:
            case Put():
                return self.put(command)
            case Settle(settlements):
                return replace(command, settlements=[*map(self.settlement, settlements)])
            case Take(task_id=None):
                session = command.session_id and self.session_id(command.session_id)
                return replace(command, tubes=self.offering(command), session_id=session)
            case Take():
                chosen, ids = self.chosen(command, command.tubes[0], [command.task_id])
                return replace(command, tubes=[chosen], task_id=(ids or [1])[0])
            case ExecuteBatch(operations):
                return self.batch(command, operations)
            case ManagedCommand(managed):
                return replace(command, command=self.command(managed))
            case StartGroup() | CancelGroup():
                return self.group(command)
            case UpdateSchedule() | DeleteSchedule():
                return replace(command, name=self.name(command.name, self.model.schedules))
            case RunSchedule():
                return self.run(command)
            case KeepSessions(ids):
                return replace(command, session_ids=[self.session_id(one) for one in ids])
            case AttachSession(name) | CloseSession(name):
                return replace(command, session_id=self.session_id(name) or name)
            case ReleaseAll(name):
                return replace(command, name=self.with_tasks(name, (State.TAKEN,)))
        return self.selection(command) if type(command) in SUITABLE else command

    def batch(self, command, operations):
        self.in_batch = True
        operations = [self.command(operation) for operation in operations]
        self.in_batch = False
        return replace(command, operations=operations)

    # --------------------------------------------------------------------------------------- tasks

    def pick(self, number, tasks):
        """Return the task that a number selects, or None to keep the number unchanged."""
        fresh = [task for task in tasks if not any(task is other for other in self.named)]
        tasks = fresh if fresh or self.in_batch else tasks
        if not tasks or (number % MISSES == MISSES - 1 and not self.in_batch):
            return None
        task = tasks[number % len(tasks)]
        self.named.append(task)
        return task

    def settlement(self, settlement):
        """Aim a settlement at leases, at fewer if there are too few leases."""
        tokens = []
        for token in settlement.tokens:
            taken = [task for task in self.model.tasks if task["token"]]
            taken.sort(key=lambda task: task["token"])
            task = self.pick(token, taken)
            if task or token % MISSES == MISSES - 1:
                tokens.append(task["token"] if task else token)
        return replace(settlement, tokens=tokens)

    def selection(self, command):
        """Aim a command at tasks, through its selector or its number of tasks."""
        selector = command.selector
        if isinstance(selector, ByIds):
            tube, ids = self.chosen(command, command.tube, selector.ids)
            return replace(command, tube=tube, selector=ByIds(ids))
        tube = self.with_tasks(command.tube, SUITABLE[type(command)])
        if isinstance(selector, ByKeys):
            keys = sorted(self.model.tube(tube)["keys"]) if self.model.tube(tube) else []
            selector = ByKeys([key if key in keys else (keys or [key])[0] for key in selector.keys])
        elif isinstance(selector, ByFilter) and selector.after_id % MISSES:
            selector = replace(selector, after_id=0)
        return replace(command, tube=tube, selector=selector)

    def chosen(self, command, tube, ids):
        """Return the tube and the ids that a command is targeted at."""
        suitable = self.suitable(command)
        if not any(task["tube"]["name"] == tube for task in suitable):
            first = self.pick(ids[0] if ids else 0, suitable)
            tube = first["tube"]["name"] if first else tube
            self.named = [task for task in self.named if task is not first]
        there = [task for task in suitable if task["tube"]["name"] == tube]
        found = [(task_id, self.pick(task_id, there)) for task_id in ids]
        return tube, [
            task["id"] if task else task_id
            for task_id, task in found
            if task or not (self.in_batch and there)
        ]

    def suitable(self, command):
        """Return the tasks that a command can change; dead letters with an origin come first."""
        states = SUITABLE[type(command)]
        tasks = [task for task in self.model.tasks if task["state"] in states]
        tasks.sort(key=self.model.place)
        home = [task for task in tasks if task["origin"]]
        return home if isinstance(command, Move) and not command.move_to and home else tasks

    def with_tasks(self, name, states):
        """Return a tube with tasks in some states; the given tube if it has any."""
        tubes = [tube["name"] for tube in self.model.tubes if self.model.of(tube, *states)]
        return name if name in tubes else self.one_of(tubes, name)

    def one_of(self, names, name):
        """Return one of several names, or the given name if the list is empty."""
        return names[self.model.index % len(names)] if names else name

    def offering(self, take):
        """Return the tubes of a take; one of the tubes offers a task, if any tube does."""
        model, names = self.model, list(take.tubes)
        offering = [tube["name"] for tube in model.tubes if model.takeable(tube)]
        offering = [name for name in offering if model.offers(model.tube(name))]
        if take.weights or set(names) & set(offering):
            return names
        return [self.one_of(offering, names[0]), *names[1:]]

    # ------------------------------------------------------------------------------------ new tasks

    def put(self, put):
        """Aim a put at an existing tube, with tasks that the tube supports and valid references."""
        name = self.name(put.tube, self.model.tubes)
        tube = self.model.tube(name)
        if tube["view"].kind in PLAIN_KINDS:
            put = replace(put, tasks=[replace(new, **UNTIMED) for new in put.tasks])
        tasks = [self.new_task(place, new) for place, new in enumerate(put.tasks)]
        return replace(put, tube=name, tasks=tasks)

    def new_task(self, place, new):
        if new.group and not self.is_open(self.model.group(new.group)):
            opened = [group["name"] for group in self.model.groups if self.is_open(group)]
            new = replace(new, group=self.one_of(opened, ""))
        if not new.dependencies:
            return new
        there = sorted(self.model.tasks, key=self.model.place)
        on = tuple(self.reference(one, place, there) for one in new.dependencies.on)
        is_able = place or there
        return replace(new, dependencies=replace(new.dependencies, on=on) if is_able else None)

    def is_open(self, group):
        return group and group["state"] in (GroupState.HELD, GroupState.STARTED)

    def reference(self, reference, place, there):
        """Aim a dependency at an earlier item, otherwise at an existing task."""
        is_item = isinstance(reference, ItemReference)
        number = reference.item if is_item else reference.id
        if place and (is_item or not there):
            return ItemReference(number % place)
        if number % MISSES == MISSES - 1 or not there:
            return reference
        task = there[number % len(there)]
        return TaskReference(task["tube"]["name"], task["id"])

    # ------------------------------------------------------------------------------- by their names

    def name(self, name, there):
        """Return the name of an existing entity."""
        names = [one["name"] for one in there]
        return name if name in names else self.one_of(names, name)

    def group(self, command):
        states = (GroupState.HELD, GroupState.STARTED)[: 1 + isinstance(command, CancelGroup)]
        groups = [group for group in self.model.groups if group["state"] in states]
        return replace(command, name=self.name(command.name, groups))

    def run(self, run):
        """Run a schedule in its current version, for times after its last run."""
        name = self.name(run.name, self.model.schedules)
        one = self.model.schedule(name)
        if not one:
            return run
        done = one["done"]
        return replace(
            run,
            name=name,
            version=one["version"] + run.version - 1,
            slots=[ScheduledTime(done + slot.at_ms, slot.mark) for slot in run.slots],
            until_ms=done + run.until_ms,
            next_ms=done + run.next_ms,
        )

    def session_id(self, session_id):
        ids = [session["id"] for session in self.model.sessions]
        return session_id if session_id in ids else self.one_of(ids, "")
