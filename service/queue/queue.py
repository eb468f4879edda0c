"""The queue as its shell sees it: apply entries, collect writes, read.

One queue is one replica's state. It is driven from one thread. Equal entries give equal states:
nothing here depends on what happens to be in memory, or on when writes are collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from service.queue.answer_codec import (
    GroupBefore,
    ScheduleBefore,
    SessionBefore,
    SettingsBefore,
    TakenBefore,
    TubeBefore,
    decode,
)
from service.queue.clock import advance, next_deadline_ms
from service.queue.collect import collect
from service.queue.commands import (
    AttachSession,
    Batch,
    BatchResult,
    Bury,
    Cancel,
    CancelGroup,
    CancelResult,
    CloseSession,
    CommitCursor,
    Configure,
    CountResult,
    CreateGroup,
    CreateSchedule,
    CreateTube,
    Delete,
    DeleteSchedule,
    DropTube,
    GroupResult,
    KeepSessions,
    Kick,
    Move,
    NoteCalls,
    OpenSession,
    Put,
    PutResult,
    Reason,
    Refusal,
    ReleaseAll,
    Restart,
    RunSchedule,
    ScheduleResult,
    SessionResult,
    SettingsResult,
    Settle,
    SettleResult,
    Snatch,
    StartGroup,
    Startup,
    Switch,
    Take,
    TakeResult,
    TrimFeed,
    TruncateTube,
    TubeResult,
    UpdateSchedule,
    UpdateTasks,
    UpdateTube,
)
from service.queue.dependencies.settling import settle_dependents
from service.queue.driver import NO_DRIVERS
from service.queue.editor import unchanged
from service.queue.feed.consumers import commit_cursor
from service.queue.groups.operations import (
    cancel_group,
    create_group,
    forget_groups,
    settle_groups,
    start_group,
    sweep_groups,
)
from service.queue.opening import bare_task, open_ledger
from service.queue.operations.batch import execute_batch
from service.queue.operations.circulation import bury, delete, kick, release_all
from service.queue.operations.intervention import cancel, restart, snatch, switch
from service.queue.operations.moves import move_tasks
from service.queue.operations.put import put
from service.queue.operations.runs import answer_together, remember, runs
from service.queue.operations.settle import settle
from service.queue.operations.take import take
from service.queue.operations.update import update_tasks
from service.queue.orders.read_ahead import read_ahead
from service.queue.origin import BEGINNING, Origin
from service.queue.readers import Readers
from service.queue.schedules.operations import (
    create_schedule,
    delete_schedule,
    run_schedule,
    update_schedule,
)
from service.queue.sessions.operations import (
    attach_session,
    close_session,
    keep_sessions,
    note_calls,
    open_session,
    startup,
)
from service.queue.settings import configure
from service.queue.tasks.endings import remove_surplus
from service.queue.tubes.changes import update_tube
from service.queue.tubes.operations import clear_away, create_tube, drop_tube, truncate_tube

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from service.queue.commands import ChosenTasks, Command, NewTask, Result
    from service.queue.driver import Driver
    from service.queue.editor import Editor
    from service.queue.ledger import Ledger
    from service.queue.limits import Limits
    from service.queue.store import Store, Write


class Queue(Readers):
    """The replicated state machine of tubes, tasks and sessions."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        new_task: Callable[[bytes], NewTask] = bare_task,
        editor: Editor = unchanged,
        drivers: Mapping[str, Driver] = NO_DRIVERS,
        origin: Origin = BEGINNING,
    ) -> None:
        """Open the queue that ``store`` holds; an empty store is an empty queue.

        ``new_task`` makes a task of a stored TaskSpec, where the queue itself puts one: a pure
        function, the same on all replicas. So is ``editor``, which changes contents.
        ``drivers`` has the kinds of tubes that others have written, by name. ``origin`` is for an
        empty store: from where it counts.

        Raises:
            DriverMissing: a tube needs a driver that is not there; here, and when a command creates
                one, which stops the node.
        """
        super().__init__(open_ledger(store, limits, new_task, editor, drivers, origin))

    def apply(self, index: int, now_ms: int, commands: Sequence[Command]) -> list[Result]:
        """Apply one entry: let deadlines up to ``now_ms`` fire, then do the commands in order.

        ``index`` grows, ``now_ms`` does not go back. Returns one result per command. Never raises
        for well-typed commands; an exception is a defect, and the state is then undefined.
        """
        ledger = self._ledger
        assert index > ledger.index, f"entry {index} after {ledger.index}"
        ledger.index = index
        ledger.place = 0
        groups, dependents = ledger.groups, ledger.dependents
        dependents_max = ledger.limits.dependents_per_entry_max
        surplus_max = ledger.limits.removals_per_entry_max
        advance(ledger, now_ms)
        surplus_max -= remove_surplus(ledger, surplus_max)
        dependents_max -= settle_dependents(ledger, dependents_max)
        settle_groups(ledger)
        results: list[Result] = []
        for likeness, run in runs(commands):
            done = 0
            if likeness is not None and len(run) > 1:
                together = answer_together(ledger, run)
                results += together
                done = len(together)
            for command in run[done:] if done else run:
                results.append(_answer(ledger, command))
                if ledger.surplus:
                    surplus_max -= remove_surplus(ledger, surplus_max)
                if dependents.has_endings:
                    dependents_max -= settle_dependents(ledger, dependents_max)
                if groups.complete:
                    settle_groups(ledger)
        if ledger.removals:
            limits = ledger.limits
            clear_away(
                ledger, limits.removals_beside_max if commands else limits.removals_per_entry_max
            )
            settle_groups(ledger)
        sweep_groups(ledger)
        settle_dependents(ledger, dependents_max)
        forget_groups(ledger)
        ledger.failures.forget_old(now_ms, ledger.limits)
        return results

    @property
    def changed_tasks(self) -> int:
        """How many tasks the next batch of writes is about, at most."""
        return len(self._ledger.dirty_tasks)

    def collect_writes(self) -> Iterable[Write]:
        """Return what changed since the last call, to be written in one batch.

        The batch must be in the store before the next call of any method: from now on the queue
        reads there what it has let go of.
        """
        return collect(self._ledger)

    def read_ahead(self) -> None:
        """Read what will soon be taken; at the best after a batch was written. Changes nothing."""
        read_ahead(self._ledger)

    def next_deadline_ms(self) -> int | None:
        """Return when the leader must propose an entry without any command; None: not at all."""
        return next_deadline_ms(self._ledger)


