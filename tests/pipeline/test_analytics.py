"""Compute the tables of a journal; compare them with plain Python, and query the views."""

import json
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from taskraft_pipeline.analytics.analysis import STATE, analyse, known_dates
from taskraft_pipeline.analytics.capacity import CapacityLoad, erlang_c
from taskraft_pipeline.analytics.column_comments import COMMENTS
from taskraft_pipeline.analytics.tables import TABLES
from taskraft_pipeline.analytics.views import VIEWS, register_views
from taskraft_pipeline.analytics.wait_targets import WaitTargets
from taskraft_pipeline.errors import JournalRefused
from tests.pipeline.analytics_oracle import ORACLE, durations, facts
from tests.pipeline.view_oracle import VIEW_ORACLE

pytestmark = pytest.mark.spark
TARGETS = WaitTargets(default_ms=100, tubes={"mail": 40, "billing": 160})


@pytest.fixture(scope="module")
def tables(spark, compacted, tmp_path_factory):
    """Return the folder with the tables of the journal."""
    folder = tmp_path_factory.mktemp("analysis") / "tables"
    done = analyse(spark, compacted, folder, TARGETS)
    assert len(done.dates) == 2
    assert done.events == sum(one.events for one in compacted.manifests())
    return folder


@pytest.fixture(scope="module")
def views(spark, tables):
    register_views(spark, tables)
    return spark


def test_every_table_has_an_oracle_and_a_view(views):
    assert list(ORACLE) == list(TABLES)
    names = {row.viewName for row in views.sql("SHOW VIEWS").collect()}
    expected = {f"taskraft_{name}" for name in (*TABLES, *VIEWS)}
    assert names >= expected
    assert set(COMMENTS) == {column for name in expected for column in views.table(name).columns}
    described = views.sql("DESCRIBE taskraft_capacity").collect()
    assert {row.comment for row in described} <= set(COMMENTS.values())


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_equals_its_oracle(views, two_days, name):
    found = found_in(views.table(f"taskraft_{name}").drop("sketch"))
    assert found == Counter(map(comparable, ORACLE[name](facts(two_days), TARGETS)))
    assert len(found) > 3


@pytest.mark.parametrize("name", list(VIEW_ORACLE))
def test_a_view_equals_its_oracle(views, two_days, name):
    found = found_in(views.table(f"taskraft_{name}").drop("cause"))
    assert found == Counter(map(comparable, VIEW_ORACLE[name](facts(two_days), TARGETS)))
    assert found or name in {"open_tasks", "worker_outliers"}, "tests/pipeline/test_incidents.py"


def found_in(rows):
    """Return the rows with instants in ms, the date first."""
    columns = [
        F.unix_millis(column) if kind == "timestamp" else column
        for column, kind in rows.dtypes
        if column != "date"
    ]
    date = ["date"] if "date" in rows.columns else []
    return Counter(comparable(row) for row in rows.select(*date, *columns).collect())


def comparable(row):
    """Return a row with 9 digits of each float, because sums depend on the order."""
    return tuple(float(f"{one:.9g}") if isinstance(one, float) else one for one in row)


def test_the_life_of_a_task_spans_dates(views, two_days):
    lives = defaultdict(list)
    for fact in facts(two_days):
        lives[fact.tube, fact.task_id].append(fact)
    found = {
        (row.tube, row.task_id): (row.takes, row.wait_ms, row.run_ms, row.end_kind)
        for row in views.table("taskraft_lifecycles").collect()
    }
    assert found == {
        key: (
            sum(one.kind == "take" for one in life),
            sum(one.spent for one in life if one.has_left and one.before == "ready"),
            sum(one.spent for one in life if one.has_left and one.before == "taken"),
            next((one.kind for one in reversed(life) if one.after is None), None),
        )
        for key, life in lives.items()
    }


