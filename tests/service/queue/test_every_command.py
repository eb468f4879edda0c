"""Every command meets a task in every state, and follows the life-cycle table or a test here."""

from __future__ import annotations

from typing import get_args

import pytest

from taskraft_service.queue.entities.bulk_sweep import BulkAction, BulkRequest
from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.operations.audit import RecordAct
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.bulk_sweeps import (
    RunBulkSweep,
    StartBulkSweep,
    StopBulkSweep,
)
from taskraft_service.queue.operations.feed import CommitCursor, TrimFeed
from taskraft_service.queue.operations.groups import (
    CancelGroup,
    CreateGroup,
    SetEndTask,
    StartGroup,
)
from taskraft_service.queue.operations.leadership import (
    NoteCalls,
    NotedCalls,
    SetClusterVersion,
    SetWallOffset,
    Startup,
)
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.registry import Command
from taskraft_service.queue.operations.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    UpdateSchedule,
)
from taskraft_service.queue.operations.sessions import AttachSession, KeepSessions, OpenSession
from taskraft_service.queue.operations.settings import Configure
from taskraft_service.queue.operations.settlements import Settle, Settlement
from taskraft_service.queue.operations.tubes import CreateTube, DropTube
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from taskraft_service.queue.state.schedule_registry import ScheduleSpec
from tests.service.queue.entities.test_life_cycle import COMMANDS, SESSION, Stage

STATES = pytest.mark.parametrize("state", State, ids=lambda state: state.name)
SCHEDULE = ScheduleSpec("tube", "cron", spec=b"")
LEAVING = (
    CreateTube("third", TubeKind.FIFO, TubeOptions()),
    UpdateTube("tube", TubeOptions(concurrency=1), ["concurrency"]),
    Configure(ReplicatedSettings(failover_grace_ms=1)),
    OpenSession("another"),
    KeepSessions([SESSION]),
    AttachSession(SESSION, attached=True),
    AttachSession(SESSION, attached=False),
    CreateGroup("another"),
    SetEndTask("another"),
    CreateSchedule("daily", SCHEDULE, 5_000),
    UpdateSchedule("daily", SCHEDULE, 5_000),
    RunSchedule("daily", 1, [], 5_000, 6_000),
    DeleteSchedule("daily"),
    TrimFeed({0: 0}),
    NoteCalls([NotedCalls("tube", 1, 1, 1)]),
    StartBulkSweep(BulkRequest("tube", "", (99,), BulkAction.KICK, "", "", 1, "")),
    RunBulkSweep(1, 0, None),
    StopBulkSweep(1),
    RecordAct(ManagedAct("root", "", "AddMember", ("*",), "")),
    SetWallOffset(-1),
    SetClusterVersion(1, 2),
    CommitCursor("reader", "", {0: 0}, 1_000),
    Startup(2, 60_000),
)
"""Commands that concern no existing task."""
WALKED_HERE = {DropTube, CancelGroup}
OF_OTHERS = {Put, ExecuteBatch}
"""Commands that create tasks (``test_a_put_follows_the_table``) or consist of other commands."""


def test_every_command_is_tested():
    by_table = {type(command) for command in COMMANDS.values()}
    walked = by_table | {type(command) for command in LEAVING} | WALKED_HERE | OF_OTHERS
    assert set(get_args(Command)) == walked


def test_every_settlement_is_tested():
    settles = [command for command in COMMANDS.values() if isinstance(command, Settle)]
    walked = {type(settlement) for settle in settles for settlement in settle.settlements}
    assert set(get_args(Settlement)) == walked


@STATES
def test_commands_about_no_task_leave_a_task_unchanged(state):
    stage = Stage(state)
    before = stage.queue.get_tasks("tube", [1])
    for command in LEAVING:
        (result,) = stage.do(command)
        assert not isinstance(result, Refusal), command
        assert stage.queue.get_tasks("tube", [1]) == before, command


@STATES
@pytest.mark.parametrize("force", [False, True])
def test_a_drop_removes_the_tasks_unless_one_is_taken(state, force):
    stage = Stage(state)
    (result,) = stage.do(DropTube("tube", force=force))
    if state is State.TAKEN and not force:
        assert result.reason is Reason.TUBE_BUSY
        assert stage.state() is state
    else:
        assert stage.queue.tube("tube") is None
        assert result.count == (state is not State.GONE)


OPEN = (State.HELD, State.READY, State.DELAYED)
"""States of waiting members; a member that is BURIED or has ended has ended its group here."""


@STATES
@pytest.mark.parametrize("revoke", [False, True])
def test_a_cancelled_group_removes_waiting_members_and_with_revoke_taken_ones(state, revoke):
    if state is State.GONE:
        stage = Stage(state)
        stage.do(CreateGroup("group"), StartGroup("group"))
    else:
        stage = Stage(state, group="group")
    (result,) = stage.do(CancelGroup("group", revoke=revoke))
    if state in OPEN or (state is State.TAKEN and revoke):
        assert stage.state() is State.GONE
    elif state is State.TAKEN:
        assert stage.state() is State.TAKEN
        (task,) = stage.queue.get_tasks("tube", [1])
        assert task.extras.cancel_requested
    else:
        assert result.reason is Reason.WRONG_STATE
        assert stage.state() is state