def _answer(ledger: Ledger, command: Command) -> Result:
    """Do a command, unless its request id tells that it is a repetition."""
    request_id = command.request_id
    if not request_id:
        return _do(ledger, command)
    known = ledger.requests.find(request_id)
    if known is not None:
        request_hash, answer = known
        if request_hash != command.request_hash:
            return Refusal(
                Reason.REQUEST_ID_REUSED,
                "this request_id was used before with another request",
                {"request_id": request_id},
            )
        return _repeat(ledger, answer)
    result = _do(ledger, command)
    remember(ledger, command, result)
    return result


def _do(ledger: Ledger, command: Command) -> Result:  # noqa: C901, PLR0912 - one line per command
    match command:
        case Put():
            return put(ledger, command)
        case Take():
            return take(ledger, command)
        case Settle():
            return settle(ledger, command)
        case KeepSessions():
            return keep_sessions(ledger, command)
        case AttachSession():
            return attach_session(ledger, command)
        case (
            Kick()
            | Bury()
            | Delete()
            | Move()
            | UpdateTasks()
            | Snatch()
            | Restart()
            | Switch()
            | Cancel()
        ):
            return _change_chosen(ledger, command)
        case OpenSession():
            return open_session(ledger, command)
        case CloseSession():
            return close_session(ledger, command)
        case CreateTube():
            return create_tube(ledger, command)
        case DropTube():
            return drop_tube(ledger, command)
        case TruncateTube():
            return truncate_tube(ledger, command)
        case ReleaseAll():
            return release_all(ledger, command)
        case UpdateTube():
            return update_tube(ledger, command)
        case Configure():
            return configure(ledger, command)
        case Batch():
            return execute_batch(ledger, command)
        case CreateGroup():
            return create_group(ledger, command)
        case StartGroup():
            return start_group(ledger, command)
        case CancelGroup():
            return cancel_group(ledger, command)
        case CreateSchedule():
            return create_schedule(ledger, command)
        case UpdateSchedule():
            return update_schedule(ledger, command)
        case DeleteSchedule():
            return delete_schedule(ledger, command)
        case RunSchedule():
            return run_schedule(ledger, command)
        case Startup():
            return startup(ledger, command)
        case TrimFeed():
            return CountResult(ledger.feed.trim(command.low_seq))
        case CommitCursor():
            return commit_cursor(ledger, command)
        case NoteCalls():
            return note_calls(ledger, command)
        case _:
            assert_never(command)


def _change_chosen(ledger: Ledger, command: ChosenTasks) -> CountResult | CancelResult | Refusal:
    """Do a command that is about tasks which its caller chooses."""
    match command:
        case Kick():
            return kick(ledger, command)
        case Bury():
            return bury(ledger, command)
        case Delete():
            return delete(ledger, command)
        case Move():
            return move_tasks(ledger, command)
        case UpdateTasks():
            return update_tasks(ledger, command)
        case Snatch():
            return snatch(ledger, command)
        case Restart():
            return restart(ledger, command)
        case Switch():
            return switch(ledger, command)
        case Cancel():
            return cancel(ledger, command)
        case _:
            assert_never(command)


def _repeat(ledger: Ledger, record: bytes) -> Result:
    """Return the first answer again: valid leases only, tubes and sessions as they are now."""
    answer = decode(record)
    match answer:
        case PutResult() | SettleResult() | CountResult() | CancelResult() | BatchResult():
            return answer
        case TakenBefore(tokens):
            tasks = [ledger.leases[token] for token in tokens if token in ledger.leases]
            return TakeResult([task.view(ledger.body(task)) for task in tasks])
        case TubeBefore(name, existed):
            tube = ledger.tube(name)
            return tube if isinstance(tube, Refusal) else TubeResult(tube.view(), existed)
        case SessionBefore(session_id):
            session = ledger.session(session_id)
            return session if isinstance(session, Refusal) else SessionResult(session.view())
        case SettingsBefore():
            return SettingsResult(ledger.settings)
        case GroupBefore(name):
            group = ledger.groups.find(name)
            return group if isinstance(group, Refusal) else GroupResult(group.view())
        case ScheduleBefore(name):
            schedule = ledger.schedules.find(name)
            return schedule if isinstance(schedule, Refusal) else ScheduleResult(schedule.view())
        case _:
            assert_never(answer)
