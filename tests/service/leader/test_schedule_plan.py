"""The plan of a schedule has the due times: punctual, missed and with jitter."""

from datetime import UTC, datetime

import pytest

from taskraft.v1 import schedule_service_pb2 as pb
from taskraft_service.leader.schedule_plan import (
    LATE_MS_MAX,
    SLOTS_PER_RUN_MAX,
    jitter_of,
    plan_schedule,
)
from taskraft_service.queue.state.schedule_registry import ScheduleSpec, ScheduleView

MINUTE = 60_000
START = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)
SKIP, ONE, ALL = pb.Schedule.SKIP, pb.Schedule.ONE, pb.Schedule.ALL


def view(catch_up=SKIP, jitter=0, done=0, since=0, cron="*/10 * * * *", paused=False, following=10):
    body = pb.Schedule(name="s", cron=cron, jitter_ms=jitter, catch_up=catch_up)
    options = ScheduleSpec("mail", cron, paused=paused, body=body.SerializeToString())
    since_ms, done_ms, next_ms = (
        START + int(minutes * MINUTE) for minutes in (since, done, following)
    )
    return ScheduleView("s", options, 1, since_ms, done_ms, next_ms, 0, 0, 0)


def planned(shown, minutes):
    """Return the slots, the end, the next time and the due time of a plan, in minutes."""
    plan = plan_schedule(shown, START + int(minutes * MINUTE))
    *numbers, due_ms = (plan.until_ms, plan.next_ms, plan.due_ms)
    return (
        [(slot - START) / MINUTE for slot in plan.slots_ms],
        *((number - START) / MINUTE for number in numbers),
        None if due_ms is None else (due_ms - START) / MINUTE,
    )


@pytest.mark.parametrize("catch_up", [SKIP, ONE, ALL])
def test_a_punctual_time_is_put_under_every_catch_up(catch_up):
    assert planned(view(catch_up), 9.9) == ([], 0, 10, 10)
    assert planned(view(catch_up), 10) == ([10], 10, 20, 20)
    # A change of leader delayed the put of this time.
    assert planned(view(catch_up), 10.9) == ([10], 10, 20, 20)


def test_with_catch_up_skip_missed_times_are_left_out():
    assert planned(view(SKIP), 35) == ([], 34 - 1 / MINUTE, 40, 40)
    assert planned(view(SKIP), 40.5) == ([40], 40, 50, 50)


def test_with_catch_up_one_one_task_is_put_for_all_missed_times():
    assert planned(view(ONE), 35) == ([30], 34 - 1 / MINUTE, 40, 40)
    assert planned(view(ONE), 40.5) == ([30, 40], 40, 50, 50)


def test_with_catch_up_all_each_missed_time_has_its_task():
    assert planned(view(ALL), 35) == ([10, 20, 30], 30, 40, 40)


def test_many_missed_times_are_put_in_batches():
    slots, until, following, due = planned(view(ALL), 100_000)
    assert slots == [10 * number for number in range(1, SLOTS_PER_RUN_MAX + 1)]
    assert (until, following, due) == (1_000, 1_010, 1_010)


def test_times_that_were_due_during_a_pause_count_as_missed():
    assert planned(view(SKIP, since=10.5), 10.6) == ([], 10.5 - 1 / MINUTE, 20, 20)
    assert planned(view(ONE, since=10.5), 10.6) == ([10], 10.5 - 1 / MINUTE, 20, 20)
    assert planned(view(ALL, since=10.5), 10.6) == ([10], 10, 20, 20)
    assert planned(view(SKIP, since=9.5), 10.6) == ([10], 10, 20, 20)


def test_a_paused_or_ended_schedule_is_never_due():
    assert planned(view(paused=True), 99) == ([], 0, 10, None)
    assert plan_schedule(view(following=-START / MINUTE), START).due_ms is None


def test_jitter_is_within_its_limit_and_equal_for_every_leader():
    late = [jitter_of("s", slot, 5_000) for slot in range(0, 1_000 * MINUTE, MINUTE)]
    assert late == [jitter_of("s", slot, 5_000) for slot in range(0, 1_000 * MINUTE, MINUTE)]
    assert 0 <= min(late) < 100
    assert 4_900 < max(late) <= 5_000
    assert late[:50] != [jitter_of("t", slot, 5_000) for slot in range(0, 50 * MINUTE, MINUTE)]


def test_a_jittered_time_is_due_after_its_jitter():
    shown = view(jitter=5 * MINUTE)
    late = jitter_of("s", START + 10 * MINUTE, 5 * MINUTE) / MINUTE
    assert 0 < late < 5
    assert planned(shown, 10 + late - 0.001) == ([], 0, 10, 10 + late)
    slots, until, _, _ = planned(shown, 10 + late)
    assert (slots, until) == ([10], 10)


def test_a_jittered_time_counts_as_missed_from_its_due_time():
    late = jitter_of("s", START + 10 * MINUTE, 5 * MINUTE) / MINUTE
    assert late < 4.5
    shown = view(SKIP, jitter=5 * MINUTE)
    assert planned(shown, 10 + late + 0.9)[0] == [10]
    assert planned(shown, 10 + late + 1.1)[:2] == ([], 10)
    assert planned(view(ONE, jitter=5 * MINUTE), 10 + late + 1.1)[0] == [10]


def test_times_stay_in_order_although_their_jitter_overlaps():
    shown = view(ALL, jitter=60 * MINUTE, cron="* * * * *", following=1)
    now = 30
    slots, until, following, due = planned(shown, now)
    dues = [at + jitter_of("s", START + at * MINUTE, 60 * MINUTE) / MINUTE for at in range(1, 99)]
    expected = []
    for at, at_due in enumerate(dues, 1):
        if at_due > now:
            break
        expected.append(at)
    assert slots == expected
    assert following == len(expected) + 1
    assert due == dues[len(expected)]
    assert until == len(expected)


def test_a_stored_time_is_put_although_newer_zone_data_lacks_it():
    shown = view(cron="0 0 1 1 *", following=10)
    assert planned(shown, 10)[0] == [10]


def test_a_change_of_leader_takes_less_than_the_limit_of_punctuality():
    assert LATE_MS_MAX >= 10_000
