"""Unique keys, and updates of tasks, in the naive queue."""

from __future__ import annotations

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.new_task import OnConflict
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from tests.service.queue.model.sessions import NEVER, later, longer

FINISHED = (State.DONE, State.ZOMBIE)


class NaiveKeys:
    """Puts with keys, and updates. ``keys`` of a tube maps each key to its task."""

    def keyed(self, tube, key):
        return self.find(tube, tube["keys"].get(key, 0)) if key else None

    def key_lost(self, task):
        if task["key"] and task["tube"]["keys"].get(task["key"]) == task["id"]:
            del task["tube"]["keys"][task["key"]]

    def reclaim(self, task):
        """Return whether a finished task may get its key back; if so, give the key back."""
        other = self.keyed(task["tube"], task["key"])
        if other and other is not task and other["state"] not in FINISHED:
            return False
        if task["key"]:
            task["tube"]["keys"][task["key"]] = task["id"]
        return True

    def meet(self, tube, new, planned):
        """Return the id of the existing task, a reason to refuse the new task, or None."""
        if not new.unique_key:
            return None
        how = new.on_conflict
        if new.unique_key in planned:
            if not {State.READY, State.DELAYED, State.HELD} & set(new.unique_among.states):
                return None
            return Reason.KEY_TAKEN if how is OnConflict.FAIL else planned[new.unique_key]
        there = self.keyed(tube, new.unique_key)
        if not there or later(there["created"], new.unique_among.ms) <= self.now:
            return None
        finished = there["state"] in FINISHED
        if finished and how is OnConflict.RESTART_IF_FINISHED:
            return there["id"]
        if there["state"] not in new.unique_among.states:
            return None
        busy = finished or there["state"] is State.TAKEN
        fails = how is OnConflict.FAIL or (busy and how is OnConflict.REPLACE_IF_WAITING)
        return Reason.KEY_TAKEN if fails else there["id"]

    def will_wait(self, tube, new, meets):
        """Return whether an existing task is HELD because of the new one."""
        if new.on_conflict is OnConflict.REPLACE_IF_WAITING:
            return True
        there = self.find(tube, meets)
        finished = there is not None and there["state"] in FINISHED
        return finished and new.on_conflict is OnConflict.RESTART_IF_FINISHED

    def settle_conflict(self, task, new):
        delay = max(new.delay_ms or 0, 0)
        if new.on_conflict is OnConflict.RESTART_IF_FINISHED and task["state"] in FINISHED:
            task["attempt"] = task["failed"] = 0
            visible_at = self.revive(task, delay)
            state = State.DELAYED if delay > 0 else State.READY
            self.go(task, EventKind.RESTART, state, visible_at)
        elif new.on_conflict is OnConflict.REPLACE_IF_WAITING:
            self.replace(task, new)

    def replace(self, task, new):
        delay, terms = self.terms(task["tube"], new)
        if task["state"] is State.BURIED:
            task["attempt"] = task["failed"] = 0
        task.update(terms)
        visible_at = later(self.now, delay) if delay > 0 else NEVER
        if task["state"] is not State.HELD:
            self.change(task, State.DELAYED if delay > 0 else State.READY, visible_at)
            return
        task["visible_at"] = visible_at
        if task["waits"]:
            self.wait_as(task, new)
        self.change(task, State.HELD, task["visible_at"])

    def change(self, task, state, visible_at):
        """Record a change of a task; the time since which the task has its state stays the same."""
        since, before, stays = task["since"], task["state"], state is task["state"]
        # The task is placed again. Its sub-queue is placed again too, if it offers no other task.
        task["state"] = State.GONE
        self.settle_turns(task["tube"])
        task["state"] = before
        self.go(task, EventKind.UPDATE, state, visible_at)
        if stays:
            task["since"] = since

    def do_updatetasks(self, command: UpdateTasks):
        update = command.update
        tube = self.tube(command.tube)
        if not tube:
            return Reason.TUBE_NOT_FOUND

        def act(task):
            more = self.more(task, update)
            if full := self.too_big(tube, more, more):
                return full
            state, visible_at = task["state"], task["visible_at"]
            if update.delay_ms is not None:
                visible_at = self.hide(task, update.delay_ms)
                state = State.DELAYED if update.delay_ms > 0 else State.READY
            self.update(task, update)
            if update.ttl_ms is not None and state is State.DELAYED and task["expire_at"] < NEVER:
                task["ttl"] = longer(task["ttl"], max(visible_at - self.now, 0))
                task["expire_at"] = later(self.now, task["ttl"])
            self.change(task, state, visible_at)
            return None

        states = (State.READY, State.DELAYED)
        if update.delay_ms is None:
            states += (State.BURIED, State.HELD)
        return self.unfit_update(tube, update) or self.chosen(command, states, act)
