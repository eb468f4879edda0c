"""Dump tasks as a plan, put the plan once, and import files."""

import pytest

from taskraft_pipeline.errors import JournalRefused, OptionInvalid
from taskraft_pipeline.task_plan import dump, import_files, paced, replay

pytestmark = [pytest.mark.spark, pytest.mark.cluster]


def payloads(client, tube):
    return sorted((task.text(), task.priority, task.state) for task in client.tube(tube).list())


def test_a_plan_is_put_once(spark, nodes, client, tmp_path):
    for name in ("letters", "again"):
        client.create_tube(name)
    letters = client.tube("letters")
    letters.put_many([f"letter {number}" for number in range(6)], priority=7, type="mail", ttl="1h")
    wanted = []
    for number, task in enumerate(letters.take_many(4)):
        if number % 2:
            task.bury(ValueError("no address"))
            wanted.append((task.text(), 7, "READY"))
        else:
            task.bury(TimeoutError("late"))
    folder = tmp_path / "plan"
    where = "state = 'buried' AND reason = 'ValueError'"
    plan = dump(spark, nodes.target, folder, ["letters"], where)
    assert plan.tasks == len(wanted) == 2
    with pytest.raises(OptionInvalid, match="contains a plan"):
        dump(spark, nodes.target, folder)
    for _ in range(2):
        assert replay(spark, nodes.target, folder, "again") == plan
    assert payloads(client, "again") == sorted(wanted)
    with pytest.raises(JournalRefused, match="contains no plan"):
        replay(spark, nodes.target, tmp_path)


def test_files_are_imported_once_per_name(spark, nodes, client, tmp_path):
    client.create_tube("rows")
    (tmp_path / "rows.csv").write_text('payload,priority\n"a, b",3\nc,\n')
    (tmp_path / "rows.jsonl").write_text('{"tube": "rows", "payload": "d", "priority": 4}\n')
    for _ in range(2):
        csv = str(tmp_path / "rows.csv")
        import_files(spark, nodes.target, csv, "csv", name="first", tube="rows")
    import_files(spark, nodes.target, str(tmp_path / "rows.jsonl"), "json", name="second")
    usual = client.tube("rows").put("usual")
    priority = client.tube("rows").peek(usual).priority
    client.tube("rows").delete(usual)
    assert payloads(client, "rows") == [
        ("a, b", 3, "READY"), ("c", priority, "READY"), ("d", 4, "READY"),
    ]  # fmt: skip


def test_a_rate_delays_the_tasks_in_order(spark):
    rows = spark.createDataFrame([(3, "c"), (1, "a"), (2, "b")], "task_id INT, payload STRING")
    found = {row.payload: row.delay_ms for row in paced(rows, ("task_id",), 2).collect()}
    assert found == {"a": 0, "b": 500, "c": 1_000}
    assert paced(rows, ("task_id",), 0).columns == ["task_id", "payload"]
