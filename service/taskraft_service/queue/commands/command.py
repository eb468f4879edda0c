"""List the commands that change the queue, and their results, as closed unions."""

from __future__ import annotations

from typing import TypeAlias

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
from taskraft_service.queue.commands.leadership import NoteCalls, Startup, StartupResult, TrimFeed
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
    KeepResult,
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
from taskraft_service.queue.entities.refusal import Refusal

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

Command: TypeAlias = (
    Put | Take | Settle | ChosenTasks | ExecuteBatch | SessionCommand | Administration
)

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
