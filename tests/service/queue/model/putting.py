"""Puts of the naive queue."""

from __future__ import annotations

import dataclasses

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.new_task import OnConflict, TaskReference
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.operations.put import Put, PutResult
from taskraft_service.queue.transitions.updating import TaskUpdate
from tests.service.queue.model.dependencies import new_life
from tests.service.queue.model.sessions import NEVER, later, longer
from tests.service.queue.model.subqueues import PLAIN_KINDS

REPLACE = OnConflict.REPLACE_IF_WAITING


class NaivePutting:
    """Puts, item by item."""

    def do_put(self, command: Put, *, owed=False, before=()):  # noqa: C901, PLR0912 - all rules of a put in order
        tube = self.tube(command.tube)
        if not tube:
            return Reason.TUBE_NOT_FOUND
        if tube["view"].options.put_paused and not owed:
            return Reason.TUBE_PAUSED
        refused, accepted, ids, met, planned = [], [], [], [], {}
        first, grown = tube["next"], 0
        tasks = [self.suitable(tube, new) for new in command.tasks]
        for item, new in enumerate(tasks):
            wrong = self.unfit_new(tube, new) or self.unfit_to_join(new.group)
            wrong = wrong or self.unfit_for_driver(tube, new)
            earlier = [TaskReference(tube["name"], found) if found else None for found in ids]
            on = None if wrong else self.resolved(new, [*before, *earlier])
            wrong = on if isinstance(on, Reason) else wrong
            meets = None if wrong else self.meet(tube, new, planned)
            if isinstance(meets, Reason):
                wrong = meets
            elif meets and new.on_conflict is REPLACE:
                there = accepted[meets - first][0].body if meets >= first else None
                there = self.find(tube, meets)["body"] if there is None else there
                more = len(new.body) - len(there)
                size = sum(len(one.body) for one, _ in accepted) + grown + more
                wrong = None if owed else self.too_big(tube, size, more)
                if not wrong and meets < first:
                    grown += more
            elif not meets and not owed:
                sizes = [self.sized(one) for one, _ in accepted] + [self.sized(new)]
                wrong = wrong or self.no_room(tube, sizes, grown)
            ids.append(0 if wrong else meets or tube["next"] + len(accepted))
            if wrong:
                refused.append((item, wrong))
                continue
            if not meets or self.will_wait(tube, new, meets):
                planned[new.unique_key] = ids[-1]
            if not meets:
                accepted.append((new, on))
                continue
            met.append((item, new))
            if meets >= first and new.on_conflict is REPLACE:
                earlier, on = accepted[meets - first]
                stays = {"dependencies": earlier.dependencies, "group": earlier.group}
                accepted[meets - first] = (dataclasses.replace(new, **stays), on)
        if refused and command.atomic:
            return refused[0][1]
        restarting = self.restarting(tube, ids, met)
        for new, on in accepted:
            self.put(tube, new, on, restarting)
        for item, new in met:
            if ids[item] < first:
                self.settle_conflict(self.find(tube, ids[item]), new)
        return PutResult(ids, refused, [item for item, _ in met])

    def unfit_new(self, tube, new):
        """Return why a tube does not support a new task, apart from its capacity."""
        wishes = (new.priority, new.delay_ms, new.ttl_ms, new.ttr_ms, new.visible_at_ms)
        if tube["view"].kind in PLAIN_KINDS and any(wish is not None for wish in wishes):
            return Reason.INVALID_FIELD
        if new.subqueue and not self.has_subqueues(tube):
            return Reason.INVALID_FIELD
        wrong = self.unfit_update(tube, TaskUpdate(priority=new.priority))
        return wrong or self.unfit_retry(tube, new.retry)

    def sized(self, new):
        return {"body": new.body}

    def terms(self, tube, new):
        """Return the delay of a new task, and its effective options."""
        options = tube["view"].options
        priority = options.priority if new.priority is None else new.priority
        delay = options.delay_ms if new.delay_ms is None else new.delay_ms
        if new.visible_at_ms is not None:
            delay = max(delay, new.visible_at_ms - self.wall)
        ttl = longer(options.ttl_ms if new.ttl_ms is None else new.ttl_ms, max(delay, 0))
        lane = 0
        if delay <= 0 and new.position is not Position.IN_ORDER:
            lane = self.lane(tube, new.position)
        return delay, {
            "lane": lane,
            "priority": priority,
            "rank": ~priority if options.higher_first else priority,
            "body": new.body,
            "type": new.type,
            "subqueue": new.subqueue,
            "ttl": ttl,
            "ttr": options.ttr_ms if new.ttr_ms is None else new.ttr_ms,
            "expire_at": later(self.now, ttl),
            "retry": new.retry,
        }

    def unfit_stored(self, name, spec):
        """Return why an existing tube does not support a task that is put later, or None."""
        tube = self.tube(name)
        if not tube or self.is_lenient(tube):
            return None
        return self.unfit_new(tube, self.new_task(spec))

    def put(self, tube, new, on, restarting):
        delay, terms = self.terms(tube, new)
        task = {
            "tube": tube,
            "id": tube["next"],
            "key": new.unique_key,
            "origin": None,
            "state": State.GONE,
            "created": self.now,
            "since": self.now,
            "visible_at": NEVER,
            "lease_until": NEVER,
            "lease_ms": 0,
            "token": 0,
            "session": None,
            "attempt": 0,
            "failed": 0,
            "failure": None,
            "failures": [],
            "retain_until": NEVER,
            "result": None,
            "result_type": "",
            "outcome": TaskOutcome.NONE,
            "progress": None,
            "times_buried": 0,
            "cancelled": False,
            "crosses": False,
            "group": self.group(new.group) if new.group else None,
            "life": new_life(),
            "waits": None,
            **terms,
        }
        tube["next"] += 1
        self.tasks.append(task)
        if new.unique_key:
            tube["keys"][new.unique_key] = task["id"]
        if new.position is Position.FRONT:
            self.note(task, CountedOperation.URGENT)
        task["visible_at"] = later(self.now, delay) if delay > 0 else NEVER
        self.wait_for(task, new, on, restarting)
        if task["waits"] or self.group_holds(task):
            self.move(task, EventKind.PUT, State.HELD)
        else:
            self.move(task, EventKind.PUT, State.DELAYED if delay > 0 else State.READY)
        return task["id"]

    def lane(self, tube, position):
        if position is Position.FRONT:
            tube["front"] -= 1
            return tube["front"]
        tube["back"] += 1
        return tube["back"]
