"""Settle leases: acknowledge, release, bury and touch taken tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from service.queue.acknowledge import acknowledge, stale, unsuitable_ack
from service.queue.commands import (
    FOREVER_MS,
    Ack,
    BuryTaken,
    ItemRefusal,
    Position,
    Reason,
    Refusal,
    Reject,
    Release,
    Settle,
    Settlement,
    SettleResult,
    Touch,
    TouchedLease,
    TtlPolicy,
)
from service.queue.endings import bury
from service.queue.instants import NEVER_MS, after, lengthened, postponed, shown
from service.queue.life_cycle import DELAYED, READY, TAKEN, EventKind

if TYPE_CHECKING:
    from service.queue.ledger import Ledger
    from service.queue.task import Task
    from service.queue.tube import Tube


def settle(ledger: Ledger, command: Settle) -> SettleResult | Refusal:
    """Settle leases in order; with ``atomic`` all or none."""
    if command.atomic:
        refusal = _first_refusal(ledger, command)
        if refusal is not None:
            return refusal
    refused: list[ItemRefusal] = []
    touched: list[TouchedLease] = []
    item = 0
    for settlement in command.settlements:
        if isinstance(settlement, Ack):
            acknowledge(ledger, settlement, item, refused)
        else:
            for place, token in enumerate(settlement.tokens, item):
                refusal = _settle_one(ledger, settlement, token, touched)
                if refusal is not None:
                    refused.append(ItemRefusal(place, refusal))
        item += len(settlement.tokens)
    return SettleResult(refused, touched)


def _settle_one(
    ledger: Ledger,
    settlement: Release | BuryTaken | Reject | Touch,
    token: int,
    touched: list[TouchedLease],
) -> Refusal | None:
    """Settle one lease; return why not, or None."""
    task = ledger.leases.get(token)
    if task is None:
        return stale(token)
    refusal = _unsuitable(task.tube, settlement)
    if refusal is not None:
        return refusal
    match settlement:
        case Release():
            _release(ledger, settlement, task)
        case BuryTaken() | Reject():
            _bury(ledger, settlement, task)
        case Touch():
            _touch(ledger, settlement, task)
            touched.append(TouchedLease(token, shown(task.lease_until_ms)))
        case _:
            assert_never(settlement)
    return None


def _first_refusal(ledger: Ledger, command: Settle) -> Refusal | None:
    """Return what an atomic request is refused for, or None.

    A lease that ends is gone for the rest.
    """
    ended: set[int] = set()
    item = 0
    for settlement in command.settlements:
        for place, token in enumerate(settlement.tokens, item):
            task = ledger.leases.get(token)
            refusal = (
                stale(token)
                if task is None or token in ended
                else _unsuitable(task.tube, settlement)
            )
            if refusal is not None:
                metadata = {**refusal.metadata, "item": str(place)}
                return Refusal(refusal.reason, refusal.message, metadata)
            if not isinstance(settlement, Touch):
                ended.add(token)
        item += len(settlement.tokens)
    return None


def _unsuitable(tube: Tube, settlement: Settlement) -> Refusal | None:
    """Return why a settlement is not for this kind of tube, or None."""
    if isinstance(settlement, Ack):
        return unsuitable_ack(tube, settlement)
    if tube.has_options or not isinstance(settlement, Release):
        return None
    wishes = {"delay_ms": (settlement.delay_ms or 0) > 0, "ttl_ms": settlement.ttl_ms is not None}
    for field, wished in wishes.items():
        if wished:
            return Refusal(
                Reason.INVALID_FIELD,
                f"{field} means nothing in a tube of kind {tube.kind.name}",
                {"field": field, "kind": tube.kind.name},
            )
    return None


def _release(ledger: Ledger, settlement: Release, task: Task) -> None:
    reason = ""
    if settlement.failure is not None:
        task.extras = replace(task.extras, failure=settlement.failure)
        reason = settlement.failure.type
    delay_ms = max(settlement.delay_ms or 0, 0)
    _renew_ttl(ledger, task, settlement, delay_ms)
    if settlement.position is Position.FRONT and delay_ms == 0:
        task.order = (task.tube.front_lane(), *task.order[1:])
    elif settlement.position is Position.BACK:
        task.order = (task.tube.back_lane(), *task.order[1:])
    if delay_ms > 0:
        task.visible_at_ms = after(ledger.now_ms, delay_ms)
    ledger.move(task, EventKind.RELEASE, DELAYED if delay_ms > 0 else READY, reason)
    if settlement.uncounted:
        task.attempt -= 1


def _renew_ttl(ledger: Ledger, task: Task, settlement: Release, delay_ms: int) -> None:
    """Do to the time to live what a release asks for."""
    policy = settlement.ttl_policy or task.tube.options.ttl_policy
    match policy:
        case TtlPolicy.ADD_DELAY:
            task.ttl_ms = lengthened(task.ttl_ms, delay_ms)
            task.expire_at_ms = postponed(task.expire_at_ms, delay_ms)
        case TtlPolicy.RESET:
            ttl_ms = task.tube.options.ttl_ms if settlement.ttl_ms is None else settlement.ttl_ms
            task.ttl_ms = lengthened(ttl_ms, delay_ms)
            task.expire_at_ms = after(ledger.now_ms, task.ttl_ms)
        case TtlPolicy.KEEP_DEADLINE:
            pass
        case _:
            assert_never(policy)


def _bury(ledger: Ledger, settlement: BuryTaken | Reject, task: Task) -> None:
    failure = settlement.failure
    bury(ledger, task, EventKind.BURY, failure, failure.type if failure is not None else "")


def _touch(ledger: Ledger, settlement: Touch, task: Task) -> None:
    """Prolong a lease: add to it, to its time to run and to live, or start its time to run anew.

    The two forms are tarantool/queue's ``touch`` and beanstalkd's. A lease that lives as long as
    its session stays so. Never shortens a lease.
    """
    increment_ms = settlement.increment_ms
    if increment_ms <= 0 and not settlement.restart:
        return
    ledger.touch_task(task)
    ledger.touch_tube(task.tube)
    label = task.session.label if task.session is not None else ""
    ledger.emit(task, EventKind.TOUCH, TAKEN, TAKEN, label, "")
    task.tube.counters.count(EventKind.TOUCH, TAKEN, TAKEN, 1)
    if increment_ms > 0:
        task.ttl_ms = lengthened(task.ttl_ms, increment_ms)
        task.ttr_ms = lengthened(task.ttr_ms, increment_ms)
        task.expire_at_ms = postponed(task.expire_at_ms, increment_ms)
        task.lease_until_ms = postponed(task.lease_until_ms, increment_ms)
    if settlement.restart and task.lease_until_ms < NEVER_MS:
        run_ms = task.ttr_ms
        if run_ms >= FOREVER_MS and task.session is None:
            run_ms = task.lease_until_ms - task.since_ms
        renewed_ms = min(after(ledger.now_ms, run_ms), task.expire_at_ms)
        task.lease_until_ms = max(task.lease_until_ms, renewed_ms)
    ledger.set_timer(task)
