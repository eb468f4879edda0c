"""List the definitions of all commands, and look them up by the type of a command.

A new command needs three lines in this module: its import, its definition in ``DEFINITIONS`` and
its type in the union ``Command``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.entities.refusal import CountResult, Refusal
from taskraft_service.queue.operations import (
    admin,
    audit,
    batch,
    bulk_sweeps,
    cancel,
    feed,
    groups,
    kick_bury_delete,
    leadership,
    move,
    put,
    schedules,
    sessions,
    settings,
    settle,
    take,
    tubes,
    update_tasks,
    update_tube,
)
from taskraft_service.queue.operations.admin import Restart, Snatch, Switch
from taskraft_service.queue.operations.audit import RecordAct
from taskraft_service.queue.operations.batch import BatchResult, ExecuteBatch
from taskraft_service.queue.operations.bulk_sweeps import (
    BulkSweepResult,
    RunBulkSweep,
    StartBulkSweep,
    StopBulkSweep,
)
from taskraft_service.queue.operations.cancel import Cancel, CancelResult
from taskraft_service.queue.operations.command_definition import (
    AnswerCodec,
    CommandDefinition,
    ReadyPrediction,
)
from taskraft_service.queue.operations.feed import CommitCursor, TrimFeed
from taskraft_service.queue.operations.groups import (
    CancelGroup,
    CreateGroup,
    GroupResult,
    SetEndTask,
    StartGroup,
)
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick, ReleaseAll
from taskraft_service.queue.operations.leadership import (
    NoteCalls,
    SetClusterVersion,
    SetWallOffset,
    Startup,
    StartupResult,
)
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put, PutResult
from taskraft_service.queue.operations.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    ScheduleResult,
    UpdateSchedule,
)
from taskraft_service.queue.operations.sessions import (
    AttachSession,
    CloseSession,
    KeepResult,
    KeepSessions,
    OpenSession,
    SessionResult,
)
from taskraft_service.queue.operations.settings import Configure, SettingsResult
from taskraft_service.queue.operations.settlements import Settle, SettleResult
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube, TubeResult
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.values import value

ChosenTasks: TypeAlias = (
    Kick | Bury | Delete | Move | UpdateTasks | Snatch | Restart | Switch | Cancel
)
"""Commands on tasks that a selector names."""

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
    | SetEndTask
    | CreateSchedule
    | UpdateSchedule
    | DeleteSchedule
    | RunSchedule
    | Startup
    | TrimFeed
    | NoteCalls
    | SetWallOffset
    | SetClusterVersion
    | CommitCursor
    | RecordAct
    | StartBulkSweep
    | RunBulkSweep
    | StopBulkSweep
)
"""Commands on tubes, groups, schedules, sessions, settings, the change feed and the clock."""

Command: TypeAlias = (
    Put | Take | Settle | ChosenTasks | ExecuteBatch | SessionCommand | Administration
)


@value
class ManagedCommand:
    """A command in the log with its act of management."""

    command: Command
    act: ManagedAct


LoggedCommand: TypeAlias = Command | ManagedCommand
"""A command as an entry of the log holds it."""

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
    | BulkSweepResult
    | Refusal
)

DEFINITIONS: Final[Mapping[type, CommandDefinition[Any, Any]]] = {
    definition.command: definition
    for definition in (
        put.DEFINITION,
        take.DEFINITION,
        settle.DEFINITION,
        batch.DEFINITION,
        kick_bury_delete.KICK,
        kick_bury_delete.BURY,
        kick_bury_delete.DELETE,
        kick_bury_delete.RELEASE_ALL,
        move.DEFINITION,
        update_tasks.DEFINITION,
        *admin.DEFINITIONS,
        cancel.DEFINITION,
        *sessions.DEFINITIONS,
        *tubes.DEFINITIONS,
        update_tube.DEFINITION,
        settings.DEFINITION,
        *groups.DEFINITIONS,
        *schedules.DEFINITIONS,
        *leadership.DEFINITIONS,
        *feed.DEFINITIONS,
        audit.DEFINITION,
        *bulk_sweeps.DEFINITIONS,
    )
}
"""The definitions by the type of the command."""
EXECUTE: Final[Mapping[type, Callable[[QueueState, Any], Result]]] = {
    command: definition.execute for command, definition in DEFINITIONS.items()
}
"""The functions that execute commands, by type."""
ANSWERS: Final[Mapping[int, AnswerCodec[Any]]] = {
    kind: definition.answer
    for definition in DEFINITIONS.values()
    if definition.answer is not None
    for kind in definition.answer.kinds
}
"""The codecs of kept answers by the first byte of the record."""


def predict_ready_tubes(
    state: QueueState, commands: Iterable[Command], now_ms: int
) -> dict[str, int]:
    """Return the tubes in which an entry may make tasks ready, by name, with upper bounds.

    The entry is not applied yet. The tubes of deadlines that are due at ``now_ms`` are included.
    """
    prediction = ReadyPrediction(state, now_ms)
    for command in commands:
        DEFINITIONS[type(command)].predict(prediction, command)
    return prediction.counts()


def items_of(command: LoggedCommand) -> int:
    """Return how many tasks or sessions a command changes in its own entry, at most."""
    if isinstance(command, ManagedCommand):
        command = command.command
    return DEFINITIONS[type(command)].items(command)
