"""Tubes with sub-queues equal the tubes of the naive queue, also after crashes and restores."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.operations.admin import Restart, Snatch, Switch
from taskraft_service.queue.operations.cancel import Cancel
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick, ReleaseAll
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import CloseSession, OpenSession
from taskraft_service.queue.operations.settlements import Ack, BuryTaken, Release, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, TruncateTube
from taskraft_service.queue.operations.update_tube import UpdateTube
from tests.service.queue.test_queue_properties import (
    ENTRIES_MIN,
    OLDER_SYSTEMS,
    QueueMachine,
    of_profile,
    run_part,
)

OPENING = (
    Startup(1, 0, "feed", 3),
    CreateTube("one", TubeKind.UTUBE, TubeOptions()),
    CreateTube("timed", TubeKind.UTUBETTL, TubeOptions(subqueue_concurrency=2, concurrency=3)),
    CreateTube("fair", TubeKind.UTUBETTL, TubeOptions(subqueue_weights=(("a", 3), ("b", 2)))),
    CreateTube(
        "rated",
        TubeKind.UTUBETTL,
        TubeOptions(
            subqueue_concurrency=3,
            subqueue_weights=(("a", 3),),
            subqueue_rate_per_second=50,
            subqueue_rate_burst=2,
        ),
    ),
    CreateTube("slow", TubeKind.UTUBE, TubeOptions(subqueue_rate_per_second=40)),
    OpenSession("session-one", "", 100),
)
TUBES = st.sampled_from(("one", "timed", "fair", "rated", "rated", "slow"))
SUBQUEUES = st.sampled_from(("", "a", "a", "ab", "b", "c"))
SPANS = st.none() | st.sampled_from((0, 1, 10, 25, 60))
PLAIN_TASKS = st.builds(
    lambda subqueue, body: NewTask(body, len(body), subqueue=subqueue),
    SUBQUEUES,
    st.sampled_from((b"small", b"y" * 1500)),
)
TIMED_TASKS = st.builds(
    lambda subqueue, **wishes: NewTask(b"body", 4, subqueue=subqueue, **wishes),
    SUBQUEUES,
    priority=st.none() | st.integers(-1, 1),
    delay_ms=SPANS,
    ttl_ms=SPANS,
    ttr_ms=SPANS,
    type=st.sampled_from(("", "a")),
    position=st.sampled_from((Position.IN_ORDER, *Position)),
)
TOKENS = st.lists(st.integers(1, 20), max_size=4)
CHOSEN = st.builds(ByIds, st.lists(st.integers(1, 20), max_size=3))
DELAYS = st.sampled_from((0, 0, 10))
SETTLEMENTS = st.one_of(
    st.builds(Ack, TOKENS),
    st.builds(Ack, TOKENS),
    st.builds(Release, TOKENS, delay_ms=st.sampled_from((0, 0, 10))),
    st.builds(Release, TOKENS, delay_ms=st.just(0), position=st.sampled_from(Position)),
    st.builds(BuryTaken, TOKENS),
)
COMMON = st.one_of(
    st.builds(Put, st.just("one"), st.lists(PLAIN_TASKS, max_size=9)),
    st.builds(Put, TUBES, st.lists(PLAIN_TASKS, min_size=1, max_size=9)),
    st.builds(Put, TUBES, st.lists(TIMED_TASKS, min_size=1, max_size=5)),
    st.builds(Take, st.lists(TUBES, min_size=1, max_size=3, unique=True), tasks_max=st.just(3)),
    st.builds(Settle, st.lists(SETTLEMENTS, min_size=1, max_size=3)),
)
COMMANDS = st.one_of(
    COMMON,
    st.builds(
        Take,
        st.lists(TUBES, min_size=1, max_size=3, unique=True),
        st.just("session-one"),
        st.integers(0, 6),
        st.sampled_from((6, 2000, 10**6)),
        types=st.sampled_from(((), (), ("a",))),
        priority_bound=st.none() | st.integers(-1, 1),
    ),
    st.builds(lambda tube, chosen: Take([tube], "", task_id=chosen), TUBES, st.integers(1, 20)),
    st.builds(Settle, st.lists(SETTLEMENTS, min_size=1, max_size=3)),
    st.builds(Kick, TUBES, st.integers(0, 4), st.none() | CHOSEN, DELAYS),
    st.builds(Bury, TUBES, CHOSEN),
    st.builds(Delete, TUBES, CHOSEN),
    st.builds(Snatch, TUBES, CHOSEN, DELAYS),
    st.builds(Restart, TUBES, CHOSEN, DELAYS),
    st.builds(Switch, TUBES, CHOSEN, st.sampled_from((State.READY, State.BURIED, State.DONE))),
    st.builds(Cancel, TUBES, CHOSEN),
    st.builds(ReleaseAll, TUBES),
    st.builds(
        lambda tube, rate, burst: UpdateTube(
            tube,
            TubeOptions(subqueue_rate_per_second=rate, subqueue_rate_burst=burst),
            ["subqueue_rate_per_second", "subqueue_rate_burst"],
        ),
        TUBES,
        st.sampled_from((0, 20, 50, 1_000)),
        st.sampled_from((0, 1, 2, 3)),
    ),
    st.builds(TruncateTube, TUBES),
    st.builds(OpenSession, st.just("session-one"), st.just(""), st.just(100)),
    st.builds(CloseSession, st.just("session-one"), st.booleans()),
)


class SubqueueMachine(QueueMachine):
    """A queue machine with other tubes, and with commands that address few sub-queues."""

    opening = OPENING
    commands = st.lists(COMMON | COMMANDS, max_size=4)


@pytest.mark.parametrize("part", range(6))
def test_sub_queues_behave_like_the_naive_ones(part):
    assert run_part(SubqueueMachine, part) >= ENTRIES_MIN


@pytest.mark.parametrize("profile", OLDER_SYSTEMS)
def test_sub_queues_of_a_profile_behave_like_the_naive_ones(profile):
    assert run_part(of_profile(SubqueueMachine, profile), profile) >= ENTRIES_MIN
