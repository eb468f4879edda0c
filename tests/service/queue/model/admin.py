"""Administrative changes of the naive queue."""

from __future__ import annotations

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.operations.admin import Restart, Snatch, Switch
from taskraft_service.queue.operations.cancel import Cancel, CancelResult
from tests.service.queue.model.sessions import NEVER, later, longer
from tests.service.queue.model.subqueues import PLAIN_KINDS

FINISHED = (State.DONE, State.ZOMBIE)


class NaiveAdmin:
    """Snatches, restarts, switches and cancellations."""

    def plain(self, name, delay):
        tube = self.tube(name)
        return tube and delay > 0 and tube["view"].kind in PLAIN_KINDS

    def hide(self, task, delay):
        before = task["visible_at"] if task["state"] is State.DELAYED else self.now
        after = later(self.now, delay)
        if task["expire_at"] < NEVER:
            task["ttl"] = max(task["ttl"] + after - before, 0)
            task["expire_at"] = max(task["expire_at"] + after - before, self.now)
        return after

    def revive(self, task, delay):
        task["expire_at"] = later(self.now, longer(task["ttl"], delay))
        task.update(outcome=TaskOutcome.NONE, result=None, result_type="", retain_until=NEVER)
        task["progress"] = None
        task["cancelled"] = False
        return later(self.now, delay)

    def go(self, task, kind, state, visible_at):
        self.move(task, kind, state)
        if state is State.DELAYED:
            task["visible_at"] = visible_at

    def do_snatch(self, command: Snatch):
        if self.plain(command.tube, command.delay_ms):
            return Reason.INVALID_FIELD

        def snatch(task):
            delayed = command.delay_ms > 0
            if delayed:
                visible_at = self.hide(task, command.delay_ms)
                self.go(task, EventKind.SNATCH, State.DELAYED, visible_at)
            else:
                self.come_back(task, EventKind.SNATCH)

        return self.chosen(command, (State.TAKEN,), snatch)

    def do_restart(self, command: Restart):
        if self.plain(command.tube, command.delay_ms):
            return Reason.INVALID_FIELD

        def restart(task):
            if not self.reclaim(task):
                return Reason.KEY_TAKEN
            delayed = command.delay_ms > 0
            task["attempt"] = task["failed"] = 0
            visible_at = self.revive(task, command.delay_ms)
            self.go(task, EventKind.RESTART, State.DELAYED if delayed else State.READY, visible_at)
            return None

        states = (State.DELAYED, State.BURIED, *FINISHED)
        return self.chosen(command, states, restart, (State.READY, State.TAKEN))

    def do_switch(self, command: Switch):
        delay = command.duration_ms if command.state is State.DELAYED else 0
        if self.plain(command.tube, delay):
            return Reason.INVALID_FIELD
        unchanged = 0

        def switch(task):
            nonlocal unchanged
            if task["state"] is command.state and command.state in (
                State.READY,
                State.BURIED,
                State.DONE,
            ):
                unchanged += 1
                return None
            if command.state not in FINISHED and not self.reclaim(task):
                return Reason.KEY_TAKEN
            visible_at = NEVER
            if task["state"] in FINISHED and command.state not in FINISHED:
                visible_at = self.revive(task, delay)
            elif command.state is State.DELAYED:
                visible_at = self.hide(task, delay)
            if command.state in FINISHED:
                zombie = command.state is State.ZOMBIE
                task["retain_until"] = later(self.now, command.duration_ms) if zombie else NEVER
                task["outcome"] = TaskOutcome.PROCESSED
            task["times_buried"] += command.state is State.BURIED
            self.go(task, EventKind.SWITCH, command.state, visible_at)
            return None

        states = (State.READY, State.DELAYED, State.BURIED, *FINISHED)
        result = self.chosen(command, states, switch)
        if isinstance(result, Reason):
            return result
        return type(result)(result.count - unchanged, result.refused, result.continue_after_id)

    def do_cancel(self, command: Cancel):
        asked = removed = 0

        def cancel(task):
            nonlocal asked, removed
            if task["state"] is State.TAKEN:
                asked += self.ask_to_stop(task)
            else:
                removed += 1
                self.move(task, EventKind.DELETE, State.GONE)

        states = (State.READY, State.DELAYED, State.TAKEN, State.BURIED, State.HELD)
        result = self.chosen(command, states, cancel)
        if isinstance(result, Reason):
            return result
        return CancelResult(asked, removed, result.refused, result.continue_after_id)

    def ask_to_stop(self, task):
        """Set the cancel request of a task; return whether it is new."""
        if task["cancelled"]:
            return False
        label = task["session"]
        label = (label["name"] or label["id"][:8]) if label else ""
        self.event(task, EventKind.CANCEL, State.TAKEN, label)
        task["cancelled"] = True
        return True
