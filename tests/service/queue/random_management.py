"""Generate random management commands: acts, bulk sweeps, feed cursors, trims and versions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from taskraft_service.queue.entities.bulk_sweep import BulkAction, BulkRequest
from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.operations.admin import Restart
from taskraft_service.queue.operations.audit import RecordAct
from taskraft_service.queue.operations.bulk_sweeps import (
    RunBulkSweep,
    StartBulkSweep,
    StopBulkSweep,
)
from taskraft_service.queue.operations.feed import CommitCursor, TrimFeed
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.leadership import SetClusterVersion
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.registry import ManagedCommand
from taskraft_service.queue.operations.selection import ByFilter, ByIds
from tests.service.queue.random_commands import FILTERS, IDS, TUBES, any_command

ACTS = st.builds(
    ManagedAct,
    st.sampled_from(("", "root")),
    st.sampled_from(("", "ipv4:127.0.0.1:1")),
    st.sampled_from(("DropTube", "AddMember")),
    st.sampled_from(((), ("*",), ("mail", "kept"))),
    st.sampled_from(("", "why")),
)
NUMBERS = st.integers(0, 5)
SWEPT = TUBES | st.sampled_from(("mail", "tried", "missing"))
SELECTORS = st.one_of(
    st.builds(ByIds, st.lists(IDS, min_size=1, max_size=3)),
    *[st.builds(ByFilter, FILTERS, st.integers(1, 3))] * 2,
)
CHANGES = st.one_of(
    st.builds(Kick, TUBES, st.integers(0, 3), st.none() | SELECTORS),
    st.builds(Restart, TUBES, SELECTORS),
    st.builds(Bury, TUBES, SELECTORS, st.just(Failure("", "why", False))),
    st.builds(Delete, TUBES, SELECTORS),
    st.builds(Move, TUBES, SELECTORS, SWEPT),
)
SWEEPS = st.builds(
    BulkRequest,
    SWEPT,
    st.just(""),
    st.sampled_from(((), (), (1, 2, 3, 99))),
    st.sampled_from(BulkAction),
    st.sampled_from(("mail", "dead", "missing")),
    st.just("why"),
    st.just(100),
    st.just("root"),
)
POSITIONS = st.dictionaries(st.integers(0, 3), st.sampled_from((0, 1, 3, 9, 99)), max_size=3)
MANAGEMENT = st.one_of(
    st.builds(RecordAct, ACTS),
    st.builds(ManagedCommand, any_command(), ACTS),
    st.builds(ManagedCommand, st.builds(StartBulkSweep, SWEEPS), ACTS),
    *[st.builds(StartBulkSweep, SWEEPS)] * 2,
    *[st.builds(RunBulkSweep, NUMBERS, st.sampled_from((0, 0, 0, 1)), CHANGES)] * 3,
    st.builds(RunBulkSweep, NUMBERS, st.just(0), st.none(), st.sampled_from(("", "not allowed"))),
    st.builds(StopBulkSweep, NUMBERS),
    st.builds(
        CommitCursor,
        st.sampled_from(("a", "b", "c")),
        st.sampled_from(("", "feed", "feed", "another")),
        st.none() | POSITIONS | POSITIONS,
        st.sampled_from((5, 40, 1_000)),
    ),
    st.builds(TrimFeed, POSITIONS),
    st.builds(SetClusterVersion, st.sampled_from((0, 1)), st.sampled_from((0, 2, 3))),
)


@st.composite
def management_command(draw):
    """Draw a management command; the wrapper keeps the description of the strategy short."""
    return draw(MANAGEMENT)


def aimed_at_sweeps(model, command):
    """Return a step or a stop for an existing sweep; one number in six stays unchanged.

    A random step is the number of steps beside the next one.
    """
    if not isinstance(command, (RunBulkSweep, StopBulkSweep)) or command.number == 0:
        return command
    there = model.open_sweeps() or model.sweeps
    if not there:
        return command
    sweep = there[command.number % len(there)]
    if isinstance(command, StopBulkSweep):
        return replace(command, number=sweep["number"])
    change = command.change and continued(sweep, command.change)
    step = sweep["steps"] + command.step
    return replace(command, number=sweep["number"], step=step, change=change)


def continued(sweep, change):
    """Return the change of a step in the tube of its sweep, behind the examined tasks."""
    change = replace(change, tube=sweep["request"].tube)
    if isinstance(change.selector, ByFilter) and not sweep["request"].ids:
        return replace(change, selector=replace(change.selector, after_id=sweep["position"]))
    return change
