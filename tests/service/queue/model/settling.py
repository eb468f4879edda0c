"""Settlements of the naive queue."""

from __future__ import annotations

from dataclasses import replace

from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.retry_policy import Exhausted
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.entities.tube_options import OnAck, TtlScope
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    GivenUpLease,
    Keep,
    Reject,
    Release,
    Settle,
    SettleResult,
    Touch,
    TouchedLease,
)
from tests.service.queue.model.retrying import cause_of
from tests.service.queue.model.sessions import NEVER, later, longer
from tests.service.queue.model.subqueues import PLAIN_KINDS


class NaiveSettling:
    """Operations on leases."""

    def do_settle(self, command: Settle):  # noqa: C901 - one line per settlement
        lines = [(s, token) for s in command.settlements for token in s.tokens]
        if command.atomic:
            refusal = self.unfit_together(lines)
            if refusal:
                return refusal
        refused, touched, given_up = [], [], []
        for item, (settlement, token) in enumerate(lines):
            refusal = None if command.atomic else self.unfit_together([(settlement, token)])
            if refusal:
                refused.append((item, refusal))
                continue
            task = self.holder(token)
            outcome = None
            match settlement:
                case Ack():
                    self.ack(task, settlement)
                case Release():
                    outcome = self.give_back(task, self.suitable_release(task, settlement))
                case BuryTaken():
                    self.update(task, settlement.update)
                    cause = cause_of(settlement.failure)
                    self.entomb(task, EventKind.BURY, settlement.failure, cause)
                case Reject():
                    outcome = self.reject(task, settlement)
                case Touch():
                    touched.append(self.touch(task, settlement))
            if outcome:
                given_up.append(GivenUpLease(token, outcome))
        return SettleResult(refused, touched, given_up)

    def suitable_release(self, task, release):
        """Return a release without the options that the tube of the task ignores."""
        place = self.tube(release.move_to) or task["tube"]
        if self.is_lenient(place) and place["view"].kind in PLAIN_KINDS:
            return replace(release, delay_ms=0, ttl_ms=None)
        return release

    def leaves(self, task, settlement):
        """Return whether a settlement is an acknowledgement that removes its task."""
        options = task["tube"]["view"].options
        return isinstance(settlement, Ack) and self.kept_as(options, settlement) is State.GONE

    def unfit(self, settlement, token):  # noqa: C901 - one line per rule
        """Return why a settlement cannot be applied, whatever the capacity of the tubes."""
        task = self.holder(token)
        if not task:
            return Reason.LEASE_STALE
        if isinstance(settlement, Ack):
            options = task["tube"]["view"].options
            state = self.kept_as(options, settlement)
            own = settlement.retain_ms
            period = options.retain_ms if own is None else own
            endless = not 0 < period < FOREVER_MS
            if state is State.GONE:
                return None if own is None else Reason.INVALID_FIELD
            if (state is State.ZOMBIE and endless) or self.unfit_update(
                task["tube"], settlement.update
            ):
                return Reason.INVALID_FIELD
            return None
        plain = task["tube"]["view"].kind in PLAIN_KINDS
        if isinstance(settlement, Touch) and plain and self.is_lenient(task["tube"]):
            return Reason.KIND_UNSUITABLE
        if isinstance(settlement, (Reject, Touch)):
            return None
        if isinstance(settlement, Release):
            wishes = (settlement.delay_ms or 0) > 0 or settlement.ttl_ms is not None
            place = self.tube(settlement.move_to) or task["tube"]
            plain = place["view"].kind in PLAIN_KINDS and not self.is_lenient(place)
            if (plain and wishes) or self.unfit_update(place, settlement.update):
                return Reason.INVALID_FIELD
            if settlement.move_to:
                target = self.tube(settlement.move_to)
                if not target:
                    return Reason.TUBE_NOT_FOUND
                if target is task["tube"]:
                    return Reason.INVALID_FIELD
                if barred := self.barred(target, task):
                    return barred
        place = self.tube(getattr(settlement, "move_to", "")) or task["tube"]
        return self.unfit_update(place, settlement.update)

    def unfit_together(self, lines):
        """Return why the settlements cannot all be applied, or None.

        A settlement may use the capacity that an earlier one frees. ``gains`` has the tasks and the
        bytes that each tube gains, by its number.
        """
        ended, gains = set(), {tube["number"]: [0, 0] for tube in self.tubes}
        for settlement, token in lines:
            stale = token in ended
            refusal = Reason.LEASE_STALE if stale else self.unfit(settlement, token)
            if refusal:
                return refusal
            self.shift(gains, self.holder(token), settlement)
            full = any(self.overflows(tube, *gains[tube["number"]]) for tube in self.tubes)
            if full and not self.owes_room:
                return Reason.TUBE_FULL
            if not isinstance(settlement, Touch):
                ended.add(token)
        return None

    def shift(self, gains, task, settlement):
        """Add what the tubes gain by a settlement."""
        is_kept = isinstance(settlement, (Touch, Reject))
        more = 0 if is_kept else self.more(task, settlement.update)
        own, place = task["tube"], self.place_after(gains, task, settlement, more)
        if place is own:
            gains[own["number"]][1] += more
            return
        gains[own["number"]][0] -= 1
        gains[own["number"]][1] -= len(task["body"])
        if place:
            gains[place["number"]][0] += 1
            gains[place["number"]][1] += len(task["body"]) + more

    def place_after(self, gains, task, settlement, more):
        """Return the tube of a task after its settlement; None: the task leaves the queue."""
        policy = task["retry"] or task["tube"]["view"].options.retry
        exhausted = None
        match settlement:
            case Ack() if self.leaves(task, settlement):
                return None
            case Release() if task["cancelled"]:
                return None
            case Release(move_to=name) if name:
                return self.tube(name)
            case Release(failure=failure, uncounted=False) if failure is not None:
                used_up = 0 < policy.attempts_max <= task["failed"] + 1
                exhausted = policy.exhausted if used_up or failure.fatal else None
            case Reject():
                exhausted = Exhausted.DEAD_LETTER
        if exhausted is Exhausted.REMOVE:
            return None
        target = self.tube(task["tube"]["view"].options.dead_letter_tube)
        if exhausted is not Exhausted.DEAD_LETTER or not target or self.barred(target, task):
            return task["tube"]
        tasks, size = gains[target["number"]]
        full = self.overflows(target, tasks + 1, size + len(task["body"]) + more)
        return task["tube"] if full else target

    def overflows(self, tube, tasks, size):
        """Return whether a tube that gains tasks or bytes exceeds its capacity."""
        options, held = tube["view"].options, self.of(tube, *State)
        held_bytes = sum(len(task["body"]) for task in held)
        return (0 < options.capacity_tasks < len(held) + tasks and tasks > 0) or (
            0 < options.capacity_bytes < held_bytes + size and (size > 0 or tasks > 0)
        )

    def reject(self, task, reject):
        self.fail(task, reject.failure)
        dead = task["tube"]["view"].options.dead_letter_tube
        to = Exhausted.DEAD_LETTER if dead else Exhausted.BURY
        return self.give_up(task, EventKind.BURY, to, cause_of(reject.failure))

    def ack(self, task, ack):
        options = task["tube"]["view"].options
        state = self.kept_as(options, ack)
        if state is not State.GONE:
            retain = options.retain_ms if ack.retain_ms is None else ack.retain_ms
            self.update(task, ack.update)
            self.note(task, CountedOperation.DONE)
            task["retain_until"] = later(self.now, retain)
            task["failure"], task["failures"] = None, []
            task["result"], task["result_type"] = ack.result, ack.result_content_type
            task["outcome"] = TaskOutcome.PROCESSED
        self.move(task, EventKind.ACK, state)

    def kept_as(self, options, ack):
        wished = {Keep.REMOVE: State.GONE, Keep.DONE: State.DONE, Keep.ZOMBIE: State.ZOMBIE}
        usual = {OnAck.REMOVE: State.GONE, OnAck.KEEP: State.DONE, OnAck.RETAIN: State.ZOMBIE}
        return wished.get(ack.keep, usual[options.on_ack])

    def touch(self, task, touch):
        if touch.increment_ms > 0 or touch.restart or touch.progress:
            task["progress"] = touch.progress or task["progress"]
            self.event(task, EventKind.TOUCH, State.TAKEN, self.label(task))
        if touch.increment_ms > 0:
            task["ttl"] = longer(task["ttl"], touch.increment_ms)
            task["ttr"] = longer(task["ttr"], touch.increment_ms)
            task["expire_at"] = later(task["expire_at"], touch.increment_ms)
            task["lease_until"] = later(task["lease_until"], touch.increment_ms)
            if task["lease_ms"]:
                task["lease_ms"] = longer(task["lease_ms"], touch.increment_ms)
        if touch.restart and task["lease_until"] < NEVER:
            run = task["ttr"]
            if run >= FOREVER_MS:
                run = task["lease_ms"] or (FOREVER_MS if task["session"] else 60_000)
            until = later(self.now, run)
            if task["tube"]["view"].options.ttl_scope is TtlScope.UNTAKEN:
                until = min(until, task["expire_at"])
            task["lease_until"] = max(task["lease_until"], until)
        until = task["lease_until"]
        return TouchedLease(task["token"], 0 if until >= NEVER else until, task["cancelled"])

    def label(self, task):
        session = task["session"]
        return (session["name"] or session["id"][:8]) if session else ""
