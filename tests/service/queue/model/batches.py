"""Batches of the naive queue: executed in order, and undone if one operation is refused.

Nothing is predicted except the names in a batch; capacity is checked at the end.
"""

from __future__ import annotations

from copy import deepcopy

from taskraft_service.queue.entities.new_task import TaskReference
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.operations.batch import BatchResult, ExecuteBatch
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByFilter, ByIds, ByKeys
from taskraft_service.queue.operations.settlements import Settle


class NaiveBatches:
    """Executes a batch on the state itself, after a copy of the old state was made."""

    def do_executebatch(self, command: ExecuteBatch):
        """Answer every invalid batch with INVALID_FIELD."""
        if self.names_wrongly(command):
            return Reason.INVALID_FIELD
        before = deepcopy(self.__dict__)
        held = {tube["number"]: self.held_by(tube) for tube in self.tubes}
        self.owes_room = True
        placed = []
        results = [self.do_one(operation, placed) for operation in command.operations]
        self.owes_room = False
        wrong = any(isinstance(result, Reason) or result.refused for result in results)
        if wrong or any(self.has_outgrown(tube, held[tube["number"]]) for tube in self.tubes):
            self.__dict__ = before
            return Reason.INVALID_FIELD
        return BatchResult(results)

    def do_one(self, operation, placed):
        if not isinstance(operation, Put):
            return self.execute(operation)
        tube = self.tube(operation.tube)
        if tube and tube["view"].options.put_paused:
            return Reason.TUBE_PAUSED
        result = self.do_put(operation, owed=True, before=placed)
        if not isinstance(result, Reason):
            found = [TaskReference(operation.tube, task_id) for task_id in result.ids]
            placed += [one if one.id else None for one in found]
        return result

    def held_by(self, tube):
        bodies = [task["body"] for task in self.of(tube, *State)]
        return len(bodies), sum(map(len, bodies))

    def has_outgrown(self, tube, before):
        """Return whether a tube has grown beyond its capacity."""
        options, (tasks, size) = tube["view"].options, self.held_by(tube)
        comes, grows = tasks > before[0], size > before[1]
        too_many = comes and tasks > options.capacity_tasks > 0
        return too_many or ((comes or grows) and size > options.capacity_bytes > 0)

    def names_wrongly(self, command):
        """Return whether tasks are named twice, are both a dependency and named, or are missing."""
        named, awaited = [], []
        for operation in command.operations:
            if isinstance(operation, Put):
                for new in operation.tasks:
                    on = new.dependencies.on if new.dependencies else ()
                    for one in on:
                        tube = isinstance(one, TaskReference) and self.tube(one.tube)
                        awaited += [self.find(tube, one.id)] if tube else []
                    tube = self.tube(operation.tube)
                    named.append(self.keyed(tube, new.unique_key) if tube else None)
            elif isinstance(operation, Settle):
                tokens = [token for one in operation.settlements for token in one.tokens]
                named += map(self.holder, tokens)
            elif isinstance(operation.selector, (ByIds, ByKeys)):
                named += self.selected(operation)
            else:
                assert isinstance(operation.selector, (ByFilter, type(None)))
                return True
        places = [self.place(task) for task in named if task]
        waited_for = {self.place(task) for task in awaited if task}
        return len(set(places)) < len(places) or bool(waited_for & set(places))

    def selected(self, command):
        """Return the tasks that a command names by id or key, or None for each missing one."""
        tube, selector = self.tube(command.tube), command.selector
        if not tube:
            return []
        if isinstance(selector, ByIds):
            return [self.find(tube, task_id) for task_id in selector.ids]
        return [self.find(tube, tube["keys"].get(key, 0)) for key in selector.keys]
