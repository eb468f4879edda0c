"""Dependencies in the naive queue.

Each task has a unique object ``life`` until the task ends or is BURIED. A dependent has the
``life`` objects of its dependencies in ``waits``. ``ends`` are the ended and BURIED tasks that some
dependents still have to learn of.
"""

from __future__ import annotations

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.new_task import ItemReference, OnConflict, TaskReference
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.task_view import Awaited, Failure, OnDependencyFailure, Waiting
from tests.service.queue.model.counting import FINISHED
from tests.service.queue.model.sessions import NEVER, later


def new_life():
    """Return the object that represents a task until the task ends."""
    return {"founded": False}


class NaiveDependencies:
    """Dependents are found by a search of all tasks."""

    def resolved(self, new, earlier):
        """Return the dependencies of a new task, or the refusal.

        ``earlier`` holds the earlier items of the put.
        """
        found = []
        for one in new.dependencies.on if new.dependencies else ():
            reference = one
            if isinstance(one, ItemReference):
                reference = earlier[one.item] if 0 <= one.item < len(earlier) else None
            tube = self.tube(reference.tube) if reference else None
            is_new = isinstance(one, ItemReference)
            if not tube or not (is_new or self.find(tube, reference.id)):
                return Reason.DEPENDENCY_NOT_FOUND
            if reference not in found:
                found.append(reference)
        return found

    def wait_for(self, task, new, references, restarting):
        """Let a new task wait for its dependencies; the last BURIED one fails for all of them."""
        waits, buried = [], []
        for reference in references:
            other = self.find(self.tube(reference.tube), reference.id)
            if other["state"] is State.BURIED and reference not in restarting:
                buried = [(new_life(), reference.tube, reference.id)]
            elif other["state"] not in FINISHED or reference in restarting:
                other["life"]["founded"] = True
                waits.append((other["life"], reference.tube, reference.id))
        for life, tube, task_id in buried:
            waits.append((life, tube, task_id))
            self.ends.append((life, TaskOutcome.BURIED_OUT, f"{tube}/{task_id}"))
        if waits:
            task["waits"] = {"on": waits, "on_failure": new.dependencies.on_failure}
            self.wait_as(task, new)

    def wait_as(self, task, new):
        """Set the time from which a waiting task may be taken; the delay starts at that time."""
        delay = task["tube"]["view"].options.delay_ms if new.delay_ms is None else new.delay_ms
        task["waits"]["delay"] = max(delay, 0)
        task["visible_at"] = (
            NEVER if new.visible_at_ms is None else new.visible_at_ms - self.wall_offset
        )

    def restarting(self, tube, ids, met):
        """Return the ended and BURIED dependencies that a put of their key makes live again."""
        found = []
        for item, new in met:
            there = self.find(tube, ids[item])
            restarts = new.on_conflict is OnConflict.RESTART_IF_FINISHED
            replaces = new.on_conflict is OnConflict.REPLACE_IF_WAITING
            if there and (replaces or (restarts and there["state"] in FINISHED)):
                found.append(TaskReference(tube["name"], ids[item]))
        return found

    def waiting_view(self, task):
        waits = task["waits"]
        if not waits:
            return None
        awaited = tuple(Awaited(0, tube, task_id) for _, tube, task_id in waits["on"])
        return Waiting(awaited, waits["on_failure"], waits["delay"])

    def note_end(self, task, outcome):
        """Record the end, or the burial, of a task that has had dependents."""
        if outcome is TaskOutcome.NONE:
            return
        if task["life"]["founded"]:
            self.ends.append((task["life"], outcome, f"{task['tube']['name']}/{task['id']}"))
        task["life"] = new_life()

    def waiting_for(self, life):
        waiting = [
            task
            for task in (*self.tasks, *self.ruins)
            if task["waits"] and any(one is life for one, _, _ in task["waits"]["on"])
        ]
        return sorted(waiting, key=self.place)

    def settle_dependents(self, room):
        """Process the ends of tasks; ``room`` is the number of steps."""
        before = room
        while self.ends and room > 0:
            life, outcome, place = self.ends[0]
            waiting = self.waiting_for(life)
            if len(waiting) < room:
                del self.ends[0]
            for task in waiting[:room]:
                self.hear(task, life, outcome, place)
            room -= max(len(waiting[:room]), 1)
        self.steps -= before - room
        if room < before:
            self.settle_groups()

    def hear(self, task, life, outcome, place):
        waits = task["waits"]
        waits["on"] = [one for one in waits["on"] if one[0] is not life]
        if not any(task is other for other in self.tasks):
            return
        if outcome is not TaskOutcome.PROCESSED:
            message = f"{place}: {outcome.name}"
            task["failure"] = Failure("DEPENDENCY_FAILED", message)
            if waits["on_failure"] is OnDependencyFailure.CANCEL:
                cause = ("DEPENDENCY_FAILED", message, place, False)
                self.move(task, EventKind.DEPENDENCY_FAILED, State.GONE, cause)
                return
        if not waits["on"]:
            task["waits"] = None
            if waits["delay"] > 0:
                due = min(later(self.now, waits["delay"]), NEVER - 1)
                named = task["visible_at"] if task["visible_at"] < NEVER else due
                task["visible_at"] = max(due, named)
            self.let_go(task, EventKind.DEPENDENCIES_DONE)

    def let_go(self, task, kind):
        """Release a HELD task unless its group or a dependency still holds it."""
        if task["waits"] or self.group_holds(task):
            return
        hidden = self.now < task["visible_at"] < NEVER
        self.move(task, kind, State.DELAYED if hidden else State.READY)
