"""The naive queue's settlements."""

from __future__ import annotations

from service.queue.commands import (
    FOREVER_MS,
    Ack,
    BuryTaken,
    Keep,
    OnAck,
    Outcome,
    Position,
    Reason,
    Release,
    Settle,
    SettleResult,
    State,
    Touch,
    TouchedLease,
    TtlPolicy,
    TubeKind,
)
from service.queue.life_cycle import EventKind
from tests.service.queue.naive_sessions import NEVER, later, longer


class NaiveSettling:
    """What the naive queue does with leases."""

    def do_settle(self, command: Settle):  # noqa: C901 - all of a settle in one place
        lines = [(s, token) for s in command.settlements for token in s.tokens]
        if command.atomic:
            ended = set()
            for settlement, token in lines:
                refusal = self.unfit(settlement, token) or (
                    Reason.LEASE_STALE if token in ended else None
                )
                if refusal:
                    return refusal
                if not isinstance(settlement, Touch):
                    ended.add(token)
        refused, touched = [], []
        for item, (settlement, token) in enumerate(lines):
            refusal = self.unfit(settlement, token)
            if refusal:
                refused.append((item, refusal))
                continue
            task = self.holder(token)
            match settlement:
                case Ack():
                    self.ack(task, settlement)
                case Release():
                    self.release(task, settlement)
                case BuryTaken():
                    task["failure"] = settlement.failure or task["failure"]
                    task["times_buried"] += 1
                    reason = settlement.failure.type if settlement.failure else ""
                    self.move(task, EventKind.BURY, State.BURIED, reason)
                case Touch():
                    touched.append(self.touch(task, settlement))
        return SettleResult(refused, touched)

    def unfit(self, settlement, token):
        task = self.holder(token)
        if not task:
            return Reason.LEASE_STALE
        if isinstance(settlement, Ack):
            options = task["tube"]["view"].options
            state = self.kept_as(options, settlement)
            own = settlement.retain_ms
            endless = (options.retain_ms if own is None else own) >= FOREVER_MS
            wrong = own is not None if state is State.GONE else state is State.ZOMBIE and endless
            return Reason.INVALID_FIELD if wrong else None
        plain = task["tube"]["view"].kind is TubeKind.FIFO
        if not plain or not isinstance(settlement, Release):
            return None
        wished = settlement.delay_ms > 0 or settlement.ttl_ms is not None
        return Reason.INVALID_FIELD if wished else None

    def ack(self, task, ack):
        options = task["tube"]["view"].options
        state = self.kept_as(options, ack)
        if state is not State.GONE:
            retain = options.retain_ms if ack.retain_ms is None else ack.retain_ms
            task["retain_until"] = later(self.now, retain)
            task["failure"] = None
            task["result"], task["result_type"] = ack.result, ack.result_content_type
            task["outcome"] = Outcome.PROCESSED
        self.move(task, EventKind.ACK, state)

    def kept_as(self, options, ack):
        wished = {Keep.REMOVE: State.GONE, Keep.DONE: State.DONE, Keep.ZOMBIE: State.ZOMBIE}
        usual = {OnAck.REMOVE: State.GONE, OnAck.KEEP: State.DONE, OnAck.RETAIN: State.ZOMBIE}
        return wished.get(ack.keep, usual[options.on_ack])

    def release(self, task, release):
        reason = release.failure.type if release.failure else ""
        task["failure"] = release.failure or task["failure"]
        if release.ttl_policy is TtlPolicy.ADD_DELAY:
            task["ttl"] = longer(task["ttl"], release.delay_ms)
            task["expire_at"] = later(task["expire_at"], release.delay_ms)
        elif release.ttl_policy is TtlPolicy.RESET:
            fresh = task["tube"]["view"].options.ttl_ms
            fresh = fresh if release.ttl_ms is None else release.ttl_ms
            task["ttl"] = longer(fresh, release.delay_ms)
            task["expire_at"] = later(self.now, task["ttl"])
        if release.position is Position.BACK or (
            release.position is Position.FRONT and release.delay_ms == 0
        ):
            task["lane"] = self.lane(task["tube"], release.position)
        delayed = release.delay_ms > 0
        self.move(task, EventKind.RELEASE, State.DELAYED if delayed else State.READY, reason)
        task["visible_at"] = later(self.now, release.delay_ms) if delayed else NEVER
        task["attempt"] -= release.uncounted

    def touch(self, task, touch):
        if touch.increment_ms > 0 or touch.restart:
            self.event(task, EventKind.TOUCH, State.TAKEN, self.label(task), "")
        if touch.increment_ms > 0:
            task["ttl"] = longer(task["ttl"], touch.increment_ms)
            task["ttr"] = longer(task["ttr"], touch.increment_ms)
            task["expire_at"] = later(task["expire_at"], touch.increment_ms)
            task["lease_until"] = later(task["lease_until"], touch.increment_ms)
        if touch.restart and task["lease_until"] < NEVER:
            run = task["ttr"]
            if run >= FOREVER_MS and not task["session"]:
                run = task["lease_until"] - task["since"]
            until = min(later(self.now, run), task["expire_at"])
            task["lease_until"] = max(task["lease_until"], until)
        until = task["lease_until"]
        return TouchedLease(task["token"], 0 if until >= NEVER else until)

    def label(self, task):
        session = task["session"]
        return (session["name"] or session["id"][:8]) if session else ""
