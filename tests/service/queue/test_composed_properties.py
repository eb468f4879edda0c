"""Groups, dependencies, schedules, batches, drivers and moves together equal the naive queue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis.stateful import invariant

from taskraft_service.queue.entities.group import GroupTask
from taskraft_service.queue.entities.retry_policy import Exhausted, Position, RetryPolicy
from taskraft_service.queue.entities.tube_options import OnAck, TtlScope, TubeKind, TubeOptions
from taskraft_service.queue.operations.groups import CreateGroup
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.schedules import CreateSchedule
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduleSpec
from tests.service.queue.random_combinations import common_composed_command, composed_command
from tests.service.queue.test_queue_properties import (
    ENTRIES_MIN,
    LIMITS,
    QueueMachine,
    entries,
    run_part,
)

RETRY = RetryPolicy(2, 10, exhausted=Exhausted.DEAD_LETTER, position=Position.BACK)
OPENING = (
    Startup(1, 0, "feed", 3),
    CreateTube("mail", TubeKind.FIFOTTL, TubeOptions(ttl_scope=TtlScope.ALL)),
    CreateTube("kept", TubeKind.FIFOTTL, TubeOptions(on_ack=OnAck.RETAIN, retain_ms=30)),
    CreateTube(
        "line",
        TubeKind.UTUBETTL,
        TubeOptions(
            subqueue_weights=(("a", 2),),
            subqueue_concurrency=2,
            subqueue_rate_per_second=50,
            subqueue_rate_burst=2,
        ),
    ),
    CreateTube("own", TubeKind.CUSTOM, TubeOptions(), driver="newest", driver_version=3),
    CreateTube("plain", TubeKind.FIFO, TubeOptions(on_ack=OnAck.KEEP)),
    CreateTube(
        "tried",
        TubeKind.FIFOTTL,
        TubeOptions(retry=RETRY, dead_letter_tube="own", priority_max=2, capacity_tasks=5),
    ),
    CreateGroup("g", GroupTask("mail", b"end"), GroupTask("tried", b"abort")),
    CreateSchedule("nightly", ScheduleSpec("mail", "@daily", Overlap.SKIP, spec=b"end"), 100),
)


class ComposedMachine(QueueMachine):
    """A queue machine with commands that address few tubes, groups and tasks."""

    opening = OPENING
    limits = replace(
        LIMITS,
        steps_alone_max=3,
        steps_beside_max=2,
        steps_max=4,
        groups_max=3,
        group_retention_ms=60,
    )

    commands = entries(common_composed_command(), composed_command())

    @invariant()
    def dependents_and_members_match_the_model(self):
        state, model = self.queue._state, self.model
        there = [*model.tasks, *model.ruins]
        waits = sum(len(task["waits"]["on"]) for task in there if task["waits"])
        assert len(list(state.dependents.members.keys())) == waits
        for group in model.groups:
            members = list(state.groups.members.after(group["number"], (0, 0)))
            assert group["ended"] or len(members) == model.fates(group)["open"]


@pytest.mark.parametrize("part", range(10))
def test_all_features_together_behave_like_the_naive_queue(part):
    assert run_part(ComposedMachine, part) >= ENTRIES_MIN
