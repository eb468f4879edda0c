"""Lease ready tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from service.queue.circulation import no_task, wrong_state
from service.queue.commands import FOREVER_MS, Reason, Refusal, Take, TakeResult, TaskView
from service.queue.instants import NEVER_MS, after
from service.queue.life_cycle import BURIED, DELAYED, GONE, READY, TAKEN, EventKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from service.queue.ledger import Ledger
    from service.queue.ordered_index import Entry
    from service.queue.session import Session
    from service.queue.task import Task
    from service.queue.tube import Tube

SESSIONLESS_TTR_MS: Final = 60_000
"""Time to run of a lease without a session where nothing else limits it."""
TAKE: Final = EventKind.TAKE


def take(ledger: Ledger, command: Take) -> TakeResult | Refusal:
    """Lease the first ready tasks of some tubes, or a chosen task of one."""
    tubes = []
    for name in dict.fromkeys(command.tubes):
        tube = ledger.tube(name)
        if isinstance(tube, Refusal):
            return tube
        if not tube.options.take_paused:
            tubes.append(tube)
    session = None
    if command.session_id:
        found = ledger.session(command.session_id)
        if isinstance(found, Refusal):
            return found
        session = found
    if command.task_id is not None:
        return _take_chosen(ledger, command, tubes, session)
    selection = _Selection(ledger, command, session)
    while tubes and selection.has_room():
        if selection.take_least(tubes[0] if len(tubes) == 1 else _first(ledger, tubes)):
            continue
        tubes = [tube for tube in tubes if tube.name not in selection.exhausted]
    return TakeResult(selection.finish())


def matches(task: Task, types: Sequence[str], priority_bound: int | None) -> bool:
    """Tell whether a filter lets a task through."""
    if types and task.type not in types:
        return False
    return priority_bound is None or task.order[1] <= task.tube.rank(priority_bound)


class _Selection:
    """One take in progress: what it has leased, and what its filter put aside for the moment."""

    def __init__(self, ledger: Ledger, command: Take, session: Session | None) -> None:
        self.ledger = ledger
        self.command = command
        self.session = session
        self.views: list[TaskView] = []
        self.bytes_left = command.bytes_max
        self.tasks_left = max(command.tasks_max, 0)
        if session is not None:
            room = ledger.limits.session_taken_max - len(session.held)
            self.tasks_left = min(self.tasks_left, room)
        self.is_filtered = bool(command.types) or command.priority_bound is not None
        self.aside: list[tuple[Tube, Entry]] = []
        self.exhausted: set[str] = set()

    def has_room(self) -> bool:
        """Tell whether more tasks may be leased."""
        return self.tasks_left > 0 and len(self.aside) < self.ledger.limits.filter_scan_max

    def take_least(self, tube: Tube) -> bool:
        """Look at the first ready task of a tube; return False when there is nothing more to find."""
        ledger = self.ledger
        order = tube.ready.pop_least()
        if order is None:
            self.exhausted.add(tube.name)
            return False
        task = tube.tasks.get(order[2]) or ledger.find(tube, order[2])
        assert task is not None, f"tube {tube.number} has no task {order[2]}"
        assert task.state is READY
        if task.expire_at_ms <= ledger.now_ms:
            ledger.move(task, EventKind.TTL_EXPIRED, GONE)
            return True
        if self.is_filtered and not matches(task, self.command.types, self.command.priority_bound):
            self.aside.append((tube, order))
            return True
        if task.payload_bytes > self.bytes_left and self.views:
            tube.ready.add(order)
            self.tasks_left = 0
            return False
        self.bytes_left -= task.payload_bytes
        self.tasks_left -= 1
        self.views.append(lease(ledger, task, self.session, self.command.ttr_ms))
        return True

    def finish(self) -> list[TaskView]:
        """Put back what the filter put aside, and return what was leased."""
        for tube, order in self.aside:
            tube.ready.add(order)
        return self.views


def _first(ledger: Ledger, tubes: list[Tube]) -> Tube:
    """Return the tube with the most urgent task: by lane, rank, age, then order of the request."""
    best: tuple[int, int, int] | None = None
    choice = tubes[0]
    for tube in tubes:
        order = tube.ready.least()
        if order is None:
            continue
        task = ledger.find(tube, order[2])
        assert task is not None
        urgency = (order[0], order[1], task.created_ms)
        if best is None or urgency < best:
            best, choice = urgency, tube
    return choice


def lease(ledger: Ledger, task: Task, session: Session | None, ttr_ms: int | None) -> TaskView:
    """Lease a task that has been taken out of its order, and return it as it is shown.

    A lease with a session ends with that, without one after a minute, unless a time to run says
    otherwise; and never after the time to live (tarantool/queue, fifottl).
    """
    now_ms = ledger.now_ms
    run_ms = task.ttr_ms if ttr_ms is None else ttr_ms
    if run_ms >= FOREVER_MS and session is None:
        run_ms = SESSIONLESS_TTR_MS
    task.attempt += 1
    tube = task.tube
    before = task.state
    ledger.touch_task(task)
    ledger.emit(task, TAKE, before, TAKEN, session.label if session is not None else "", "")
    ledger.token = token = ledger.token + 1
    task.token = token
    task.state = TAKEN
    task.since_ms = now_ms
    task.visible_at_ms = NEVER_MS
    until_ms = NEVER_MS if run_ms >= FOREVER_MS else after(now_ms, run_ms)
    task.lease_until_ms = until_ms if until_ms < task.expire_at_ms else task.expire_at_ms
    ledger.leases[token] = task
    if session is not None:
        task.session = session
        session.held[token] = task
    if task.timer is not None or task.lease_until_ms < NEVER_MS:
        ledger.set_timer(task)
    ledger.touch_tube(tube)
    tube.counters.count(TAKE, before, TAKEN, 1)
    return task.view(ledger.body(task))


def _take_chosen(
    ledger: Ledger, command: Take, tubes: list[Tube], session: Session | None
) -> TakeResult | Refusal:
    """Lease one task that the consumer names; it need not be ready."""
    assert command.task_id is not None
    if len(command.tubes) != 1:
        return Refusal(Reason.INVALID_FIELD, "task_id needs exactly one tube", {"field": "task_id"})
    if not tubes:  # paused
        return TakeResult([])
    task = ledger.find(tubes[0], command.task_id)
    if task is None:
        return no_task(command.task_id)
    if task.state not in (READY, DELAYED, BURIED):
        return wrong_state(task)
    if session is not None and len(session.held) >= ledger.limits.session_taken_max:
        return TakeResult([])
    ledger.leave_order(task)
    if task.state is not DELAYED and task.expire_at_ms <= ledger.now_ms:
        ledger.move(task, EventKind.TTL_EXPIRED, GONE)
        return no_task(task.id)
    return TakeResult([lease(ledger, task, session, command.ttr_ms)])
