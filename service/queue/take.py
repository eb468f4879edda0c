"""Lease ready tasks."""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from service.queue.circulation import no_task, wrong_state
from service.queue.commands import (
    FOREVER_MS,
    Outcome,
    Reason,
    Refusal,
    Take,
    TakeResult,
    TaskView,
    TtlScope,
)
from service.queue.endings import end
from service.queue.feed import TUBE_STRIDE
from service.queue.instants import NEVER_MS, after
from service.queue.ledger import BY_TUBE
from service.queue.life_cycle import BURIED, DELAYED, READY, TAKEN, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from service.queue.ledger import Ledger
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
    room = command.tasks_max
    if command.session_id:
        found = ledger.session(command.session_id)
        if isinstance(found, Refusal):
            return found
        session = found
        room = min(room, ledger.limits.session_taken_max - len(session.held))
    if command.task_id is not None:
        chosen = _chosen(ledger, command, tubes if room > 0 else [])
    elif command.types or command.priority_bound is not None:
        chosen = _filtered(ledger, command, tubes, room)
    else:
        chosen = _first(ledger, tubes, room, command.bytes_max)
    if isinstance(chosen, Refusal):
        return chosen
    views: list[TaskView] = []
    for tube, run in groupby(chosen, BY_TUBE):
        views += _lease(ledger, tube, list(run), session, command.ttr_ms)
    return TakeResult(views)


def matches(task: Task, types: Sequence[str], priority_bound: int | None) -> bool:
    """Tell whether a filter lets a task through."""
    if types and task.type not in types:
        return False
    return priority_bound is None or task.order[1] <= task.tube.rank(priority_bound)


def _first(ledger: Ledger, tubes: Sequence[Tube], room: int, bytes_max: int) -> list[Task]:
    """Take the most urgent tasks of some tubes out of their orders.

    A task whose time to live is over is ended instead: its deadline may have to wait its turn.
    """
    now_ms = ledger.now_ms
    tasks: list[Task] = []
    heads = _heads(ledger, tubes)
    while len(tasks) < room and heads:
        tube = tubes[heads[0][-1]]
        order = tube.ready.pop_least()
        if order is None:
            break
        if len(tubes) > 1:
            _replace_head(ledger, tubes, heads)
        task = tube.tasks.get(order[2]) or ledger.find(tube, order[2])
        assert task is not None, f"tube {tube.number} has no task {order[2]}"
        assert task.state is READY
        if task.expire_at_ms <= now_ms:
            end(ledger, task, EventKind.TTL_EXPIRED, Outcome.EXPIRED)
            continue
        bytes_max -= task.payload_bytes
        if bytes_max < 0 and tasks:
            tube.ready.add(order)
            break
        tasks.append(task)
    return tasks


def _heads(ledger: Ledger, tubes: Sequence[Tube]) -> list[tuple[int, ...]]:
    """Return a heap of the tubes' first tasks; the last number is the tube's place among them.

    The most urgent goes first: by lane, rank, age, then order of the request. One tube alone needs
    no comparison.
    """
    if len(tubes) == 1:
        return [(0,)]
    heads = [head for place in range(len(tubes)) if (head := _head(ledger, tubes, place))]
    heapify(heads)
    return heads


def _head(ledger: Ledger, tubes: Sequence[Tube], place: int) -> tuple[int, ...] | None:
    """Return how urgent the first task of a tube is, or None where there is none."""
    order = tubes[place].ready.least()
    if order is None:
        return None
    task = ledger.bring(tubes[place], order[2])
    return (order[0], order[1], task.created_ms, place)


def _replace_head(ledger: Ledger, tubes: Sequence[Tube], heads: list[tuple[int, ...]]) -> None:
    """Let the tube whose first task has just been taken out compete with its next one."""
    head = _head(ledger, tubes, heads[0][-1])
    if head is None:
        heappop(heads)
    else:
        heapreplace(heads, head)


