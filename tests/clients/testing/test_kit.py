"""The test kit: the clock, the worker of an app, what was sent, and faults."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from taskraft import AsyncClient, Client, Retry, errors
from taskraft.testing import ClockStuck, Kit, TasksLeft, _memory_network
from taskraft.worker.errors import TaskFailed
from tests.clients.testing import shop

pytestmark = pytest.mark.taskraft(app=shop.app)


@pytest.fixture(autouse=True)
def nothing_delivered():
    shop.delivered.clear()


@pytest.fixture
def tube(taskraft):
    taskraft.client.create_tube("plain", retry=Retry(attempts_max=3, backoff="10s", jitter=0))
    return taskraft.client.tube("plain")


# ---------------------------------------------------------------------------- clock


def test_a_delayed_task_is_ready_when_its_delay_is_over(taskraft, tube):
    tube.put("later", delay="1h")
    taskraft.advance("59m")
    assert tube.take(wait=0) is None
    taskraft.advance("1m")
    assert tube.take(wait=0).text() == "later"


@pytest.mark.parametrize("days", [389, 40_000])
def test_the_clock_goes_on_after_more_than_a_year(taskraft, tube, days):
    taskraft.advance(f"{days}d")
    tube.put("later", delay="1s")
    taskraft.advance("999ms")
    assert tube.take(wait=0) is None
    assert tube.take(wait="1s").text() == "later"


def test_a_task_expires_at_its_ttl(taskraft, tube):
    tube.put("short", ttl="10m")
    taskraft.advance("9m")
    assert taskraft.states("plain") == {"READY": 1}
    taskraft.advance("2m")
    assert taskraft.states("plain") == {}


def test_a_lease_ends_at_its_ttr(taskraft, tube):
    tube.put("held")
    assert tube.take(ttr="1m", touch_max=0).attempt == 1
    taskraft.advance("30s")
    assert taskraft.states("plain") == {"TAKEN": 1}
    taskraft.advance("30s")
    assert taskraft.states("plain") == {"DELAYED": 1}


def test_a_lease_is_renewed_while_its_task_is_in_progress(taskraft, tube):
    tube.put("long work")
    with tube.take(ttr="1m"):
        taskraft.advance("1h")
        assert taskraft.states("plain") == {"TAKEN": 1}
    assert taskraft.states("plain") == {}


@pytest.mark.taskraft(app=shop.app, start="2027-03-27T12:00+01:00")
def test_a_schedule_runs_at_its_local_time_across_a_clock_change(taskraft, tube):
    taskraft.client.schedules.create(
        "nightly", "30 3 * * *", tube.task("report"), time_zone="Europe/Vienna"
    )
    taskraft.advance_to("2027-03-28T03:29+02:00")
    assert taskraft.states("plain") == {}
    taskraft.advance("1m")
    assert taskraft.states("plain") == {"READY": 1}
    taskraft.advance("1d")
    assert taskraft.states("plain") == {"READY": 2}


def test_a_call_that_waits_moves_the_clock_instead_of_the_test(taskraft, tube):
    before = taskraft.clock.now
    began = time.monotonic()
    assert tube.take(wait="1h") is None
    assert (taskraft.clock.now - before).total_seconds() == pytest.approx(3600, abs=1)
    tube.put("soon", delay="20m")
    assert tube.take(wait="1h").text() == "soon"
    assert time.monotonic() - began < 3600


@pytest.mark.taskraft(wait_max="1h")
def test_a_call_that_never_ends_says_so(taskraft, tube):
    with pytest.raises(ClockStuck, match="1 h of virtual time"):
        tube.take()
    assert taskraft.states("plain") == {}


def test_the_clock_cannot_go_back(taskraft):
    with pytest.raises(ValueError, match="cannot go back"):
        taskraft.advance_to("2001-01-01T00:00Z")
    with pytest.raises(ValueError, match="time zone"):
        taskraft.advance_to("2099-01-01T00:00")


def test_thirty_idle_days_need_no_heartbeats(taskraft, tube):
    tube.take(wait=0)
    taskraft.advance("30d")
    tube.put("after a month")
    assert tube.take(wait=0).text() == "after a month"


# ---------------------------------------------------------------------------- worker


def test_the_worker_runs_only_when_the_test_says_so(taskraft):
    taskraft.run_until_idle()
    handle = shop.welcome.put("Anna")
    assert taskraft.states("mail") == {"READY": 1}
    assert shop.delivered == []
    report = taskraft.run_until_idle()
    assert report.attempts == 1
    assert handle.result() == "Hello Anna"


def test_one_line_puts_runs_and_returns(taskraft):
    assert taskraft.run_task(shop.welcome, "Ben") == "Hello Ben"


def test_a_handler_in_a_thread_may_put_and_wait(taskraft):
    assert taskraft.run_task(shop.in_thread, "Cleo") == "Hello Cleo"
    assert shop.delivered[0].startswith("taskraft-worker")


def test_failed_attempts_follow_the_retry_policy_of_the_tube(taskraft):
    handle = shop.broken.put("x")
    with taskraft.expect_failures(ValueError) as failures:
        taskraft.run_until_idle()
        assert taskraft.states("mail") == {"DELAYED": 1}
        taskraft.advance("9s")
        assert len(failures) == 1
        taskraft.advance("1s")
        assert len(failures) == 2
        taskraft.advance("20s")
    assert [str(each) for each in failures] == ["x", "x", "x"]
    assert taskraft.states("mail") == {"BURIED": 1}
    assert handle.outcome().outcome == "BURIED_OUT"


def test_a_failure_that_nobody_expects_fails_the_test(taskraft):
    shop.broken.put("surprise")
    with pytest.raises(ExceptionGroup) as raised:
        taskraft.run_until_idle()
    assert [str(each) for each in raised.value.exceptions] == ["surprise"]


def test_an_expected_failure_must_happen(taskraft):
    shop.welcome.put("Dora")
    with (
        pytest.raises(AssertionError, match="no handler has failed with ValueError"),
        taskraft.expect_failures(ValueError),
    ):
        taskraft.run_until_idle()


def test_retries_and_snoozes_are_no_failures(taskraft):
    shop.poll.put("https://example.org")
    snoozed = shop.snooze.put(2)
    taskraft.run_until_idle()
    assert taskraft.states("mail") == {"DELAYED": 2}
    taskraft.advance("2h")
    assert snoozed.result() == "awake"


def test_a_long_handler_ends_at_its_time(taskraft):
    handle = shop.slow.put(60)
    taskraft.run_until_idle()
    assert taskraft.states("mail") == {"TAKEN": 1}
    taskraft.advance("59s")
    assert taskraft.states("mail") == {"TAKEN": 1}
    taskraft.advance("1s")
    assert handle.result() == "done"


def test_a_time_limit_ends_a_handler(taskraft):
    shop.slow.put(3600)
    report = taskraft.advance("10m")
    assert report.attempts == 1
    assert taskraft.states("mail") == {"DELAYED": 1}


def test_a_handler_sees_a_cancellation(taskraft):
    handle = shop.slow.put(500)
    taskraft.run_until_idle()
    handle.cancel()
    taskraft.advance("15s")
    assert handle.outcome().outcome == "DELETED"


def test_run_until_empty_goes_from_deadline_to_deadline(taskraft):
    shop.welcome.options(delay="3d").put("late")
    before = taskraft.clock.now
    assert taskraft.run_until_empty().attempts == 1
    assert (taskraft.clock.now - before).days == 3


def test_run_until_empty_names_what_is_left(taskraft):
    shop.poll.put("https://example.org")
    with pytest.raises(TasksLeft, match="1 tasks are not finished: mail/1 DELAYED"):
        taskraft.run_until_empty("90s")


def test_injected_errors_replace_the_handler(taskraft):
    taskraft.fail(shop.welcome, OSError("disk"))
    handle = shop.welcome.put("Emil")
    with taskraft.expect_failures(OSError):
        taskraft.run_until_idle()
    assert shop.delivered == []
    taskraft.advance("10s")
    assert handle.result() == "Hello Emil"


# ---------------------------------------------------------------------------- sent


def test_what_was_sent_is_known_after_it_was_done(taskraft):
    taskraft.run_task(shop.welcome, "Fay")
    taskraft.assert_sent(shop.welcome, "Fay")
    with pytest.raises(AssertionError, match="was not put with"):
        taskraft.assert_sent(shop.welcome, "Gil")
    assert [task.json() for task in taskraft.sent("mail")] == [{"name": "Fay"}]


def test_tasks_of_batches_and_of_raw_clients_are_sent_too(taskraft, tube):
    shop.parent.put("Hugo")
    taskraft.run_until_idle()
    taskraft.assert_sent(shop.welcome, "Hugo")
    tube.put_many([b"1", b"2"])
    assert [task.payload for task in taskraft.sent("plain")] == [b"1", b"2"]


def test_a_put_whose_answer_is_lost_is_sent_once(taskraft, tube):
    with taskraft.lost_answers(), pytest.raises(errors.TaskraftError):
        tube.put("once", timeout="3s")
    assert len(taskraft.sent("plain")) == 1
    assert taskraft.states("plain") == {"READY": 1}


# ---------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("at", "done"), [("before_run", []), ("in_run", ["Ida"]), ("before_ack", ["Ida"])]
)
def test_a_crash_of_the_worker_costs_the_session_time_and_one_attempt(taskraft, at, done):
    handle = shop.welcome.put("Ida")
    with taskraft.crash(at):
        taskraft.run_until_idle()
    assert shop.delivered == done
    assert taskraft.states("mail") == {"TAKEN": 1}
    taskraft.advance("14s")
    assert taskraft.states("mail") == {"TAKEN": 1}
    taskraft.advance("1s")
    assert taskraft.states("mail") == {"DELAYED": 1}  # by the retry policy of the tube
    taskraft.advance("10s")
    assert handle.outcome().attempt == 2
    assert shop.delivered == [*done, "Ida"]


def test_a_crash_after_the_acknowledgement_costs_nothing(taskraft):
    first, second = shop.welcome.put("Ida"), shop.slow.put(60)
    with taskraft.crash("after_ack"):
        taskraft.run_until_idle()
    assert taskraft.states("mail") == {"ZOMBIE": 1, "TAKEN": 1}  # both ran, one had ended
    taskraft.advance("10m")
    assert (first.outcome().attempt, second.outcome().attempt) == (1, 2)
    assert shop.delivered == ["Ida"]


def test_a_crash_in_a_handler_ends_it(taskraft):
    handle = shop.slow.put(60)
    with taskraft.crash("in_run"):
        taskraft.advance("15s")
    assert taskraft.states("mail") == {"DELAYED": 1}
    taskraft.advance("70s")
    assert handle.outcome().attempt == 2


def test_a_lost_lease_ends_the_attempt_and_the_task_runs_again(taskraft):
    handle = shop.slow.put(60)
    taskraft.run_until_idle()
    taskraft.lose_lease(handle)
    taskraft.advance("60s")
    assert handle.outcome().attempt == 2
    with pytest.raises(errors.WrongState):
        taskraft.lose_lease(handle)


@pytest.mark.real_time
def test_the_clock_can_ignore_a_thread_that_hangs(taskraft):
    shop.is_released.clear()
    handle = shop.hang_in_thread.put()
    with taskraft.threads_ignored():
        taskraft.advance("11s")
    shop.is_released.set()
    assert handle.status().failure == "TimeLimitExceeded: the time limit of 10 s is over"


def test_handlers_in_batches_run_in_the_kit(taskraft):
    handles = [shop.index.put(row) for row in range(5)]
    assert taskraft.run_until_idle().attempts == 0
    assert taskraft.advance("1s").attempts == 1  # the linger of the batch
    assert [handle.result() for handle in handles] == [0, 1, 4, 9, 16]


def test_crashes_use_up_the_attempts_of_the_tube(taskraft):
    handle = shop.slow.put(500)
    for _ in range(3):
        taskraft.run_until_idle()
        assert taskraft.states("mail") == {"TAKEN": 1}
        taskraft.crash_worker()
        taskraft.advance("15s")
        taskraft.advance("20s") if taskraft.states("mail") == {"DELAYED": 1} else None
    assert taskraft.states("mail") == {"BURIED": 1}
    with pytest.raises(TaskFailed, match="after 3 attempts"):
        handle.result()


def test_a_crash_that_nothing_reaches_fails_the_test(taskraft):
    with (
        pytest.raises(AssertionError, match="no attempt has reached before_run"),
        taskraft.crash("before_run"),
    ):
        taskraft.run_until_idle()


def test_a_new_leader_keeps_leases_of_clients_that_come_back(taskraft):
    handle = shop.slow.put(60)
    taskraft.run_until_idle()
    taskraft.change_leader(after="3s")
    taskraft.advance("60s")
    assert handle.result() == "done"
    assert handle.outcome().attempt == 1


def test_a_new_leader_releases_tasks_of_workers_that_do_not_come_back(taskraft):
    shop.slow.put(60)
    taskraft.run_until_idle()
    taskraft.crash_worker()
    taskraft.change_leader()
    taskraft.advance("14s")
    assert [task.attempt for task in taskraft.tasks("mail")] == [1]
    taskraft.advance("1s")
    (task,) = taskraft.tasks("mail")
    assert (task.attempt, task.failed_attempts) == (2, 0)


def test_a_new_leader_has_no_tasks_of_temporary_tubes(taskraft):
    taskraft.client.create_tube("cache", durability="temporary")
    taskraft.client.tube("cache").put("volatile")
    assert taskraft.states("cache") == {"READY": 1}
    taskraft.change_leader()
    assert taskraft.states("cache") == {}


def test_calls_wait_for_the_next_leader(taskraft, tube):
    before = taskraft.clock.now
    taskraft.change_leader(after="2s")
    assert tube.put("kept")
    assert (taskraft.clock.now - before).total_seconds() == pytest.approx(2, abs=0.5)


def test_a_client_cannot_reach_the_cluster(taskraft, tube):
    with taskraft.unreachable(), pytest.raises(errors.Unavailable):
        tube.put("lost", timeout="5s")
    assert tube.put("found")
    assert taskraft.states("plain") == {"READY": 1}


# ---------------------------------------------------------------------------- clients


def test_every_client_of_the_code_under_test_reaches_the_kit(taskraft, tube):
    with Client("production.example:7401") as own:
        own.tube("plain").put("safe")
    assert taskraft.states("plain") == {"READY": 1}


def test_threads_have_clients_of_their_own(taskraft, tube):
    def put(number):
        with Client() as client:
            return [client.tube("plain").put(f"{number} {n}") for n in range(20)]

    with ThreadPoolExecutor(4) as pool:
        task_ids = [task_id for ids in pool.map(put, range(4)) for task_id in ids]
    assert sorted(task_ids) == list(range(1, 81))


def test_coroutines_run_on_the_loop_of_the_kit(taskraft, tube):
    async def put_and_take():
        async with AsyncClient() as client:
            await client.tube("plain").put("a")
            async with await client.tube("plain").take(wait="1s") as task:
                return task.text()

    assert taskraft.run(put_and_take()) == "a"


def test_errors_are_those_of_the_server(taskraft):
    with pytest.raises(errors.TubeNotFound, match="'missing'"):
        taskraft.client.tube("missing").put("x")
    with pytest.raises(errors.InvalidField):
        taskraft.client.create_tube("x" * 1000)


@pytest.mark.taskraft(app=shop.app, auto_create_tubes=True)
def test_puts_can_create_tubes(taskraft):
    taskraft.client.tube("new").put("x")
    assert taskraft.states("new") == {"READY": 1}


def test_the_app_is_as_before_after_the_test():
    before = shop.app.middleware
    with Kit(shop.app) as kit:
        kit.run_task(shop.welcome, "Jo")
        assert shop.app.middleware != before
    assert shop.app.middleware == before
    with Kit(shop.app) as kit:
        assert kit.run_task(shop.welcome, "Kim") == "Hello Kim"


def test_the_fixture_returns_the_app(taskraft_app):
    assert taskraft_app is shop.app


def test_a_kit_without_an_app_says_how_to_give_one():
    with Kit() as kit, pytest.raises(RuntimeError, match="taskraft_app"):
        assert kit.app


def test_a_second_app_is_refused(taskraft):
    with pytest.raises(RuntimeError, match="has an app already"):
        taskraft.use_app(shop.app)


async def test_a_blocking_call_in_a_thread_waits_for_the_loop_of_the_test(ataskraft, monkeypatch):
    monkeypatch.setattr(_memory_network, "DRIVER_CHECK_SECONDS", 0)
    await ataskraft.client.create_tube("plain")

    def put():
        with Client() as client:
            return client.tube("plain").put("a")

    assert await asyncio.to_thread(put) == 1


async def test_coroutines_have_a_kit_of_their_own(ataskraft):
    handle = await shop.broken.aput("x")
    with ataskraft.expect_failures(ValueError):
        await ataskraft.advance("1h")
    assert (await handle.aoutcome()).outcome == "BURIED_OUT"
    async with asyncio.timeout(10):
        assert await ataskraft.client.tube("mail").take(wait="5s") is None
    with ataskraft.crash("before_ack"):
        await shop.welcome.aput("Lea")
        await ataskraft.run_until_idle()
    await ataskraft.advance("25s")
    assert shop.delivered == ["Lea", "Lea"]
