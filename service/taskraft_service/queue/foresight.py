"""Foresee in which tubes an entry may make tasks ready, before it is applied.

The leader appends takes of waiting consumers to the entry that feeds them; this says in which tubes
to look for those. Too many cost a take in vain, too few one more round of consensus.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, assert_never

from taskraft_service.queue.commands.batch import ExecuteBatch
from taskraft_service.queue.commands.circulation import Bury, Delete, Kick, Move
from taskraft_service.queue.commands.consumers import CommitCursor
from taskraft_service.queue.commands.groups import CancelGroup, CreateGroup, StartGroup
from taskraft_service.queue.commands.intervention import (
    Cancel,
    Restart,
    Snatch,
    Switch,
    UpdateTasks,
)
from taskraft_service.queue.commands.leadership import NoteCalls, Startup, TrimFeed
from taskraft_service.queue.commands.put import Put
from taskraft_service.queue.commands.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    UpdateSchedule,
)
from taskraft_service.queue.commands.sessions import (
    AttachSession,
    CloseSession,
    KeepSessions,
    OpenSession,
)
from taskraft_service.queue.commands.settings import Configure, UpdateTube
from taskraft_service.queue.commands.settle import Reject, Release, Settle, Touch
from taskraft_service.queue.commands.take import Take
from taskraft_service.queue.commands.tubes import CreateTube, DropTube, ReleaseAll, TruncateTube
from taskraft_service.queue.entities.selector import at_most
from taskraft_service.queue.store.keys import SESSION_TIMER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from taskraft_service.queue.commands.command import (
        Administration,
        ChosenTasks,
        Command,
        SessionCommand,
    )
    from taskraft_service.queue.commands.settle import Settlement
    from taskraft_service.queue.entities.task import QueueTask
    from taskraft_service.queue.entities.tube import QueueTube
    from taskraft_service.queue.state.queue_state import QueueState

DEPENDENTS_MAX: Final = 16
"""So many of those that wait for a task are looked at to foresee where its end makes one ready."""


def foresee(ledger: QueueState, commands: Iterable[Command], now_ms: int) -> dict[str, int]:
    """Return in which tubes an entry may make tasks ready, in order of their names, and how many.

    Too many rather than too few: the proposer appends takes for them to the same entry. Looks
    at the commands and at the deadlines that are due at ``now_ms``. Of puts it is known how many
    tasks come to which tube, of all else only how many they are together.
    """
    put: dict[str, int] = {}
    names = set(_tubes_due(ledger, now_ms))
    others = 1
    for command in commands:
        match command:
            case Put(tube, new):
                put[tube] = put.get(tube, 0) + len(new)
            case ExecuteBatch(operations):
                for tube, tasks in foresee(ledger, operations, now_ms).items():
                    put[tube] = put.get(tube, 0) + tasks
            case _:
                fed, tasks = _fed(ledger, command)
                names.update(fed)
                others += tasks
    # In a fixed order: it decides the order of the takes.
    return {name: put.get(name, 0) or others for name in sorted(names.union(put))}


def _fed(  # noqa: C901 - a table
    ledger: QueueState, command: Take | Settle | ChosenTasks | SessionCommand | Administration
) -> tuple[Iterable[str], int]:
    """Return in which tubes a command may make tasks ready, and how many beside one."""
    match command:
        case Kick(tube, selector=selector):
            return (tube,), max(command.count, at_most(selector))
        case Snatch(tube) | Restart(tube) | Switch(tube) | UpdateTasks(tube):
            return (tube,), at_most(command.selector)
        case Move(tube, move_to=move_to):
            # Dead letters that go back wake their tubes themselves.
            there = (move_to,) if move_to else ()
            return (*_tubes_relieved(ledger, tube), *there), at_most(command.selector)
        case Delete(tube) | Bury(tube) | Cancel(tube):
            return _tubes_relieved(ledger, tube), 0
        case Settle(settlements):
            ends = (len(one.tokens) for one in settlements if not isinstance(one, Touch))
            return _tubes_settled(ledger, settlements), sum(ends)
        case ReleaseAll(tube) | UpdateTube(tube):
            return (tube,), 0
        case RunSchedule(name):
            return _tubes_scheduled(ledger, name), 0
        case CloseSession(session_id) | AttachSession(session_id, False):
            return _tubes_held(ledger, session_id), 0
        case CreateGroup() | StartGroup() | CancelGroup():  # they wake the tubes themselves
            return (), 0
        case (
            Take()
            | OpenSession()
            | KeepSessions()
            | AttachSession()
            | CreateTube()
            | DropTube()
            | TruncateTube()
            | Configure()
            | CreateSchedule()
            | UpdateSchedule()
            | DeleteSchedule()
            | Startup()
            | TrimFeed()
            | NoteCalls()
            | CommitCursor()
        ):
            return (), 0
        case _:
            assert_never(command)


def _tubes_relieved(ledger: QueueState, tube: str) -> Iterator[str]:
    """Yield a tube if the end of a task makes way there: it was taken, or stood before others."""
    found = ledger.tubes.get(tube)
    if found is not None and _makes_way(found):
        yield tube


def _tubes_scheduled(ledger: QueueState, name: str) -> Iterator[str]:
    """Yield where a schedule puts its task, and where the one before may have to go for it."""
    schedule = ledger.schedules.get(name)
    if schedule is not None:
        yield schedule.options.tube
        before = ledger.tubes.by_number.get(schedule.last[0])
        if before is not None:
            yield before.name


def _tubes_due(ledger: QueueState, now_ms: int) -> Iterator[str]:
    """Yield the names of the tubes that due deadlines are about, as far as memory knows."""
    least = ledger.timers.least()
    if least is None or least[0] > now_ms:
        return
    due = ledger.timers.in_memory_until((now_ms + 1,))
    for _, kind, tube_number, number in islice(due, ledger.limits.deadlines_per_entry_max):
        if kind == SESSION_TIMER:
            yield from _tubes_held(ledger, ledger.sessions.by_number[number].id)
        elif tube_number in ledger.tubes.by_number:
            yield from _and_dead_letters(ledger.tubes.by_number[tube_number])


def _tubes_settled(ledger: QueueState, settlements: Sequence[Settlement]) -> Iterator[str]:
    """Yield the tubes of leases whose end may make a task ready: itself, or the next one."""
    leases = ledger.leases
    for settlement in settlements:
        if isinstance(settlement, Touch):
            continue
        is_given_back = isinstance(settlement, (Release, Reject))
        if isinstance(settlement, Release) and settlement.move_to:
            yield settlement.move_to
        for token in settlement.tokens:
            task = leases.get(token)
            if task is None:
                continue
            if task.extras.dependents:
                yield from _tubes_of_dependents(ledger, task)
            if is_given_back:
                yield from _and_dead_letters(task.tube)
            elif _makes_way(task.tube):
                yield task.tube.name


def _tubes_of_dependents(ledger: QueueState, task: QueueTask) -> Iterator[str]:
    """Yield the tubes of those that wait for a task, as far as they are few."""
    dependents = ledger.dependents
    for number, _ in dependents.first_of(task.extras.dependents, DEPENDENTS_MAX):
        tube = ledger.tubes.by_number.get(number)
        if tube is not None:
            yield tube.name


def _tubes_held(ledger: QueueState, session_id: str) -> Iterator[str]:
    session = ledger.sessions.get(session_id)
    for task in session.held.values() if session is not None else ():
        yield from _and_dead_letters(task.tube)


def _makes_way(tube: QueueTube) -> bool:
    """Tell whether the end of a lease may let another task of the tube be taken."""
    return tube.ready.counts_leases or tube.options.concurrency > 0


def _and_dead_letters(tube: QueueTube) -> Iterator[str]:
    """Yield the names of the tubes where a task goes whose lease ends."""
    yield tube.name
    if tube.options.dead_letter_tube:
        yield tube.options.dead_letter_tube