def test_sketches_merge_to_percentiles_of_a_day(views, two_days):
    days = defaultdict(list)
    for (date, tube, phase, _), ms in durations(facts(two_days)).items():
        days[date, tube, phase] += ms
    rows = views.table("taskraft_percentiles").collect()
    assert len(rows) == len(days)
    for row in rows:
        ms = sorted(days[row.date, row.tube, row.phase])
        assert (row.durations, row.max_ms) == (len(ms), ms[-1])
        for wanted, found in ((0.5, row.p50_ms), (0.95, row.p95_ms), (0.99, row.p99_ms)):
            low, high = bisect_left(ms, found) / len(ms), bisect_right(ms, found) / len(ms)
            assert low - 0.03 <= wanted <= high + 0.03


def test_the_depth_ends_with_the_tasks_that_are_left(views, two_days):
    left = {}
    for fact in facts(two_days):
        left[fact.tube, fact.task_id] = fact.after
    expected = Counter((tube, state) for (tube, _), state in left.items() if state)
    last = "SELECT tube, state, max_by(tasks, minute) AS tasks FROM taskraft_depth GROUP BY 1, 2"
    found = {(row.tube, row.state): row.tasks for row in views.sql(last).collect() if row.tasks}
    assert found == expected


def test_rates_and_fairness_are_plausible(views):
    row = views.sql("SELECT max(jain_index) AS j, min(jain_index) AS i FROM taskraft_fairness")
    assert 0 < row.first().i <= row.first().j <= 1
    new = views.table("taskraft_new_failures")
    keys = [(one.tube, one.reason, one.fingerprint) for one in new.collect()]
    assert keys
    every = views.table("taskraft_failures").select("tube", "reason", "fingerprint").distinct()
    assert {tuple(one) for one in every.collect()} == set(keys)
    rates = views.sql("SELECT * FROM taskraft_worker_rates WHERE failure_rate > 1").count()
    assert rates == 0


@pytest.mark.parametrize(
    ("workers", "offered", "waits"), [(1, 0.5, 0.5), (2, 1.0, 1 / 3), (10, 8.0, 0.4092), (3, 3, 1)]
)
def test_the_probability_of_a_wait_is_that_of_erlang(workers, offered, waits):
    assert erlang_c(workers, offered) == pytest.approx(waits, abs=1e-4)


def test_the_number_of_workers_is_the_smallest_that_keeps_the_wait():
    load = CapacityLoad(arrivals_per_s=8.0, run_s=1.0)
    assert load.mean_wait_s(10) == pytest.approx(0.4092 / 2, abs=1e-4)
    workers = load.workers_for(0.2)
    assert load.mean_wait_s(workers) <= 0.2 < load.mean_wait_s(workers - 1)
    assert load.workers_for(1e9) == 9
    assert CapacityLoad(0.0, 1.0).workers_for(0.0) == 1
    even = CapacityLoad(8.0, 1.0, arrival_variation=0.0, run_variation=0.0)
    assert even.mean_wait_s(9) == 0
    with pytest.raises(ValueError, match="at least 0 s"):
        load.workers_for(-1)


# This test is the last test with the tables, because the views do not see the files that it writes.
def test_only_dates_with_new_events_are_computed_again(spark, compacted, tables):
    assert analyse(spark, compacted, tables, TARGETS).dates == ()
    path = tables / STATE
    stored = json.loads(path.read_text())
    last = max(stored["dates"])
    stored["dates"][last] -= 1
    path.write_text(json.dumps(stored))
    rows = spark.read.parquet(str(tables / "task_days")).count()
    assert analyse(spark, compacted, tables, TARGETS).dates == (last,)
    assert spark.read.parquet(str(tables / "task_days")).count() == rows
    assert set(known_dates(tables, compacted, TARGETS)) == set(stored["dates"])
    assert not known_dates(tables, compacted, WaitTargets())
    path.write_text(json.dumps({**stored, "journal": "another"}))
    with pytest.raises(JournalRefused, match="another journal"):
        analyse(spark, compacted, tables)
