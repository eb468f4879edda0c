"""Generate random commands for the queue: mostly plausible ones, some without sense."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from taskraft_service.queue.entities.filter import (
    AgeField,
    AgeIs,
    Disjunction,
    Negation,
    NumberField,
    NumberIs,
    Relation,
    StateIs,
)
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.new_task import (
    AMONG_UNFINISHED,
    NewTask,
    OnConflict,
    UniqueAmong,
)
from taskraft_service.queue.entities.retry_policy import Exhausted, Position, RetryPolicy
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import Failure, TaskProgress
from taskraft_service.queue.entities.tube_options import (
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
)
from taskraft_service.queue.operations.admin import Restart, Snatch, Switch
from taskraft_service.queue.operations.cancel import Cancel
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick, ReleaseAll
from taskraft_service.queue.operations.leadership import (
    NoteCalls,
    NotedCalls,
    SetWallOffset,
    Startup,
)
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByFilter, ByIds, ByKeys
from taskraft_service.queue.operations.sessions import (
    AttachSession,
    CloseSession,
    KeepSessions,
    OpenSession,
)
from taskraft_service.queue.operations.settings import Configure
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    Keep,
    Reject,
    Release,
    Settle,
    Touch,
)
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from taskraft_service.queue.transitions.updating import TaskUpdate

SPANS = st.sampled_from((0, 1, 10, 25, 60, 200, FOREVER_MS, FOREVER_MS * 100))
PASSED = st.sampled_from((0, 0, 0, 1, 5, 10, 20, 70))
WISHES = st.none() | SPANS
RARE_WISHES = st.none() | st.none() | st.none() | SPANS
TUBES = st.sampled_from(
    (
        "mail",
        "plain",
        "high",
        "temp",
        "kept",
        "retained",
        "tried",
        "tried",
        "dead",
        "slow",
        "few",
        "room",
    )
)
IDS = st.integers(1, 14)
TOKENS = st.lists(st.integers(1, 16), max_size=3)
SESSIONS = st.sampled_from(("session-one", "session-two", "session-three"))
FAILURES = st.none() | st.builds(
    Failure,
    st.sampled_from(("", "Timeout")),
    st.sampled_from(("why", "é" * 300)),
    st.sampled_from((False, False, True)),
)
UPDATES = st.none() | st.builds(
    TaskUpdate,
    content=st.sampled_from((b"", b"new", b"n" * 2_000)),
    priority=st.none() | st.integers(-3, 3),
    ttl_ms=WISHES,
    ttr_ms=WISHES,
)
POLICIES = st.builds(
    RetryPolicy,
    attempts_max=st.sampled_from((0, 1, 2)),
    backoff_ms=st.sampled_from((0, 10)),
    factor_percent=st.sampled_from((100, 200)),
    backoff_ms_max=st.sampled_from((15, 1_000)),
    exhausted=st.sampled_from(Exhausted),
    position=st.sampled_from(Position),
)
NEW_TASKS = st.builds(
    lambda body, **wishes: NewTask(body, len(body), **wishes),
    body=st.sampled_from((b"", b"small", b"x" * 30, b"y" * 1500)),
    priority=st.none() | st.integers(-2, 2),
    delay_ms=RARE_WISHES,
    ttl_ms=RARE_WISHES,
    ttr_ms=RARE_WISHES,
    visible_at_ms=st.none() | st.none() | st.none() | st.integers(0, 300),
    type=st.sampled_from(("", "a", "b")),
    position=st.sampled_from((Position.IN_ORDER, *Position)),
    retry=st.none() | st.none() | POLICIES,
    unique_key=st.sampled_from(((), (), (), ("a",), ("a", "b"))),
    on_conflict=st.sampled_from(OnConflict),
    unique_among=st.just(AMONG_UNFINISHED)
    | st.builds(
        UniqueAmong,
        st.sampled_from(((State.READY, State.DELAYED), (State.DONE, State.ZOMBIE), tuple(State))),
        st.sampled_from((20, FOREVER_MS)),
    ),
)
RELEASES = st.builds(
    Release,
    TOKENS,
    delay_ms=st.none() | st.just(0) | SPANS,
    ttl_policy=st.none() | st.sampled_from(TtlPolicy),
    ttl_ms=WISHES,
    position=st.sampled_from(Position),
    uncounted=st.booleans(),
    failure=FAILURES,
    move_to=st.sampled_from(("", "")) | TUBES,
    update=UPDATES,
)
SETTLEMENTS = st.one_of(
    st.builds(Ack, TOKENS),
    st.builds(Ack, TOKENS),
    st.builds(
        Ack,
        TOKENS,
        st.sampled_from((None, b"", b"result")),
        st.sampled_from(("", "text/plain")),
        st.sampled_from(Keep),
        WISHES,
        UPDATES,
    ),
    RELEASES,
    RELEASES,
    st.builds(BuryTaken, TOKENS, FAILURES, UPDATES),
    st.builds(Reject, TOKENS, FAILURES),
    st.builds(
        Touch, TOKENS, SPANS, st.booleans(), st.none() | st.just(TaskProgress(50, "half a percent"))
    ),
)
TAKES = st.builds(
    Take,
    st.lists(TUBES, min_size=1, max_size=3, unique=True),
    st.just("") | SESSIONS,
    st.integers(0, 5),
    st.sampled_from((0, 30, 2000, 10**6)),
    ttr_ms=st.just(None) | WISHES,
    types=st.sampled_from(((), (), ("a",), ("b", "a", "b"), ("c",))),
    priority_bound=st.none() | st.none() | st.integers(-1, 1),
)
TAKERS = ("", "", "mailer", "rival")
"""Principals that take without a session; empty: access control is off."""


def taken_by(takes):
    """Return a strategy of takes; the ones without a session are those of a principal."""
    return st.builds(
        lambda take, taker: take if take.session_id else replace(take, taker=taker),
        takes,
        st.sampled_from(TAKERS),
    )


TAKES = taken_by(TAKES)
WEIGHED = ("mail", "plain", "high", "kept", "room")
WEIGHED_TAKES = st.builds(
    lambda weights, tasks_max, types: Take(
        list(weights), "", tasks_max, types=types, weights=tuple(weights.values())
    ),
    st.dictionaries(st.sampled_from(WEIGHED), st.integers(1, 4), min_size=1, max_size=3),
    st.integers(1, 6),
    st.sampled_from(((), (), ("a",), ("a", "b"))),
)
OPTION_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "take_paused": st.booleans(),
        "ttr_ms": SPANS,
        "ttl_ms": SPANS,
        "priority": st.integers(-3, 300),
        "higher_first": st.booleans(),
        "ttl_scope": st.sampled_from(TtlScope),
        "ttl_policy": st.sampled_from(TtlPolicy),
        "on_ack": st.sampled_from((OnAck.REMOVE, OnAck.KEEP)),
        "capacity_tasks": st.integers(1, 9),
        "capacity_bytes": st.sampled_from((1_600, 3_100)),
        "buried_max": st.integers(0, 2),
        "concurrency": st.integers(0, 3),
        "rate_per_second": st.sampled_from((0, 30, 500)),
        "rate_burst": st.sampled_from((0, 0, 2)),
    },
)
RESETS = st.sampled_from(("ttr_ms", "ttl_ms", "priority", "ttl_policy"))
TUBE_UPDATES = st.builds(
    lambda name, changes, resets: UpdateTube(
        name,
        replace(TubeOptions(), **changes),
        list(changes),
        [reset for reset in resets if reset not in changes],
    ),
    TUBES,
    OPTION_CHANGES,
    st.lists(
        st.sampled_from(("ttr_ms", "ttl_ms", "priority", "ttl_policy")), max_size=2, unique=True
    ),
)
SETTINGS_CHANGES = st.builds(
    lambda grace, ttr: Configure(ReplicatedSettings(failover_grace_ms=grace, session_ttr_ms=ttr)),
    st.none() | st.sampled_from((0, 30)),
    st.none() | st.sampled_from((0, 30, 90)),
)
CHOSEN_TAKES = taken_by(
    st.builds(
        lambda tube, session, chosen: Take([tube], session, task_id=chosen),
        TUBES,
        st.just("") | SESSIONS,
        IDS,
    )
)
DELAYS = st.sampled_from((0, 0, 10))
FILTERS = st.one_of(
    st.none(),
    st.builds(StateIs, st.sampled_from((State.READY, State.TAKEN, State.BURIED, State.DONE))),
    st.builds(NumberIs, st.just(NumberField.ATTEMPT), st.just(Relation.ABOVE), st.integers(0, 1)),
    st.builds(NumberIs, st.just(NumberField.CREATED), st.just(Relation.ABOVE), st.integers(0, 300)),
    st.builds(AgeIs, st.just(AgeField.AGE), st.just(Relation.AT_LEAST), st.sampled_from((1, 20))),
)
SELECTORS = st.one_of(
    st.builds(ByIds, st.lists(IDS, min_size=1, max_size=4)),
    st.builds(
        ByKeys, st.lists(st.sampled_from((("a",), ("a", "b"), ("c",))), min_size=1, max_size=3)
    ),
    st.builds(ByFilter, FILTERS, st.integers(1, 4), st.sampled_from((0, 0, 3))),
    st.builds(
        ByFilter,
        st.builds(Disjunction, st.tuples(FILTERS, st.builds(Negation, FILTERS))) | FILTERS,
        st.just(2),
    ),
)
MOVES = st.builds(
    Move,
    TUBES,
    SELECTORS,
    TUBES | TUBES | st.just(""),
    st.none() | DELAYS,
    st.sampled_from(Position),
    st.booleans(),
    update=UPDATES,
)
PUTS = st.one_of(
    st.builds(Put, TUBES, st.lists(NEW_TASKS, max_size=4), st.booleans()),
    st.builds(Put, TUBES, st.lists(NEW_TASKS, min_size=1, max_size=9)),
)
EASY_TAKES = taken_by(
    st.builds(
        Take,
        st.lists(TUBES, min_size=1, max_size=4, unique=True),
        st.sampled_from(("", "", "session-one")),
        st.integers(1, 5),
    )
)
"""Takes that usually find a task."""
SETTLES = st.builds(Settle, st.lists(SETTLEMENTS, min_size=1, max_size=3))
COMMON = st.one_of(PUTS, *[EASY_TAKES] * 4, *[SETTLES] * 3)


def selected_changes(tubes, selectors, failures, updates):
    """Return strategies of commands that change selected tasks, without moves and kicks."""
    finished = (State.READY, State.BURIED, State.DONE, State.DELAYED, State.ZOMBIE)
    return (
        st.builds(Bury, tubes, selectors, failures),
        st.builds(Delete, tubes, selectors),
        st.builds(Snatch, tubes, selectors, DELAYS),
        st.builds(Restart, tubes, selectors, DELAYS),
        st.builds(Switch, tubes, selectors, st.sampled_from(finished), st.sampled_from((5, 20))),
        st.builds(Cancel, tubes, selectors),
        st.builds(UpdateTasks, tubes, selectors, updates | st.builds(TaskUpdate, delay_ms=DELAYS)),
    )


COMMANDS = st.one_of(
    PUTS,
    TAKES,
    TAKES,
    CHOSEN_TAKES,
    WEIGHED_TAKES,
    TUBE_UPDATES,
    SETTINGS_CHANGES,
    st.builds(Settle, st.lists(SETTLEMENTS, max_size=3), st.booleans()),
    st.builds(Settle, st.lists(SETTLEMENTS, max_size=3)),
    st.builds(Kick, TUBES, st.integers(0, 4), st.none() | SELECTORS, DELAYS, update=UPDATES),
    st.builds(Kick, TUBES, st.integers(0, 4), st.none() | SELECTORS, DELAYS, update=UPDATES),
    MOVES,
    MOVES,
    *selected_changes(TUBES, SELECTORS, FAILURES, UPDATES.filter(bool)),
    st.builds(ReleaseAll, TUBES),
    st.builds(
        OpenSession,
        SESSIONS,
        st.sampled_from(("", "name")),
        SPANS,
        as_settings=st.booleans(),
    ),
    st.builds(KeepSessions, st.lists(SESSIONS, max_size=3)),
    st.builds(AttachSession, SESSIONS, st.booleans()),
    st.builds(CloseSession, SESSIONS, st.booleans()),
    st.builds(TruncateTube, TUBES),
    st.builds(DropTube, st.just("temp"), st.booleans()),
    st.builds(CreateTube, st.just("temp"), st.just(TubeKind.FIFOTTL), st.just(TubeOptions())),
    st.builds(Startup, st.just(1), st.sampled_from((0, 50))),
    st.builds(lambda tube: NoteCalls([NotedCalls(tube, 1, 2, 3)]), TUBES),
    st.builds(SetWallOffset, st.sampled_from((0, 1, 25, 100, -25, -100))),
)


@st.composite
def common_command(draw):
    """Draw a put, take or settlement; most commands are these, so that tasks change state."""
    return draw(COMMON)


@st.composite
def any_command(draw):
    """Draw any command; the wrapper keeps the description of the strategy short."""
    return draw(COMMANDS)
