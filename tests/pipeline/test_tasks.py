"""Read the current tasks of real nodes as a table, and compare them with the feed."""

from functools import reduce

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from taskraft import Client
from taskraft_pipeline.errors import OptionInvalid
from taskraft_pipeline.options import parse
from taskraft_pipeline.schema import TASK_COLUMNS
from taskraft_pipeline.task_audit import CHANGE_COLUMNS, differences, tasks_after
from taskraft_pipeline.task_snapshot import TaskRange, open_snapshot, split_ranges
from tools.local_cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

ENV = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Return three nodes with tasks in several states."""
    with (
        LocalCluster(3, tmp_path_factory.mktemp("nodes"), ENV) as cluster,
        Client(cluster.target) as client,
    ):
        work(client, 1)
        yield cluster


def work(client, number):
    """Put tasks into two tubes, and change most of them; leave tasks in several states."""
    mail, sms = client.tube("mail"), client.tube("sms")
    mail.put_many([f"{number}-{place}" for place in range(300)])
    sms.put_many([b"x" * 3_000] * 20, delay="1h", type="reminder")
    for place, task in enumerate(taken(mail, 120)):
        if place % 4 == 0:
            task.ack()
        elif place % 4 == 1:
            task.bury(ValueError(f"task {place} failed"))
        elif place % 4 == 2:
            task.release(delay="1h")
    mail.kick(5)
    sms.put("once", key=("a", str(number)))


def taken(tube, count):
    found = []
    while len(found) < count:
        found += tube.take_many(count - len(found), wait="5s")
    return found


def source(spark, nodes, **options):
    return spark.read.format("taskraft").options(endpoints=nodes.target, **options).load()


def snapshot(spark, nodes, **options):
    return source(spark, nodes, read="tasks", **options)


def test_a_snapshot_and_the_events_after_it_give_the_next_snapshot(spark, nodes):
    before = snapshot(spark, nodes, targetEventsPerTask="150")
    revision = before.select("revision").first().revision
    with Client(nodes.target) as client:
        work(client, 2)
    after = snapshot(spark, nodes, targetEventsPerTask="150").cache()
    changes = source(spark, nodes, columns=",".join(CHANGE_COLUMNS)).cache()
    # Spark plans a DataFrame once, so `before` still is the old snapshot.
    expected = {
        "from the snapshot": tasks_after(changes.where(changes.revision > revision), before),
        "from the first event": tasks_after(changes),
        "with a gap": tasks_after(changes.where("task_id % 7 > 0")),
    }
    found = [
        differences(tasks, after).select(F.lit(name).alias("name"))
        for name, tasks in expected.items()
    ]
    counts = reduce(DataFrame.union, found).groupBy("name").count().collect()
    assert [row.name for row in counts] == ["with a gap"]
    states = {(row.tube, row.state) for row in after.select("tube", "state").distinct().collect()}
    assert states == {
        *(("mail", state) for state in ("ready", "taken", "buried", "delayed")),
        *(("sms", state) for state in ("ready", "delayed")),
    }


def test_the_columns_of_a_task(spark, nodes):
    names = "tube,task_id,state,unique_key,payload,reason,type,visible_ts,outcome"
    tasks = snapshot(spark, nodes, columns=names, tubes="sms").cache()
    keyed = tasks.where("unique_key IS NOT NULL").orderBy("task_id").first()
    assert (keyed.unique_key, bytes(keyed.payload), keyed.state) == ('["a", "1"]', b"once", "ready")
    assert (keyed.reason, keyed.type, keyed.visible_ts, keyed.outcome) == (None,) * 4
    delayed = tasks.where("type = 'reminder'").first()
    assert (len(delayed.payload), delayed.state) == (3_000, "delayed")
    assert delayed.visible_ts is not None
    assert {row.tube for row in tasks.select("tube").distinct().collect()} == {"sms"}
    mail = snapshot(spark, nodes, tubes="mail")
    assert mail.columns == [name for name in TASK_COLUMNS if name != "payload"]
    buried = mail.where("state = 'buried'").first()
    assert (buried.reason, buried.times_buried) == ("ValueError", 1)
    assert buried.message.endswith(" failed")


def test_a_follower_serves_the_snapshot(nodes):
    found = open_snapshot(parse({"endpoints": nodes.target, "read": "tasks"}))
    leader = nodes.wait_ready()
    assert found.endpoint != leader.address
    assert [one.tube for one in found.ranges] == ["mail", "sms"]


def test_a_snapshot_that_the_node_has_deleted_fails_the_query(spark, nodes):
    tasks = snapshot(spark, nodes, snapshotTtl="1ms")
    with pytest.raises(PySparkException, match=r"call load\(\) again"):
        read_until_it_fails(tasks)


def read_until_it_fails(tasks):
    """Read a snapshot again and again; the node deletes it 1 ms after the last read."""
    while True:
        tasks.collect()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"read": "task"}, "read must be changes, tasks or work"),
        ({"read": "tasks", "startingOffsets": "latest"}, "cannot be combined with read=tasks"),
        ({"snapshotTtl": "5m"}, "cannot be combined with read=changes"),
        ({"read": "tasks", "snapshotTtl": "2h"}, "from 1ms to 1h"),
        ({"read": "tasks", "columns": "seq"}, "unknown column seq"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, text):
    with pytest.raises(OptionInvalid, match=text):
        parse({"endpoints": "127.0.0.1:1", **options})


def test_a_stream_of_tasks_is_refused(spark, nodes):
    stream = spark.readStream.format("taskraft").options(endpoints=nodes.target, read="tasks")
    with pytest.raises(PySparkException, match="read=tasks is for batch queries"):
        stream.load().writeStream.format("noop").start().awaitTermination()


def test_a_large_tube_is_cut_and_small_tubes_share_a_spark_task():
    ranges = [TaskRange("a", 10, 40, 90_000), TaskRange("b", 0, 5, 5), TaskRange("c", 0, 9, 3)]
    assert split_ranges(ranges, 30_000) == [
        (TaskRange("a", 10, 20, 30_000),),
        (TaskRange("a", 20, 30, 30_000),),
        (TaskRange("a", 30, 40, 30_000),),
        (TaskRange("b", 0, 5, 5), TaskRange("c", 0, 9, 3)),
    ]
    assert split_ranges([TaskRange("a", 0, 2, 2)], 1) == [
        (TaskRange("a", 0, 1, 1),),
        (TaskRange("a", 1, 2, 1),),
    ]
