"""Define the commands that change the queue, and what each of them answers.

A command has been checked for form by the caller (limits, ranges, names); what depends on the state
is checked here and answered as a ``Refusal``, never raised. Times are milliseconds; ``None`` means
"as the tube says"; ``FOREVER_MS`` and more mean without limit.
"""

from __future__ import annotations

from typing import TypeAlias

from taskraft_service.queue.commands.batch import (
    BATCH_BRANCHES,
    Batch,
    BatchOperation,
    BatchOutcome,
    BatchResult,
)
from taskraft_service.queue.commands.circulation import (
    Bury,
    CountResult,
    Delete,
    Kick,
    Move,
)
from taskraft_service.queue.commands.consumers import CommitCursor, ConsumerView
from taskraft_service.queue.commands.dependencies import (
    Awaited,
    Dependencies,
    ItemReference,
    OnDependencyFailure,
    Reference,
    TaskReference,
    Waiting,
)
from taskraft_service.queue.commands.filter import (
    Filter,
)
from taskraft_service.queue.commands.groups import (
    CancelGroup,
    CreateGroup,
    GroupResult,
    GroupState,
    GroupTask,
    GroupView,
    StartGroup,
)
from taskraft_service.queue.commands.intervention import (
    Cancel,
    CancelResult,
    Restart,
    Snatch,
    Switch,
    UpdateTasks,
)
from taskraft_service.queue.commands.leadership import (
    NoteCalls,
    NotedCalls,
    Startup,
    StartupResult,
    TrimFeed,
)
from taskraft_service.queue.commands.options import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    Durability,
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
    TubeView,
)
from taskraft_service.queue.commands.position import Position
from taskraft_service.queue.commands.put import (
    AMONG_UNFINISHED,
    NewTask,
    OnConflict,
    Put,
    PutResult,
    UniqueAmong,
)
from taskraft_service.queue.commands.refusal import (
    ItemRefusal,
    Reason,
    Refusal,
)
from taskraft_service.queue.commands.retry import (
    BACKOFF_MS_MAX,
    NO_RETRY,
    Exhausted,
    RetryPolicy,
)
from taskraft_service.queue.commands.schedules import (
    CreateSchedule,
    DeleteSchedule,
    Overlap,
    RunSchedule,
    ScheduleOptions,
    ScheduleResult,
    ScheduleView,
    Slot,
    UpdateSchedule,
)
from taskraft_service.queue.commands.selection import (
    ByFilter,
    ByIds,
    ByKeys,
    Selector,
    at_most,
)
from taskraft_service.queue.commands.sessions import (
    AttachSession,
    CloseSession,
    KeepResult,
    KeepSessions,
    OpenSession,
    SessionResult,
    SessionView,
)
from taskraft_service.queue.commands.settings import (
    ClusterSettings,
    Configure,
    SettingsResult,
    UpdateTube,
)
from taskraft_service.queue.commands.settle import (
    SETTLEMENT_BRANCHES,
    Ack,
    BuryTaken,
    Keep,
    Reject,
    Release,
    Settle,
    Settlement,
    SettleResult,
    Touch,
    TouchedLease,
)
from taskraft_service.queue.commands.take import (
    Take,
    TakeResult,
)
from taskraft_service.queue.commands.task import (
    NO_EXTRAS,
    Extras,
    Failure,
    Outcome,
    Progress,
    State,
    TaskOrigin,
    TaskView,
)
from taskraft_service.queue.commands.times import (
    FOREVER_MS,
)
from taskraft_service.queue.commands.tubes import (
    CreateTube,
    DropTube,
    ReleaseAll,
    TruncateTube,
    TubeResult,
)
from taskraft_service.queue.commands.update import (
    TaskUpdate,
)

ChosenTasks: TypeAlias = (
    Kick | Bury | Delete | Move | UpdateTasks | Snatch | Restart | Switch | Cancel
)
"""What changes tasks that its caller chooses."""
SessionCommand: TypeAlias = OpenSession | KeepSessions | AttachSession | CloseSession
Administration: TypeAlias = (
    CreateTube
    | DropTube
    | TruncateTube
    | ReleaseAll
    | UpdateTube
    | Configure
    | CreateGroup
    | StartGroup
    | CancelGroup
    | CreateSchedule
    | UpdateSchedule
    | DeleteSchedule
    | RunSchedule
    | Startup
    | TrimFeed
    | NoteCalls
    | CommitCursor
)
"""What looks after all that tasks live in."""
Command: TypeAlias = Put | Take | Settle | ChosenTasks | Batch | SessionCommand | Administration

Result: TypeAlias = (
    PutResult
    | TakeResult
    | SettleResult
    | CountResult
    | CancelResult
    | TubeResult
    | SessionResult
    | KeepResult
    | BatchResult
    | GroupResult
    | ScheduleResult
    | SettingsResult
    | StartupResult
    | Refusal
)

__all__ = [
    "AMONG_UNFINISHED",
    "BACKOFF_MS_MAX",
    "BATCH_BRANCHES",
    "FOREVER_MS",
    "NO_EXTRAS",
    "NO_RETRY",
    "PRIORITY_MAX",
    "PRIORITY_MIN",
    "SETTLEMENT_BRANCHES",
    "Ack",
    "Administration",
    "AttachSession",
    "Awaited",
    "Batch",
    "BatchOperation",
    "BatchOutcome",
    "BatchResult",
    "Bury",
    "BuryTaken",
    "ByFilter",
    "ByIds",
    "ByKeys",
    "Cancel",
    "CancelGroup",
    "CancelResult",
    "ChosenTasks",
    "CloseSession",
    "ClusterSettings",
    "Command",
    "CommitCursor",
    "Configure",
    "ConsumerView",
    "CountResult",
    "CreateGroup",
    "CreateSchedule",
    "CreateTube",
    "Delete",
    "DeleteSchedule",
    "Dependencies",
    "DropTube",
    "Durability",
    "Exhausted",
    "Extras",
    "Failure",
    "Filter",
    "GroupResult",
    "GroupState",
    "GroupTask",
    "GroupView",
    "ItemReference",
    "ItemRefusal",
    "Keep",
    "KeepResult",
    "KeepSessions",
    "Kick",
    "Move",
    "NewTask",
    "NoteCalls",
    "NotedCalls",
    "OnAck",
    "OnConflict",
    "OnDependencyFailure",
    "OpenSession",
    "Outcome",
    "Overlap",
    "Position",
    "Progress",
    "Put",
    "PutResult",
    "Reason",
    "Reference",
    "Refusal",
    "Reject",
    "Release",
    "ReleaseAll",
    "Restart",
    "Result",
    "RetryPolicy",
    "RunSchedule",
    "ScheduleOptions",
    "ScheduleResult",
    "ScheduleView",
    "Selector",
    "SessionCommand",
    "SessionResult",
    "SessionView",
    "SettingsResult",
    "Settle",
    "SettleResult",
    "Settlement",
    "Slot",
    "Snatch",
    "StartGroup",
    "Startup",
    "StartupResult",
    "State",
    "Switch",
    "Take",
    "TakeResult",
    "TaskOrigin",
    "TaskReference",
    "TaskUpdate",
    "TaskView",
    "Touch",
    "TouchedLease",
    "TrimFeed",
    "TruncateTube",
    "TtlPolicy",
    "TtlScope",
    "TubeKind",
    "TubeOptions",
    "TubeResult",
    "TubeView",
    "UniqueAmong",
    "UpdateSchedule",
    "UpdateTasks",
    "UpdateTube",
    "Waiting",
    "at_most",
]
