"""Deadlines, schedules, workers and crashes, in memory and on a real node.

Only the order of events is checked: a deadline that must not have passed yet is an hour away.
"""

from datetime import UTC, datetime, timedelta

import pytest

from taskraft import Retry
from taskraft.testing import NotInReal
from taskraft.worker.errors import RejectTask, TaskFailed
from tests.clients.testing import shop


@pytest.fixture(autouse=True)
def nothing_delivered():
    shop.delivered.clear()


@pytest.fixture
def app(taskraft):
    taskraft.use_app(shop.app)
    return shop.app


def test_delays_and_lives_end(taskraft, tube):
    late, soon, short = (
        tube.put("late", delay="1h"),
        tube.put("soon", delay="200ms"),
        tube.put("short", ttl="200ms"),
    )
    taskraft.advance("500ms")
    assert {task.id: task.state for task in taskraft.tasks(tube.name)} == {
        late: "DELAYED",
        soon: "READY",
    }
    assert tube.wait(short)[0].outcome == "NOT_KEPT"


def test_an_absolute_time_is_a_datetime(taskraft, tube):
    due = taskraft.clock.now + timedelta(hours=1)
    task = tube.put_and_read("later", visible_at=due)
    assert task.state == "DELAYED"
    assert abs(task.visible_at - due) < timedelta(milliseconds=2)


def test_a_lease_ends_and_the_retry_policy_follows(taskraft, client, tube):
    client.update_tube(tube.name, retry=Retry(attempts_max=2, backoff="100ms", jitter=0))
    tube.put("held")
    assert tube.take(ttr="200ms", touch_max=0).attempt == 1
    taskraft.advance("600ms")
    (task,) = taskraft.tasks(tube.name)
    assert (task.state, task.failed_attempts) == ("READY", 1)
    tube.take(wait=0).release(reason=ValueError("broken"))
    (task,) = taskraft.tasks(tube.name)
    assert (task.state, task.failure) == ("BURIED", "ValueError: broken")


def test_a_lost_lease_is_refused(taskraft, tube):
    tube.put("held")
    task = tube.take(wait=0)
    taskraft.lose_lease(task)
    assert tube.take(wait=0).token > task.token


def test_a_schedule_has_the_same_next_time(taskraft, client, tube):
    made = client.schedules.create(
        f"nightly {tube.name}".replace(" ", "-"),
        "30 2 * * *",
        tube.task("report"),
        time_zone="Europe/Vienna",
    )
    assert made.next > datetime.now(UTC)
    assert (made.next.minute, made.next.second) == (30, 0)


def test_a_worker_returns_results_and_reports_failures(taskraft, app):
    assert taskraft.run_task(shop.welcome, "Anna") == "Hello Anna"
    assert taskraft.run_task(shop.in_thread, "Ben") == "Hello Ben"
    taskraft.assert_sent(shop.welcome, "Ben")
    handle = shop.broken.put("x")
    with taskraft.expect_failures(ValueError):
        taskraft.run_until_idle()
    assert handle.status().state == "DELAYED"
    assert handle.status().failure == "ValueError: x"


def test_a_worker_puts_tasks_with_its_acknowledgement(taskraft, app):
    shop.parent.put("Cleo")
    assert taskraft.run_until_idle().attempts == 2
    assert shop.delivered == ["Cleo"]


@pytest.mark.parametrize(
    ("at", "state"),
    [("before_run", "TAKEN"), ("in_run", "TAKEN"), ("before_ack", "TAKEN"), ("after_ack", "")],
)
def test_a_crash_keeps_the_lease_until_the_outcome_is_stored(taskraft, app, at, state):
    handle = shop.welcome.put("Dora")
    with taskraft.crash(at):
        taskraft.run_until_idle()
    assert taskraft.states("mail").get("TAKEN", 0) == (state == "TAKEN")
    if not state:
        assert handle.result() == "Hello Dora"
    assert shop.delivered == ([] if at == "before_run" else ["Dora"])


def test_a_lost_lease_ends_the_attempt_of_a_worker(taskraft, app):
    handle = shop.slow.put(3_600)
    taskraft.run_until_idle()
    taskraft.lose_lease(handle)
    taskraft.run_until_idle()
    assert handle.status().attempt == 2


def test_tasks_and_leases_are_there_after_a_change_of_leader(taskraft, client, tube):
    client.create_tube("cache", durability="temporary")
    client.tube("cache").put("volatile")
    tube.put_many(["held", "ready"])
    task = tube.take(wait=0)
    taskraft.change_leader()
    assert taskraft.states(tube.name) == {"READY": 1, "TAKEN": 1}
    assert taskraft.states("cache") == {}
    task.ack()
    assert taskraft.states(tube.name) == {"READY": 1}


def test_a_failed_task_raises_in_its_caller(taskraft, app):
    taskraft.fail(shop.welcome, RejectTask("no address"))
    handle = shop.welcome.put("Emil")
    taskraft.run_until_idle()
    with pytest.raises(TaskFailed, match="RejectTask: no address"):
        handle.result("10s")


def test_only_a_cluster_in_memory_moves_the_clock_over_hours(request, taskraft, tube):
    tube.put("later", delay="10h")
    if "real" in request.node.name:
        with pytest.raises(NotInReal, match="by 36000 s needs a cluster in memory"):
            taskraft.advance("10h")
    else:
        taskraft.advance("10h")
        assert tube.take(wait=0) is not None
