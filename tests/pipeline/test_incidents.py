"""Find planted incidents, stuck tasks and sick workers in three hours of some tubes."""

from datetime import UTC, datetime

import pytest

from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft.v1.task_pb2 import Task
from taskraft_pipeline.analytics.tables import EVENT_COLUMNS, TABLES
from taskraft_pipeline.analytics.views import register_views
from taskraft_pipeline.analytics.wait_targets import WaitTargets, parse_wait_targets
from taskraft_pipeline.options import OptionInvalid
from taskraft_pipeline.schema import COLUMNS
from tests.pipeline.analytics_oracle import facts
from tests.pipeline.history import Event, in_partitions
from tests.pipeline.rows import expected_rows
from tests.pipeline.test_analytics import comparable, found_in
from tests.pipeline.view_oracle import VIEW_ORACLE

pytestmark = pytest.mark.spark
MIDNIGHT_MS = 1_780_272_000_000
MINUTES = 180
SECOND, MINUTE = 1_000, 60_000
INCIDENT = range(60, 80)
OUTCOMES = {ChangeEvent.ACK: Task.PROCESSED, ChangeEvent.BURY: Task.BURIED_OUT}
TARGETS = WaitTargets()
INSTANTS = ("ts", "created_ts", "since_ts")


class Story:
    """Collects the events of tasks; times are in ms after midnight."""

    def __init__(self):
        self.events = []
        self.tasks = 0

    def task(self, tube, put, take=None, end=None, session="w1", kind=ChangeEvent.ACK):
        self.tasks += 1
        self._add(tube, (put, put, put), ChangeEvent.PUT, (0, Task.READY), "")
        if take is not None:
            self._add(tube, (put, take, put), ChangeEvent.TAKE, (Task.READY, Task.TAKEN), session)
        if end is not None:
            after = 0 if kind == ChangeEvent.ACK else Task.BURIED
            self._add(tube, (put, end, take), kind, (Task.TAKEN, after), session)

    def _add(self, tube, times, kind, states, session):
        put, at, since = times
        before, after = states
        self.events.append(
            Event(
                partition=0, seq=0, revision=0, place=0, at_ms=MIDNIGHT_MS + at, tube=tube,
                task_id=self.tasks, kind=kind, from_state=before, to_state=after, attempt=1,
                priority=0, created_ms=MIDNIGHT_MS + put, since_ms=MIDNIGHT_MS + since,
                session=session, payload_bytes=10, outcome=OUTCOMES.get(kind, 0),
                fingerprint=int(kind == ChangeEvent.BURY),
            )
        )  # fmt: skip


@pytest.fixture(scope="module")
def story():
    told = Story()
    for minute in range(MINUTES):
        at = minute * MINUTE
        is_incident = minute in INCIDENT
        took = 80 * MINUTE + minute * SECOND if is_incident else at
        told.task("stopped", at, took, took + SECOND)
        late = at + 2 * MINUTE if is_incident else at
        told.task("short", at, late, late + SECOND)
        told.task("slow", at, late, late + (50 if is_incident else 1) * SECOND)
        for _ in range(9 if is_incident else 1):
            told.task("burst", at, late, late + SECOND)
        kind = ChangeEvent.BURY if minute % 2 else ChangeEvent.ACK
        told.task("sick", at, at, at + SECOND, "well", ChangeEvent.ACK)
        told.task("sick", at, at, at + SECOND, "failing", kind)
        told.task("sick", at, at, at + 5 * SECOND, "slow", ChangeEvent.ACK)
    told.task("waiting", 20 * MINUTE, 20 * MINUTE, 20 * MINUTE + SECOND)
    told.task("waiting", 165 * MINUTE)
    told.task("stuck", 30 * MINUTE, 31 * MINUTE)
    told.task("stuck", 170 * MINUTE, 171 * MINUTE)
    return in_partitions(sorted(told.events, key=lambda event: event.at_ms), 1)


@pytest.fixture(scope="module")
def views(spark, story, tmp_path_factory):
    folder = tmp_path_factory.mktemp("story")
    names = [name for name in EVENT_COLUMNS if name != "date"]
    rows = [
        [
            datetime.fromtimestamp(row[name] / 1e6, UTC) if name in INSTANTS else row[name]
            for name in names
        ]
        for row in expected_rows(story)
    ]
    schema = ", ".join(f"{name} {COLUMNS[name]}" for name in names)
    events = spark.createDataFrame(rows, schema).selectExpr("*", "to_date(ts) AS date")
    events = events.withColumn("wait_target_ms", TARGETS.column()).persist()
    for name, compute in TABLES.items():
        place = str(folder / name / "date=2026-06-01")
        compute(events).drop("date").coalesce(1).write.parquet(place)
    events.unpersist()
    register_views(spark, folder)
    return spark


@pytest.mark.parametrize("name", ["open_tasks", "incidents", "worker_outliers"])
def test_a_view_equals_its_oracle(views, story, name):
    found = found_in(views.table(f"taskraft_{name}").drop("cause"))
    assert set(found) == set(map(comparable, VIEW_ORACLE[name](facts(story), TARGETS)))
    assert found


def test_each_incident_has_its_cause(views):
    rows = views.table("taskraft_incidents").collect()
    assert {(row.tube, row.cause) for row in rows} == {
        ("stopped", "workers stopped"),
        ("short", "too few workers"),
        ("slow", "longer runs"),
        ("burst", "more puts"),
        ("waiting", "workers stopped"),
    }
    assert len(rows) == 5


def test_old_open_tasks_are_stuck(views):
    rows = views.table("taskraft_stuck_tasks").collect()
    assert {(row.tube, row.state, row.age_ms // MINUTE) for row in rows} == {
        ("waiting", "ready", 14),
        ("stuck", "taken", 148),
    }


def test_workers_unlike_the_others_are_outliers(views):
    rows = views.table("taskraft_worker_outliers").collect()
    assert {(row.session, row.problem) for row in rows} == {
        ("failing", "failures"),
        ("slow", "slow"),
    }


def test_targets_of_waits_are_durations_by_tube():
    targets = parse_wait_targets(["mail=5s", "30s", "a=b=1m"])
    assert (targets.of("mail"), targets.of("a=b"), targets.of("other")) == (5_000, 60_000, 30_000)
    with pytest.raises(OptionInvalid, match="a target of waits must be a duration"):
        parse_wait_targets(["mail=soon"])
    with pytest.raises(ValueError, match="at least 0 ms"):
        WaitTargets(-1)
