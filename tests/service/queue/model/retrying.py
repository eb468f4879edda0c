"""Failed attempts in the naive queue."""

from __future__ import annotations

import hashlib
import struct

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.retry_policy import Exhausted, Position
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.task_view import AttemptFailure, Failure
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.entities.tube_options import TtlPolicy, TtlScope
from taskraft_service.queue.operations.settlements import Release
from tests.service.queue.model.sessions import NEVER, later, longer
from tests.service.queue.model.subqueues import PLAIN_KINDS


def shortening(task, most_percent_ms):
    """Return the jitter of a delay: a share that depends on the tube, the task and the attempt."""
    seed = struct.pack(">IQI", task["tube"]["number"], task["id"], task["attempt"])
    share = int.from_bytes(hashlib.blake2b(seed, digest_size=4).digest(), "big")
    return most_percent_ms * share // 100 >> 32


NO_CAUSE = ("", "", "", False)
"""Cause of an event that has none: its reason, message, target, and whether an attempt failed."""


def cause_of(failure, reason="", *, is_counted=False):
    """Return the cause of an event after a failure; ``reason`` stands for a missing class."""
    if failure is None:
        return (reason, "", "", is_counted)
    message = failure.message.encode()[:256].decode(errors="ignore")
    return (failure.type or reason, message, "", is_counted)


