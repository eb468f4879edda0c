"""Dependencies between tasks: how the client names them, and their outcomes."""

import shlex
import uuid

import pytest
from click.testing import CliRunner

from taskraft import Batch, errors
from taskraft._dependencies import references
from taskraft.cli import main


@pytest.fixture
def client(taskraft):
    return taskraft.client


@pytest.fixture
def tube(client):
    client.create_tube("work")
    return client.tube("work")


@pytest.fixture
def other(client):
    name = f"tube-{uuid.uuid4()}"
    client.create_tube(name, "fifottl")
    return client.tube(name)


def test_a_dependency_is_named_by_task_string_or_id(tube, other):
    first, second, third = tube.put("a"), tube.put("b"), other.put("c")
    taken = tube.take(wait=0)
    last = tube.put("d", depends_on=[taken, second, f"{other.name}/{third}"])
    waits = [f"{tube.name}/{first}", f"{tube.name}/{second}", f"{other.name}/{third}"]
    assert tube.peek(last).waits_for == waits
    taken.ack()
    assert tube.peek(last).waits_for == waits[1:]
    assert tube.take(wait=0).id == second


def test_a_removed_task_is_refused_as_a_dependency(tube):
    tube.put("a")
    taken = tube.take(wait=0)
    taken.ack()
    with pytest.raises(errors.DependencyNotFound) as refused:
        tube.put("b", depends_on=[taken])
    assert refused.value.metadata["field"] == "depends_on[0]"


def test_a_graph_and_a_chain_are_put_in_one_batch(client, tube, other):
    parts = [tube.task(f"part {n}") for n in range(3)]
    whole = other.task("whole", depends_on=parts)
    batch = Batch().put(*parts).chain(whole, other.task("checked"), tube.task("sent"))
    results = client.execute(batch)
    assert [len(result.put.task_ids) for result in results] == [3, 2, 1]
    done = []
    while taken := (tube.take(wait=0) or other.take(wait=0)):
        done.append(taken.text())
        taken.ack()
    assert done == ["part 0", "part 1", "part 2", "whole", "checked", "sent"]


def test_a_failure_ends_the_chain_and_wakes_waiting_callers(client, tube):
    chain = Batch().chain(*(tube.task(name) for name in "abc"))
    (put,) = client.execute(chain)
    first, second, third = put.put.task_ids
    runs = tube.put("d", depends_on=[first], on_dependency_failure="run")
    tube.delete(first)
    assert tube.peek(runs).message.failure.message == f"{tube.name}/{first}: DELETED"
    assert tube.take(wait=0).id == runs
    ended = tube.wait([second, third], wait="10s")
    assert [task.outcome for task in ended] == ["DEPENDENCY_FAILED"] * 2
    assert ended[1].message.failure.message == f"{tube.name}/{second}: DEPENDENCY_FAILED"


def test_a_planned_task_can_only_be_a_dependency_in_its_own_batch(client, tube):
    before = tube.task("a")
    after = tube.task("b", depends_on=[before])
    with pytest.raises(ValueError, match="does not put before it"):
        Batch().put(after, before)
    with pytest.raises(ValueError, match="in the same Batch"):
        client.groups.create(f"group-{uuid.uuid4()}", end_task=after)
    with pytest.raises(TypeError, match="in the same Batch"):
        tube.put("c", depends_on=[before])
    with pytest.raises(ValueError, match=r"depends_on must be existing tasks.*, not 'emails'"):
        references(["emails"], "emails")


def test_the_command_line_names_what_a_task_depends_on(tube):
    first = tube.put("a")
    line = f"put {tube.name} b --depends-on {tube.name}/{first} --on-dependency-failure run"
    result = CliRunner().invoke(main, shlex.split(line))
    assert result.exit_code == 0, result.output
    assert "READY" not in result.output
    assert tube.peek(int(result.output.strip().rpartition("/")[2])).state == "HELD"
