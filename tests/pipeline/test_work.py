"""Work on tasks with a streaming query: each batch is acknowledged after it is committed."""

from collections import Counter

import pytest
from pyspark.errors import PySparkException

from taskraft_pipeline.errors import OffsetInvalid, OptionInvalid
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.options import parse
from taskraft_pipeline.work_stream import WorkOffset, WorkStream, leased_tasks

pytestmark = [pytest.mark.spark, pytest.mark.cluster]


@pytest.fixture
def put(client):
    def tube_with(name, tasks):
        client.create_tube(name)
        client.tube(name).put_many([f"{name} {number}" for number in range(tasks)])
        return client.tube(name)

    return tube_with


@pytest.fixture
def open_stream(nodes):
    opened = []

    def stream(clock=lambda: 0.0, **options):
        parsed = parse({"endpoints": nodes.target, "read": "work", **options})
        sender = FeedClient(parsed.endpoints, parsed)
        opened.append(sender)
        return WorkStream(parsed, sender, clock), sender

    yield stream
    for sender in opened:
        sender.close()


def states(tube):
    return Counter(task.state for task in tube.list())


def test_a_batch_is_acknowledged_when_spark_asks_for_the_next_one(put, open_stream):
    mail = put("mail", 5)
    now = [0.0]
    stream, sender = open_stream(clock=lambda: now[0], tubes="mail")
    first = stream.latest(WorkOffset(), 3)
    assert (first.epoch, len(first.leases), states(mail)) == (1, 3, {"TAKEN": 3, "READY": 2})
    again = WorkOffset.from_json(first.to_json())
    tasks, _ = leased_tasks(sender, again.takes[0])
    assert [task.spec.payload for task in tasks] == [b"mail 0", b"mail 1", b"mail 2"]
    second = stream.latest(again, 3)
    assert (second.epoch, len(second.leases), states(mail)) == (2, 2, {"TAKEN": 2})
    assert stream.latest(second, 3) == second
    assert not states(mail)
    mail.put("late")
    assert stream.latest(second, 3) == second, "no take before the poll interval has passed"
    now[0] = 1.0
    assert stream.latest(second, 3).epoch == 3


def test_a_lease_that_has_ended_is_left_out_and_told(put, open_stream, caplog):
    lost = put("lost", 2)
    stream, sender = open_stream(tubes="lost")
    offset = stream.latest(WorkOffset(), 10)
    lost.delete(offset.leases[0].task_id)
    tasks, _ = leased_tasks(sender, offset.takes[0])
    assert [task.id for task in tasks] == [offset.leases[1].task_id]
    stream.latest(offset, 10)
    assert "1 of 2 leases had ended" in caplog.text
    assert not states(lost)


def test_a_bounded_query_ends_though_tasks_are_put_all_the_time(put, open_stream):
    busy = put("busy", 1)
    stream, _ = open_stream(tubes="busy")
    stream.fix_end()
    offset = stream.latest(WorkOffset(), 1)
    for _ in range(100):
        busy.put("more")
        following = stream.latest(offset, 1)
        if following == offset:
            break
        offset = following
    assert following == offset
    assert states(busy)["READY"] >= 1


def test_a_failed_batch_is_repeated_with_the_same_tasks(spark, nodes, put, tmp_path):
    work = put("work", 2_300)
    seen, fails = [], [True]

    def process(rows, epoch):
        payloads = sorted(bytes(row.payload).decode() for row in rows.collect())
        seen.append((epoch, payloads))
        if epoch == 1 and fails[0]:
            raise ValueError("planted")

    def run():
        source = spark.readStream.format("taskraft").options(
            endpoints=nodes.target, read="work", tubes="work", maxTasksPerTrigger="1000",
            columns="tube,task_id,payload",
        )  # fmt: skip
        query = source.load().writeStream.foreachBatch(process)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(PySparkException, match="planted"):
        run()
    assert states(work) == {"TAKEN": 1_000, "READY": 300}
    fails[0] = False
    run()
    assert not states(work)
    assert [(epoch, len(payloads)) for epoch, payloads in seen] == [
        (0, 1_000), (1, 1_000), (1, 1_000), (2, 300),
    ]  # fmt: skip
    assert seen[1] == seen[2]
    once = [payload for _, payloads in (seen[0], *seen[2:]) for payload in payloads]
    assert Counter(once) == Counter(f"work {number}" for number in range(2_300))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "needs the option tubes"),
        ({"tubes": "a", "consumer": "c"}, "consumer cannot be combined with read=work"),
        ({"tubes": "a", "leaseTime": "10ms"}, "leaseTime must be from 1s to 1d"),
        ({"tubes": "a", "maxTasksPerTrigger": "50001"}, "at most 50000"),
        ({"read": "tasks", "leaseTime": "1m"}, "leaseTime cannot be combined with read=tasks"),
    ],
)
def test_options_that_are_not_valid_are_refused(options, text):
    with pytest.raises(OptionInvalid, match=text):
        parse({"endpoints": "127.0.0.1:1", "read": "work", **options})


@pytest.mark.parametrize(
    "stored",
    [{}, {"v": 2, "epoch": 1, "takes": []}, {"v": 1, "epoch": 1, "takes": [[["tube", "x", 1]]]}],
)
def test_an_offset_of_another_form_is_refused(stored):
    with pytest.raises(OffsetInvalid, match="offset of read=work"):
        WorkOffset.from_json(stored)


def test_a_batch_query_cannot_work(spark):
    with pytest.raises(PySparkException, match="read=work is for streaming queries"):
        spark.read.format("taskraft").options(
            endpoints="127.0.0.1:1", read="work", tubes="a"
        ).load().collect()
