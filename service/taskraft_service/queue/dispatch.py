"""Do each command by its operation, and each request once.

The one place that knows which function does which command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from taskraft_service.queue.answer_codec import (
    GroupBefore,
    ScheduleBefore,
    SessionBefore,
    SettingsBefore,
    TakenBefore,
    TubeBefore,
    decode,
)
from taskraft_service.queue.commands.batch import BatchResult, ExecuteBatch
from taskraft_service.queue.commands.circulation import Bury, CountResult, Delete, Kick, Move
from taskraft_service.queue.commands.consumers import CommitCursor
from taskraft_service.queue.commands.groups import CancelGroup, CreateGroup, GroupResult, StartGroup
from taskraft_service.queue.commands.intervention import (
    Cancel,
    CancelResult,
    Restart,
    Snatch,
    Switch,
    UpdateTasks,
)
from taskraft_service.queue.commands.leadership import NoteCalls, Startup, TrimFeed
from taskraft_service.queue.commands.put import Put, PutResult
from taskraft_service.queue.commands.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    ScheduleResult,
    UpdateSchedule,
)
from taskraft_service.queue.commands.sessions import (
    AttachSession,
    CloseSession,
    KeepSessions,
    OpenSession,
    SessionResult,
)
from taskraft_service.queue.commands.settings import Configure, SettingsResult, UpdateTube
from taskraft_service.queue.commands.settle import Settle, SettleResult
from taskraft_service.queue.commands.take import Take, TakeResult
from taskraft_service.queue.commands.tubes import (
    CreateTube,
    DropTube,
    ReleaseAll,
    TruncateTube,
    TubeResult,
)
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.operations.batch import execute_batch
from taskraft_service.queue.operations.circulation import bury, delete, kick, release_all
from taskraft_service.queue.operations.commit_cursor import commit_cursor
from taskraft_service.queue.operations.groups import cancel_group, create_group, start_group
from taskraft_service.queue.operations.intervention import cancel, restart, snatch, switch
from taskraft_service.queue.operations.moves import move_tasks
from taskraft_service.queue.operations.put import put
from taskraft_service.queue.operations.runs import remember
from taskraft_service.queue.operations.schedules import (
    create_schedule,
    delete_schedule,
    run_schedule,
    update_schedule,
)
from taskraft_service.queue.operations.sessions import (
    attach_session,
    close_session,
    keep_sessions,
    note_calls,
    open_session,
    startup,
)
from taskraft_service.queue.operations.settings import configure
from taskraft_service.queue.operations.settle import settle
from taskraft_service.queue.operations.take import take
from taskraft_service.queue.operations.tubes import create_tube, drop_tube, truncate_tube
from taskraft_service.queue.operations.update import update_tasks
from taskraft_service.queue.operations.update_tube import update_tube

if TYPE_CHECKING:
    from taskraft_service.queue.commands.command import Administration, Command, Result
    from taskraft_service.queue.state.queue_state import QueueState


def answer(ledger: QueueState, command: Command) -> Result:
    """Do a command; a repetition, told by its request id, only gets the first answer again."""
    request_id = command.request_id
    if not request_id:
        return _do(ledger, command)
    known = ledger.requests.find(request_id)
    if known is not None:
        request_hash, record = known
        if request_hash != command.request_hash:
            return Refusal(
                Reason.REQUEST_ID_REUSED,
                "this request_id was used before with another request",
                {"request_id": request_id},
            )
        return _repeat(ledger, record)
    result = _do(ledger, command)
    remember(ledger, command, result)
    return result


def _do(ledger: QueueState, command: Command) -> Result:  # noqa: C901, PLR0912 - a table
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
        case OpenSession():
            return open_session(ledger, command)
        case CloseSession():
            return close_session(ledger, command)
        case ExecuteBatch():
            return execute_batch(ledger, command)
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
            return _administer(ledger, command)


def _administer(ledger: QueueState, command: Administration) -> Result:  # noqa: C901, PLR0912
    match command:
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


def _repeat(ledger: QueueState, record: bytes) -> Result:
    """Return the first answer again: valid leases only, tubes and sessions as they are now."""
    known = decode(record)
    match known:
        case PutResult() | SettleResult() | CountResult() | CancelResult() | BatchResult():
            return known
        case TakenBefore(tokens):
            tasks = [ledger.leases[token] for token in tokens if token in ledger.leases]
            return TakeResult([task.view(ledger.body(task)) for task in tasks])
        case TubeBefore(name, existed):
            tube = ledger.tubes.find(name)
            return tube if isinstance(tube, Refusal) else TubeResult(tube.view(), existed)
        case SessionBefore(session_id):
            session = ledger.sessions.find(session_id)
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
            assert_never(known)