class NaiveRetrying:
    """Releases, retries, and the end of the last attempt."""

    def give_back(self, task, release):
        cause = cause_of(release.failure)
        self.fail(task, release.failure)
        if task["cancelled"]:
            self.put_back(task, EventKind.RELEASE, Release(()), 0, cause)
            return TaskOutcome.DELETED
        self.update(task, release.update)
        if release.move_to:
            delay = max(release.delay_ms or 0, 0)
            delay = self.renew(task, release, delay)
            self.move_away(task, self.tube(release.move_to), delay, release.position)
        elif release.uncounted or not release.failure:
            if not release.uncounted:
                self.take_position(task, release)
            self.put_back(task, EventKind.RELEASE, release, release.delay_ms or 0, cause)
            task["attempt"] -= release.uncounted
        else:
            return self.try_again(task, EventKind.RELEASE, release, release.failure)
        return None

    def fail(self, task, failure):
        if failure is not None:
            task["failure"] = failure
            message = failure.message.encode()[:512].decode(errors="ignore")
            latest = AttemptFailure(task["attempt"], self.now, failure.type, message, failure.fatal)
            task["failures"] = [*task["failures"], latest][-5:]

    def lose(self, task, kind, name, text):
        failure = Failure(name, text)
        self.fail(task, failure)
        options = task["tube"]["view"].options
        anew = (options.ttl_scope, options.ttl_policy) == (TtlScope.READY_ONLY, TtlPolicy.RESET)
        if task["expire_at"] <= self.now and not anew:
            self.move(task, kind, State.READY, cause_of(failure))
        elif task["cancelled"] or kind is EventKind.STARTUP_RELEASE:
            self.put_back(task, kind, Release(()), 0, cause_of(failure))
        else:
            self.try_again(task, kind, Release(()), failure)

    def come_back(self, task, kind):
        self.put_back(task, kind, Release(()), 0, NO_CAUSE)

    def try_again(self, task, kind, release, failure):
        policy = task["retry"] or task["tube"]["view"].options.retry
        fatal = release.failure and release.failure.fatal
        task["failed"] += 1
        self.note(task, CountedOperation.FAIL)
        if fatal or (policy.attempts_max and task["failed"] >= policy.attempts_max):
            cause = cause_of(failure, "ATTEMPTS_EXHAUSTED", is_counted=True)
            return self.give_up(task, kind, policy.exhausted, cause)
        delay = release.delay_ms
        if delay is None:
            growth = (policy.factor_percent / 100) ** (task["failed"] - 1)
            delay = int(min(policy.backoff_ms * growth, policy.backoff_ms_max))
            delay -= shortening(task, delay * policy.jitter_percent)
        self.take_position(task, release)
        self.put_back(task, kind, release, delay, cause_of(failure, is_counted=True))
        return None

    def take_position(self, task, release):
        position = (task["retry"] or task["tube"]["view"].options.retry).position
        if release.position is Position.IN_ORDER and position is not Position.IN_ORDER:
            task["lane"] = self.lane(task["tube"], position)

    def put_back(self, task, kind, release, delay, cause):
        delay = self.renew(task, release, delay)
        if release.position is Position.BACK:
            self.note(task, CountedOperation.REQUEUE)
        if release.position is Position.BACK or (release.position is Position.FRONT and delay == 0):
            task["lane"] = self.lane(task["tube"], release.position)
        self.move(task, kind, State.DELAYED if delay > 0 else State.READY, cause)
        task["visible_at"] = later(self.now, delay) if delay > 0 else NEVER

    def renew(self, task, release, delay):
        options = task["tube"]["view"].options
        policy = release.ttl_policy or options.ttl_policy
        if policy is TtlPolicy.ADD_DELAY:
            task["ttl"] = longer(task["ttl"], delay)
            task["expire_at"] = later(task["expire_at"], delay)
        elif policy is TtlPolicy.RESET:
            fresh = options.ttl_ms if release.ttl_ms is None else release.ttl_ms
            task["ttl"] = longer(fresh, delay)
            task["expire_at"] = later(self.now, task["ttl"])
        else:
            return min(delay, max(task["expire_at"] - self.now, 0))
        return delay

    def give_up(self, task, kind, exhausted, cause):
        if exhausted is Exhausted.REMOVE:
            self.move(task, kind, State.GONE, cause)
            return TaskOutcome.FAILED
        if exhausted is Exhausted.DEAD_LETTER:
            target = self.tube(task["tube"]["view"].options.dead_letter_tube)
            if target and not self.barred(target, task) and not self.has_no_room(target, [task]):
                self.move_away(task, target, 0, Position.IN_ORDER, (kind, cause))
                return TaskOutcome.FAILED
        self.entomb(task, kind, None, cause)
        return TaskOutcome.BURIED_OUT

    def entomb(self, task, kind, failure, cause):
        self.fail(task, failure)
        task["times_buried"] += 1
        self.move(task, kind, State.BURIED, cause)

    def surplus(self):
        """Return the tubes with too many BURIED tasks, the oldest first."""
        over = []
        for tube in sorted(self.tubes, key=lambda tube: tube["number"]):
            most = tube["view"].options.buried_max
            if 0 < most < len(self.of(tube, State.BURIED)):
                over.append(tube)
        return over

    def remove_surplus(self, room):
        """Remove BURIED tasks above the limits; ``room`` is the number of steps."""
        while room > 0 and (over := self.surplus()):
            buried = self.of(over[0], State.BURIED)
            first = min(buried, key=lambda task: (task["rank"], task["id"]))
            self.move(first, EventKind.DELETE, State.GONE, ("BURIED_MAX", "", "", False))
            self.steps -= 1
            room -= 1

    def more(self, task, update):
        """Return by how many bytes a change makes a task larger."""
        return len(update.content) - len(task["body"]) if update and update.content else 0

    def too_big(self, tube, more, least=0):
        """Return the refusal if a growth by ``more`` bytes exceeds the capacity of a tube.

        ``least`` is the growth of the last task in bytes; without it nothing is refused.
        """
        if self.owes_room:
            return None
        most = tube["view"].options.capacity_bytes
        held = sum(len(task["body"]) for task in self.of(tube, *State))
        return Reason.TUBE_FULL if least > 0 and more > 0 and 0 < most < held + more else None

    def no_room(self, target, tasks, more=0):
        return None if self.owes_room else self.has_no_room(target, tasks, more)

    def has_no_room(self, target, tasks, more=0):
        options = target["view"].options
        held = self.of(target, *State)
        count = len(held) + len(tasks)
        size = sum(len(task["body"]) for task in (*held, *tasks)) + more
        full = 0 < options.capacity_tasks < count or 0 < options.capacity_bytes < size
        return Reason.TUBE_FULL if full else None

    def update(self, task, update):
        if not update:
            return
        if update.content:
            task["body"] = update.content
        if update.priority is not None:
            task["priority"] = update.priority
            higher = task["tube"]["view"].options.higher_first
            task["rank"] = ~update.priority if higher else update.priority
        if update.ttl_ms is not None:
            task["ttl"] = update.ttl_ms
            task["expire_at"] = later(self.now, update.ttl_ms)
        if update.ttr_ms is not None:
            task["ttr"] = update.ttr_ms

    def unfit_update(self, tube, update):
        if not update:
            return None
        options = tube["view"].options
        wishes = (update.priority, update.delay_ms, update.ttl_ms, update.ttr_ms)
        if tube["view"].kind in PLAIN_KINDS and any(wish is not None for wish in wishes):
            return Reason.INVALID_FIELD
        if (
            update.priority is None
            or options.priority_min <= update.priority <= options.priority_max
        ):
            return None
        return Reason.INVALID_FIELD

    def unfit_retry(self, tube, policy):
        """Return the fault of a task's retry policy: its dead-letter tube must exist."""
        dead = tube["view"].options.dead_letter_tube
        if policy and policy.exhausted is Exhausted.DEAD_LETTER and not dead:
            return Reason.INVALID_FIELD
        return None
