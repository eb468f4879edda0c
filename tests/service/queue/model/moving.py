"""Moves between tubes in the naive queue."""

from __future__ import annotations

from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import CountResult, Reason
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import TaskOrigin
from taskraft_service.queue.operations.move import Move
from tests.service.queue.model.dependencies import new_life
from tests.service.queue.model.retrying import NO_CAUSE
from tests.service.queue.model.sessions import NEVER, later, longer
from tests.service.queue.model.subqueues import PLAIN_KINDS

FINISHED = (State.DONE, State.ZOMBIE)


class NaiveMoving:
    """Moves by holders, to dead-letter tubes, and of selected tasks."""

    def move_away(self, task, target, delay, position, burial=None, key=()):
        """Move a task; ``burial``: kind and cause of the event that used its attempts up."""
        kind, (reason, message, _, is_counted) = burial or (EventKind.MOVE, NO_CAUSE)
        options = target["view"].options
        plain = target["view"].kind in PLAIN_KINDS
        priority = task["priority"]
        if plain or not options.priority_min <= priority <= options.priority_max:
            priority = options.priority
        delay = 0 if plain else delay
        copy = {
            **task,
            "tube": target,
            "subqueue": task["subqueue"] if self.has_subqueues(target) else "",
            "id": target["next"],
            "lane": self.lane(target, position) if delay == 0 and position.value else 0,
            "priority": priority,
            "rank": ~priority if options.higher_first else priority,
            "state": State.GONE,
            "attempt": 0,
            "failed": 0,
            "since": self.now,
            "token": 0,
            "lease_until": NEVER,
            "lease_ms": 0,
            "session": None,
            "progress": None,
            "cancelled": False,
            "crosses": True,
            "key": key,
        }
        if burial:
            origin = TaskOrigin(task["tube"]["name"], task["id"], task["key"])
            copy.update(origin=origin, group=None, life=new_life())
        elif task["origin"] and task["origin"].tube == target["name"]:
            copy.update(origin=None)
        if key:
            target["keys"][key] = copy["id"]
        if burial:
            copy.update(ttl=options.ttl_ms, ttr=options.ttr_ms, retry=None)
            copy["expire_at"] = later(self.now, options.ttl_ms)
        elif plain:
            copy.update(ttl=FOREVER_MS, ttr=FOREVER_MS, expire_at=NEVER)
        target["next"] += 1
        task["crosses"] = True
        old = f"{task['tube']['name']}/{task['id']}"
        new = f"{target['name']}/{copy['id']}"
        self.move(task, kind, State.GONE, (reason, message, new, is_counted))
        self.tasks.append(copy)
        arriving = State.DELAYED if delay > 0 else State.READY
        self.move(copy, EventKind.MOVE, arriving, (reason, message, old, False))
        copy["crosses"] = False
        self.arrived(copy)
        if not burial:
            self.moved(task, copy)
        copy["visible_at"] = later(self.now, delay) if delay > 0 else NEVER

    def do_move(self, command: Move):
        tube = self.tube(command.tube)
        if not tube:
            return Reason.TUBE_NOT_FOUND
        if command.move_to:
            wrong = self.unfit_target(tube, self.tube(command.move_to), command)
            if wrong:
                return wrong
        stays = 0

        def move(task):
            nonlocal stays
            origin = task["origin"]
            if not command.move_to and not origin:
                stays += 1
                return None
            target = self.tube(command.move_to or origin.tube)
            home = origin and target and origin.tube == target["name"]
            key = origin.unique_key if home else task["key"]
            return self.unfit_move(task, target, command, key) or self.move_chosen(
                task, target, command, key
            )

        result = self.chosen(command, (State.READY, State.DELAYED, State.BURIED), move)
        return CountResult(result.count - stays, result.refused, result.continue_after_id)

    def unfit_target(self, tube, target, command):
        if not target:
            return Reason.TUBE_NOT_FOUND
        if target is tube:
            return Reason.INVALID_FIELD
        if target["view"].options.put_paused:
            return Reason.TUBE_PAUSED
        if target["view"].kind in PLAIN_KINDS and (command.delay_ms or 0) > 0:
            return Reason.INVALID_FIELD
        return self.unfit_update(target, command.update)

    def unfit_move(self, task, target, command, key):
        wrong = self.unfit_target(task["tube"], target, command)
        wrong = wrong or self.barred(target, task)
        if wrong:
            return wrong
        other = self.keyed(target, key)
        if other and other["state"] not in FINISHED:
            return Reason.KEY_TAKEN
        return self.no_room(target, [task], self.more(task, command.update))

    def move_chosen(self, task, target, command, key):
        options, update = target["view"].options, command.update
        delayed = task["state"] is State.DELAYED
        left = max(task["visible_at"] - self.now, 0) if delayed else 0
        delay = left if command.delay_ms is None else command.delay_ms
        renewed = command.renew_times or not command.move_to
        if renewed:
            task.update(ttl=options.ttl_ms, ttr=options.ttr_ms)
            task["expire_at"] = later(self.now, options.ttl_ms)
        self.update(task, update)
        if renewed or (update and update.ttl_ms is not None):
            task["ttl"] = longer(task["ttl"], delay)
            task["expire_at"] = later(task["expire_at"], delay)
        elif command.delay_ms is not None:
            self.hide(task, delay)
        self.move_away(task, target, delay, command.position, key=key)
