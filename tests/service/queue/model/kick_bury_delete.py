"""Kicks, burials and deletions of the naive queue."""

from __future__ import annotations

from taskraft_service.queue.entities.filter import (
    AgeField,
    AgeIs,
    Disjunction,
    Negation,
    NumberField,
    NumberIs,
    Relation,
    StateIs,
    scanned_tasks,
)
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import CountResult, Reason
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.selection import ByFilter, ByKeys
from tests.service.queue.model.retrying import cause_of
from tests.service.queue.model.sessions import NEVER, later, longer
from tests.service.queue.model.subqueues import PLAIN_KINDS


class NaiveKickBuryDelete:
    """Commands on tasks without a lease."""

    def chosen(self, command, states, act, ignored=()):
        tube = self.tube(command.tube)
        if not tube:
            return Reason.TUBE_NOT_FOUND
        selector, rest = command.selector, 0
        if isinstance(selector, ByFilter):
            tasks, rest = self.matching(tube, selector, states)
        elif isinstance(selector, ByKeys):
            tasks = [self.find(tube, tube["keys"].get(key, 0)) for key in selector.keys]
        else:
            tasks = [self.find(tube, task_id) for task_id in selector.ids]
        count, refused = 0, []
        for item, task in enumerate(tasks):
            if not task or task["state"] is State.GONE:  # An earlier item may have ended the task.
                refused.append((item, Reason.TASK_NOT_FOUND))
            elif task["state"] in states:
                if (wrong := act(task)) is None:
                    count += 1
                else:
                    refused.append((item, wrong))
            elif task["state"] not in ignored:
                refused.append((item, Reason.WRONG_STATE))
        return CountResult(count, refused, rest)

    def matching(self, tube, selector, states):
        """Return the tasks that a filter finds, and the id behind which to continue."""
        tasks = sorted(self.of(tube, *State), key=lambda task: task["id"])
        tasks = [task for task in tasks if task["id"] > selector.after_id]
        found = []
        scan_max = scanned_tasks(self.scan_max, selector.filter)
        for looked_at, task in enumerate(tasks):
            if looked_at == scan_max or len(found) == selector.tasks_max:
                return found, tasks[looked_at - 1]["id"] if looked_at else selector.after_id
            if task["state"] in states and self.lets(selector.filter, task):
                found.append(task)
        return found, 0

    def lets(self, chosen, task):
        """Return whether a filter, of one of the generated kinds, matches a task."""
        match chosen:
            case None:
                return True
            case StateIs(state):
                return task["state"] is state
            case NumberIs(NumberField.ATTEMPT, Relation.ABOVE, number):
                return task["attempt"] > number
            case NumberIs(NumberField.CREATED, Relation.ABOVE, number):
                return task["created"] + self.wall_offset > number
            case AgeIs(AgeField.AGE, Relation.AT_LEAST, age):
                return self.now - task["created"] >= age
            case Negation(of):
                return not self.lets(of, task)
            case Disjunction(of):
                return any(self.lets(one, task) for one in of)
            case _:
                raise AssertionError(chosen)

    def do_kick(self, command: Kick):
        tube = self.tube(command.tube)
        if tube and command.delay_ms > 0 and tube["view"].kind in PLAIN_KINDS:
            return Reason.INVALID_FIELD
        if tube and (unfit := self.unfit_update(tube, command.update)):
            return unfit

        def kick(task):
            delayed = command.delay_ms > 0
            more = self.more(task, command.update)
            if full := self.too_big(tube, more, more):
                return full
            self.update(task, command.update)
            task["ttl"] = longer(task["ttl"], command.delay_ms)
            task["expire_at"] = later(task["expire_at"], command.delay_ms)
            self.move(task, EventKind.KICK, State.DELAYED if delayed else State.READY)
            task["visible_at"] = later(self.now, command.delay_ms) if delayed else NEVER
            return None

        if tube and command.selector is None:
            buried = self.of(tube, State.BURIED)
            buried.sort(key=lambda task: (task["rank"], task["id"]))
            for count, task in enumerate(buried[: command.count]):
                if full := kick(task):
                    return CountResult(count, [(count, full)])
            return CountResult(min(len(buried), command.count))

        def dig(task):
            full = kick(task)
            if not full:
                self.note(task, CountedOperation.DIG)
            return full

        return self.chosen(command, (State.BURIED,), dig)

    def do_bury(self, command: Bury):
        def bury(task):
            self.entomb(task, EventKind.BURY, command.failure, cause_of(command.failure))

        return self.chosen(command, (State.READY, State.DELAYED), bury, (State.BURIED,))

    def do_delete(self, command: Delete):
        def delete(task):
            self.move(task, EventKind.DELETE, State.GONE)

        return self.chosen(command, tuple(State), delete)