def _filtered(ledger: Ledger, command: Take, tubes: Sequence[Tube], room: int) -> list[Task]:
    """Take the most urgent tasks that a filter lets through out of their orders.

    The others are put aside meanwhile; at most ``filter_scan_max`` are looked at.
    """
    types, bound, bytes_left = command.types, command.priority_bound, command.bytes_max
    tasks: list[Task] = []
    aside: list[Task] = []
    while len(tasks) < room and len(aside) < ledger.limits.filter_scan_max:
        found = _first(ledger, tubes, 1, bytes_left)
        if not found:
            break
        task = found[0]
        if not matches(task, types, bound):
            aside.append(task)
            continue
        if task.payload_bytes > bytes_left and tasks:
            aside.append(task)
            break
        bytes_left -= task.payload_bytes
        tasks.append(task)
    for task in aside:
        task.tube.ready.add(task.order)
        ledger.touch_tube(task.tube)  # so that its order learns of the next batch
    return tasks


def _chosen(ledger: Ledger, command: Take, tubes: Sequence[Tube]) -> list[Task] | Refusal:
    """Take a task that the consumer names out of its order; it need not be ready."""
    assert command.task_id is not None
    if len(command.tubes) != 1:
        return Refusal(Reason.INVALID_FIELD, "task_id needs exactly one tube", {"field": "task_id"})
    if not tubes:  # it is paused, or the session holds as much as it may
        return []
    task = ledger.find(tubes[0], command.task_id)
    if task is None:
        return no_task(command.task_id)
    if task.state not in (READY, DELAYED, BURIED):
        return wrong_state(task)
    ledger.leave_order(task)
    if tubes[0].ttl_ends[task.state] and task.expire_at_ms <= ledger.now_ms:
        end(ledger, task, EventKind.TTL_EXPIRED, Outcome.EXPIRED)
        return no_task(task.id)
    return [task]


def _lease(
    ledger: Ledger,
    tube: Tube,
    run: Sequence[Task],
    session: Session | None,
    ttr_ms: int | None,
) -> Iterator[TaskView]:
    """Lease tasks of one tube that are out of their order; yield them as they are shown.

    A lease with a session ends with that, without one after a minute, unless a time to run says
    otherwise; in the scope UNTAKEN never after the time to live (tarantool/queue, fifottl). The
    hot path of consumers. All tasks of a run come from one state.
    """
    now_ms, index, place, token = ledger.now_ms, ledger.index, ledger.place, ledger.token
    appends = ledger.feed.appends
    partitions = len(appends)
    salt = tube.number * TUBE_STRIDE
    name, leases = tube.name, ledger.leases
    label = session.label if session is not None else ""
    before = run[0].state
    is_bounded = tube.options.ttl_scope is TtlScope.UNTAKEN
    ledger.touch_tube(tube)
    tube.counters.count(TAKE, before, TAKEN, len(run))
    for task in run:
        if not task.dirty:
            ledger.touch_task(task)
        assert task.state is before
        task_id = task.id
        task.attempt += 1
        appends[(salt + task_id) % partitions](
            (
                index,
                place,
                now_ms,
                name,
                task_id,
                TAKE,
                before,
                TAKEN,
                task.attempt,
                task.priority,
                task.created_ms,
                task.since_ms,
                task.subqueue,
                label,
                "",
                task.type,
                task.payload_bytes,
            )
        )
        place += 1
        token += 1
        task.token = token
        task.state = TAKEN
        task.since_ms = now_ms
        task.visible_at_ms = NEVER_MS
        run_ms = task.ttr_ms if ttr_ms is None else ttr_ms
        if session is not None:
            task.session = session
            session.held[token] = task
        elif run_ms >= FOREVER_MS:
            run_ms = SESSIONLESS_TTR_MS
        if run_ms < FOREVER_MS or task.expire_at_ms < NEVER_MS:
            task.lease_until_ms = after(now_ms, run_ms)
            if is_bounded and task.expire_at_ms < task.lease_until_ms:
                task.lease_until_ms = task.expire_at_ms
            ledger.set_timer(task)
        elif task.timer is not None:
            ledger.set_timer(task)
        leases[token] = task
        yield task.view(task.body if task.body is not None else ledger.body(task))
    ledger.place = place
    ledger.token = token
