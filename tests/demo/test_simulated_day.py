"""The simulated day: its events are possible lives of tasks, and it has the planted faults."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from demo.day_events import PARTITIONS, WIDTHS, day_events
from demo.pipeline_run import main
from demo.simulated_day import DAY_MS, HOUR_MS, PLANS, START_MS, simulate
from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft.v1.task_pb2 import Task

EVENTS = 20_000


@pytest.fixture(scope="module")
def days():
    return [simulate(plan, EVENTS, 1) for plan in PLANS]


@pytest.fixture(scope="module")
def day(days):
    return day_events(days)


@pytest.fixture(scope="module")
def lives(day):
    """Return the events of each task, in the order of the feed."""
    found = defaultdict(list)
    for columns in day.partitions:
        rows = zip(*(columns[name].tolist() for name in WIDTHS), strict=True)
        for row in rows:
            event = dict(zip(WIDTHS, row, strict=True))
            found[day.tubes[event["tube"]], event["task_id"]].append(event)
    return found


def test_equal_seeds_give_equal_days(days):
    again = simulate(PLANS[0], EVENTS, 1)
    assert again.attempts == days[0].attempts
    assert simulate(PLANS[0], EVENTS, 2).attempts != days[0].attempts


def test_each_partition_is_in_the_order_of_revision_and_time(day):
    assert len(day.partitions) == PARTITIONS
    assert 0.8 * EVENTS < day.events < 1.4 * EVENTS
    for columns in day.partitions:
        assert np.all(np.diff(columns["revision"] * 3 + columns["place"]) > 0)
        assert np.all(np.diff(columns["at_ms"]) >= 0)
        assert columns["at_ms"][0] >= START_MS
        assert columns["at_ms"][-1] < START_MS + DAY_MS


def test_each_event_begins_where_the_previous_event_of_its_task_ended(lives):
    for life in lives.values():
        assert [event["kind"] for event in life].count(ChangeEvent.PUT) == 1
        assert life[0]["kind"] == ChangeEvent.PUT
        for before, after in pairwise(life):
            assert after["from_state"] == before["to_state"]
            assert after["since_ms"] == before["at_ms"] <= after["at_ms"]
            assert after["attempt"] == before["attempt"] + (after["kind"] == ChangeEvent.TAKE)


def test_the_planted_faults_are_in_the_events(days, day, lives):
    stuck = [
        life
        for (tube, _), life in lives.items()
        if tube == "reports"
        and life[-1]["to_state"] == Task.TAKEN
        and life[-1]["at_ms"] < START_MS + 20 * HOUR_MS
    ]
    assert len(stuck) == PLANS[4].stuck
    begin, end = PLANS[3].outage
    takes = [
        event["at_ms"] - START_MS
        for (tube, _), life in lives.items()
        for event in life
        if tube == "billing" and event["kind"] == ChangeEvent.TAKE
    ]
    assert not [at_ms for at_ms in takes if begin <= at_ms < end]
    mail = days[0].attempts
    sick = [
        failed for failed, worker in zip(mail.is_failed, mail.worker, strict=True) if not worker
    ]
    assert 0.4 < sum(sick) / len(sick) < 0.6
    assert "customer-1" in day.texts


def test_the_encoding_has_the_rows_of_a_range(day):
    chunk = day.encoded(1, 10, 25)
    assert list(chunk.tubes) == [plan.tube for plan in PLANS]
    assert chunk.texts[0] == ""
    wanted = day.partitions[1]["task_id"][10:25]
    assert np.array_equal(np.frombuffer(chunk.task_id, "<i8"), wanted)


def test_too_few_events_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--events", "10"])
    assert "--events must be at least 1000" in capsys.readouterr().err
