"""Generate random commands on few tubes, groups and tasks, so that features combine."""

from __future__ import annotations

from hypothesis import strategies as st

from taskraft_service.queue.entities.group import GroupTask
from taskraft_service.queue.entities.new_task import (
    Dependencies,
    ItemReference,
    NewTask,
    OnConflict,
    TaskReference,
)
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_view import Failure, OnDependencyFailure
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.groups import (
    CancelGroup,
    CreateGroup,
    SetEndTask,
    StartGroup,
)
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick, ReleaseAll
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    UpdateSchedule,
)
from taskraft_service.queue.operations.selection import ByFilter, ByIds
from taskraft_service.queue.operations.sessions import CloseSession, OpenSession
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    Reject,
    Release,
    Settle,
    Touch,
)
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduledTime, ScheduleSpec
from taskraft_service.queue.transitions.updating import TaskUpdate
from tests.service.queue.random_commands import selected_changes

TUBES = st.sampled_from(("mail", "tried", "kept", "line", "own", "plain", "tried", "temp"))
GROUPS = st.sampled_from(("g", "h"))
IDS = st.integers(1, 6)
TOKENS = st.lists(st.integers(1, 16), max_size=3)
DELAYS = st.sampled_from((0, 0, 10))
SPANS = st.none() | st.none() | st.sampled_from((0, 10, 40))
BODIES = st.sampled_from((b"", b"small", b"too large for its own"))
REFERENCES = st.one_of(
    st.builds(TaskReference, TUBES, IDS),
    st.builds(TaskReference, TUBES, IDS),
    st.builds(ItemReference, st.integers(0, 2)),
)
DEPENDENCIES = st.builds(
    Dependencies,
    st.lists(REFERENCES, min_size=1, max_size=3).map(tuple),
    st.sampled_from(OnDependencyFailure),
)
PLAIN_TASKS = st.builds(
    lambda body, **wishes: NewTask(body, len(body), **wishes),
    BODIES,
    type=st.sampled_from(("", "a", "b")),
    group=st.sampled_from(("", "", "g", "h")),
    dependencies=st.none() | DEPENDENCIES,
)
TIMED_TASKS = st.builds(
    lambda body, **wishes: NewTask(body, len(body), **wishes),
    BODIES,
    priority=st.none() | st.integers(-1, 1),
    delay_ms=SPANS,
    ttl_ms=SPANS,
    ttr_ms=SPANS,
    visible_at_ms=st.none() | st.none() | st.integers(0, 200),
    type=st.sampled_from(("", "a")),
    position=st.sampled_from((Position.IN_ORDER, *Position)),
    group=st.sampled_from(("", "g")),
    dependencies=st.none() | DEPENDENCIES,
)
KEYED_TASKS = st.builds(
    lambda body, **wishes: NewTask(body, len(body), **wishes),
    BODIES,
    delay_ms=SPANS,
    unique_key=st.sampled_from((("a",), ("b",), ("stored",))),
    on_conflict=st.sampled_from(OnConflict),
    group=st.sampled_from(("", "g", "h")),
    dependencies=st.none() | DEPENDENCIES,
)
QUEUED_TASKS = st.builds(
    lambda subqueue, **wishes: NewTask(b"x", 1, subqueue=subqueue, **wishes),
    st.sampled_from(("", "a", "b")),
    priority=st.none() | st.integers(-1, 1),
    group=st.sampled_from(("", "g")),
    dependencies=st.none() | DEPENDENCIES,
)
CHOSEN = st.builds(ByIds, st.lists(IDS, min_size=1, max_size=3))
ANY = CHOSEN | st.builds(ByFilter, st.none(), st.integers(1, 3), st.just(0))
FAILURES = st.none() | st.builds(Failure, st.just("Timeout"), st.just("why"), st.booleans())
UPDATES = st.builds(
    TaskUpdate,
    content=st.sampled_from((b"", b"new", b"of other length")),
    priority=st.none() | st.integers(-1, 1),
    ttl_ms=SPANS,
)
SETTLEMENTS = st.one_of(
    st.builds(Ack, TOKENS),
    st.builds(Ack, TOKENS),
    st.builds(Release, TOKENS, delay_ms=DELAYS, failure=FAILURES),
    st.builds(Release, TOKENS, delay_ms=DELAYS, move_to=TUBES),
    st.builds(BuryTaken, TOKENS, FAILURES),
    st.builds(Reject, TOKENS, FAILURES),
    st.builds(Touch, TOKENS, st.sampled_from((0, 10)), st.booleans()),
)
MOVES = st.builds(
    Move, TUBES, ANY, TUBES | st.just(""), st.none() | DELAYS, st.sampled_from(Position)
)
PUTS = st.one_of(
    st.builds(Put, TUBES, st.lists(PLAIN_TASKS, min_size=1, max_size=4), st.booleans()),
    st.builds(Put, TUBES, st.lists(TIMED_TASKS, min_size=1, max_size=3)),
    *[st.builds(Put, TUBES, st.lists(KEYED_TASKS, min_size=1, max_size=4))] * 2,
    st.builds(Put, st.just("line"), st.lists(QUEUED_TASKS, min_size=1, max_size=4)),
)
TAKES = st.one_of(
    st.builds(
        Take,
        st.lists(TUBES, min_size=1, max_size=3, unique=True),
        st.sampled_from(("", "session")),
        st.integers(1, 4),
        types=st.sampled_from(((), (), ("a",))),
        priority_bound=st.none() | st.none() | st.integers(-1, 1),
    ),
    st.builds(lambda tube, chosen: Take([tube], "", task_id=chosen), TUBES, IDS),
)
CHANGES = st.one_of(
    st.builds(Kick, TUBES, st.integers(0, 3), st.none() | ANY, DELAYS),
    MOVES,
    *selected_changes(TUBES, ANY, FAILURES, UPDATES),
)
BATCHES = st.builds(
    ExecuteBatch,
    st.lists(
        st.one_of(
            st.builds(Put, TUBES, st.lists(PLAIN_TASKS, min_size=1, max_size=2)),
            st.builds(Settle, st.lists(SETTLEMENTS, min_size=1, max_size=2)),
            st.builds(Settle, st.builds(lambda token: [Ack([token])], st.integers(1, 16))),
            st.builds(Kick, TUBES, st.just(0), CHOSEN),
            st.builds(Bury, TUBES, CHOSEN),
            st.builds(Delete, TUBES, CHOSEN),
            st.builds(UpdateTasks, TUBES, CHOSEN, UPDATES),
            st.builds(Move, TUBES, CHOSEN, TUBES | st.just(""), position=st.sampled_from(Position)),
        ),
        min_size=1,
        max_size=3,
    ),
)
SPECS = st.sampled_from((b"end", b"end keyed", b"end keyed met", b"end grouped", b"end last"))
FOLLOWING = st.none() | st.builds(GroupTask, TUBES, SPECS)
GROUPED = st.one_of(
    st.builds(CreateGroup, GROUPS, FOLLOWING, FOLLOWING, st.booleans()),
    st.builds(CreateGroup, st.sampled_from(("g", "h", "i", "j")), FOLLOWING),
    st.builds(SetEndTask, GROUPS, FOLLOWING, FOLLOWING, st.booleans()),
    st.builds(StartGroup, GROUPS),
    st.builds(StartGroup, GROUPS),
    st.builds(CancelGroup, GROUPS, st.booleans()),
)
SCHEDULES = st.sampled_from(("nightly", "weekly"))
PLANS = st.builds(
    ScheduleSpec,
    TUBES,
    st.sampled_from(("* * * * *", "@daily")),
    st.sampled_from(Overlap),
    st.booleans(),
    SPECS,
)
SLOTS = st.lists(st.integers(1, 300), min_size=1, max_size=3, unique=True).map(sorted)
RUNS = st.builds(
    lambda name, version, slots: RunSchedule(
        name, version, [ScheduledTime(at_ms, b"!") for at_ms in slots], slots[-1], slots[-1] + 9
    ),
    SCHEDULES,
    st.sampled_from((1, 1, 1, 2)),
    SLOTS,
)
SCHEDULED = st.one_of(
    st.builds(CreateSchedule, SCHEDULES, PLANS, st.integers(0, 300)),
    st.builds(CreateSchedule, SCHEDULES, PLANS, st.integers(0, 300)),
    st.builds(UpdateSchedule, SCHEDULES, PLANS, st.integers(0, 300)),
    st.builds(DeleteSchedule, SCHEDULES),
    RUNS,
    RUNS,
)
TUBE_CHANGES = st.one_of(
    st.builds(
        lambda tube, changes: UpdateTube(tube, TubeOptions(**changes), list(changes)),
        TUBES,
        st.sampled_from(
            (
                {"put_paused": True},
                {"put_paused": False},
                {"capacity_tasks": 4},
                {"capacity_tasks": 0},
                {"concurrency": 2},
                {"buried_max": 1},
                {"subqueue_rate_per_second": 40},
                {"subqueue_rate_per_second": 0, "subqueue_rate_burst": 0},
            )
        ),
    ),
    st.builds(TruncateTube, TUBES),
    st.builds(DropTube, st.just("temp"), st.booleans()),
    st.builds(CreateTube, st.just("temp"), st.just(TubeKind.FIFOTTL), st.just(TubeOptions())),
    st.builds(ReleaseAll, TUBES),
    st.builds(OpenSession, st.just("session"), st.just(""), st.just(50)),
    st.builds(CloseSession, st.just("session"), st.booleans()),
)
EASY_TAKES = st.builds(
    Take,
    st.lists(TUBES, min_size=1, max_size=4, unique=True),
    tasks_max=st.integers(1, 4),
)
COMMON = st.one_of(
    PUTS,
    *[EASY_TAKES] * 5,
    *[st.builds(Settle, st.lists(SETTLEMENTS, min_size=1, max_size=3), st.booleans())] * 2,
    *[st.builds(Settle, st.builds(lambda tokens: [Ack(tokens)], TOKENS))] * 2,
    st.builds(StartGroup, GROUPS),
    RUNS,
)
COMPOSED = st.one_of(
    PUTS,
    TAKES,
    CHANGES,
    CHANGES,
    GROUPED,
    SCHEDULED,
    BATCHES,
    TUBE_CHANGES,
)


@st.composite
def common_composed_command(draw):
    """Draw one of the commands that most entries consist of."""
    return draw(COMMON)


@st.composite
def composed_command(draw):
    """Draw any command; the wrapper keeps the description of the strategy short."""
    return draw(COMPOSED)
