"""Write rows as tasks, in batch and streaming queries: each row once, whoever dies."""

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from taskraft_pipeline.errors import OptionInvalid, TransactionRefused, TransactionReused
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.options import Options
from taskraft_pipeline.sink.sink_options import parse_sink
from taskraft_pipeline.sink.task_rows import check_columns, task_spec
from taskraft_pipeline.sink.transaction import TRANSACTIONS, Transaction
from tests.pipeline import sink_kills
from tools.local_cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

STREAM_TASKS, FILES = 4_000, 5


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with LocalCluster(3, tmp_path_factory.mktemp("nodes")) as cluster:
        yield cluster


@pytest.fixture
def connection(nodes):
    options = Options(endpoints=tuple(nodes.target.split(",")))
    with FeedClient(options.endpoints, options) as opened:
        yield opened


def write(frame, nodes, **options):
    writer = frame.write.format("taskraft").mode("append")
    writer.options(endpoints=nodes.target, **options).save()


def listed(client, tube):
    return list(client.tube(tube).list())


def held(client, tube):
    return client.stats(tube).tubes[0].tasks.held


def test_a_batch_puts_a_task_for_each_row_once_per_version(spark, nodes, client):
    for name in ("mail", "sms"):
        client.create_tube(name)
    frame = spark.createDataFrame(
        [("mail", "a", 5, 0, {"h": "1"}), ("sms", "b", None, 3_600_000, None)],
        "tube STRING, payload STRING, priority INT, delay_ms BIGINT, headers MAP<STRING, STRING>",
    )
    for _ in range(2):
        write(frame, nodes, txnAppId="daily", txnVersion="7")
    (mail,), (sms,) = listed(client, "mail"), listed(client, "sms")
    assert (mail.text(), mail.priority, mail.state) == ("a", 5, "READY")
    assert dict(mail.headers) == {"h": b"1"}
    assert (sms.text(), sms.state) == ("b", "DELAYED")
    write(frame, nodes)
    assert len(listed(client, "mail")) == 2


def test_invalid_rows_are_written_into_a_folder_or_fail_the_query(spark, nodes, client, tmp_path):
    client.create_tube("bulk")
    rows = [("bulk", "good", ""), (None, "no tube", ""), ("nowhere", "x", ""), ("bulk", None, "")]
    rows += [("bulk", "long", "t" * 200), ("bulk", "good too", "")]
    frame = spark.createDataFrame(rows, "tube STRING, payload STRING, type STRING").coalesce(1)
    with pytest.raises(PySparkException, match="INVALID_FIELD: tube: is null; set the option rej"):
        write(frame, nodes)
    assert listed(client, "bulk") == []
    folder = tmp_path / "rejects"
    write(frame, nodes, rejects=str(folder), txnAppId="a/b", txnVersion="3")
    assert [task.text() for task in listed(client, "bulk")] == ["good", "good too"]
    place = folder / "app=a%2Fb" / "version=000000000003.parquet"
    found = {(one["reason"], one["payload"]) for one in pq.ParquetFile(place).read().to_pylist()}
    assert found == {
        ("INVALID_FIELD", b"no tube"),
        ("TUBE_NOT_FOUND", b"x"),
        ("INVALID_FIELD", None),
        ("INVALID_FIELD", b"long"),
    }


@pytest.mark.nightly  # `make spark-kills` in small
def test_a_stream_puts_each_row_once_though_driver_and_leader_are_killed(
    spark, nodes, client, tmp_path
):
    client.create_tube(sink_kills.TUBE)
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    sink_kills.write_source(source, STREAM_TASKS, FILES)
    driver = sink_kills.start_driver(nodes.target, source, checkpoint)
    try:
        sink_kills.wait_committed(driver, nodes.target, checkpoint, 1)
    finally:
        sink_kills.kill_driver(driver)
    leader = nodes.wait_ready()
    leader.kill()

    def finish():
        sink_kills.start_query(spark, nodes.target, source, checkpoint).awaitTermination()

    finish()
    # A driver that dies after the commit and before Spark's own log repeats the last batch.
    (checkpoint / "commits" / str(FILES - 1)).unlink()
    for place in (checkpoint / "commits").glob(".*.crc"):
        place.unlink()
    finish()
    leader.start()
    nodes.wait_ready()
    found = sink_kills.count_tasks(spark, nodes.target)
    assert found == (STREAM_TASKS, STREAM_TASKS, 0)
    with pytest.raises(PySparkException, match="choose a new txnAppId"):
        sink_kills.start_query(spark, nodes.target, source, tmp_path / "another").awaitTermination()


def test_a_transaction_is_committed_once_and_a_repeated_one_leaves_nothing(connection, client):
    client.create_tube("staged")
    first, again = (Transaction(connection, "app", 1, "query") for _ in range(2))
    stages = []
    for transaction, payload in ((first, b"first"), (again, b"again")):
        stage = transaction.open_stage(60_000)
        transaction.put(stage, "staged", [task_spec({"payload": payload})] * 2)
        stages.append(stage)
    assert held(client, "staged") == 4
    assert first.commit(stages[:1], 2, 60_000)
    assert not again.commit(stages[1:], 2, 60_000)
    again.delete_stages(stages)  # the stage that is committed does not change
    assert [task.text() for task in listed(client, "staged")] == ["first", "first"]
    with pytest.raises(TransactionReused):
        Transaction(connection, "app", 1, "another query").is_committed()
    assert client.tube(TRANSACTIONS).take(wait=0) is None


def test_a_stage_that_has_ended_is_not_committed(connection, client):
    client.create_tube("late")
    transaction = Transaction(connection, "app", 2, "query")
    stage = transaction.open_stage(60_000)
    transaction.put(stage, "late", [task_spec({"payload": b"x"})])
    transaction.delete_stages([stage])
    with pytest.raises(TransactionRefused, match="set a longer stageTtl"):
        transaction.commit([stage], 1, 60_000)
    assert not transaction.is_committed()
    assert listed(client, "late") == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"read": "tasks"}, "unknown option read"),
        ({"txnVersion": "1"}, "together with txnAppId"),
        ({"txnAppId": "x" * 201}, "at most 200 bytes"),
        ({"stageTtl": "0s"}, "stageTtl must be from 1ms to 366d"),
    ],
)
def test_options_that_are_not_valid_are_refused(options, text):
    with pytest.raises(OptionInvalid, match=text):
        parse_sink({"endpoints": "127.0.0.1:1", **options})


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"payload": "string", "id": "bigint"}, "unknown column id"),
        ({"payload": "double"}, "column payload must be binary or string; it is double"),
        ({"tube": "string"}, "the column payload is missing"),
        ({"payload": "binary"}, "the column tube is missing"),
    ],
)
def test_columns_that_are_not_valid_are_refused(columns, text):
    with pytest.raises(OptionInvalid, match=text):
        check_columns(columns, "")


def test_an_overwrite_is_refused(spark, nodes):
    frame = spark.createDataFrame([("x",)], "payload STRING")
    with pytest.raises(PySparkException, match="tasks can only be added"):
        frame.write.format("taskraft").mode("overwrite").options(
            endpoints=nodes.target, tube="mail"
        ).save()
