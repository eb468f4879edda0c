"""Waits, batches, groups and schedules, in memory and on a real node."""

import asyncio
import inspect
import math
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from taskraft import (
    AsyncClient,
    AsyncGroups,
    AsyncSchedules,
    AsyncTube,
    Batch,
    Client,
    Groups,
    Keys,
    Retry,
    Schedules,
    Tube,
    TubeDiffers,
    Where,
    errors,
)
from taskraft.v1 import task_pb2, task_service_pb2


def created(client, **settings):
    name = f"tube-{uuid.uuid4()}"
    client.create_tube(name, "fifottl", **settings)
    return client.tube(name)


async def worked(client, tube, calling, settle):
    """Take a task while a call waits for its outcome; return the answer to the call."""

    async def work():
        task = await client.tube(tube.name).take(wait="10s")
        await settle(task)

    _, answer = await asyncio.gather(work(), calling)
    return answer


# ---------------------------------------------------------------------------------------- outcomes


def test_a_put_waits_for_the_outcome_and_the_result(taskraft, tube):
    async def both():
        async with AsyncClient() as client:
            put = client.tube(tube.name).put_and_wait({"a": 2, "b": 3}, wait="10s")
            return await worked(client, tube, put, lambda task: task.ack({"sum": 5}))

    task = taskraft.run(both())
    assert (task.outcome, task.result) == ("PROCESSED", b'{"sum":5}')


def test_a_put_without_a_worker_times_out(tube):
    assert tube.put_and_wait("x", wait=0).outcome == "TIMEOUT"


def test_a_refused_put_does_not_wait(tube):
    tube.put("x", key="k")
    with pytest.raises(errors.KeyTaken):
        tube.put_and_wait("x", key="k", wait="10s")


def test_a_wait_ends_with_all_tasks_or_with_the_first(taskraft, client):
    tube = created(client, on_ack="keep")
    first, second = tube.put_many(["a", "b"])

    async def wait_for(ids, settle, **options):
        async with AsyncClient() as own:
            wait = own.tube(tube.name).wait(ids, **options)
            return await worked(own, tube, wait, settle)

    ended = taskraft.run(wait_for([first, second], lambda task: task.ack(), any=True, wait="10s"))
    assert [each.outcome for each in ended] == ["PROCESSED", ""]
    (ended,) = taskraft.run(wait_for(second, lambda task: task.bury("broken")))
    assert (ended.outcome, ended.state) == ("BURIED_OUT", "BURIED")


def test_a_wait_returns_on_progress(taskraft, tube):
    task_id = tube.put("x", key=("order", "7"))

    async def report():
        async with AsyncClient() as client:
            mine = client.tube(tube.name)
            task = await mine.take(wait=0)
            wait = asyncio.create_task(mine.wait(Keys(("order", "7")), progress=True, wait="10s"))
            while not wait.done():
                await task.touch(progress=0.5, note="half")
            return await wait

    (seen,) = taskraft.run(report())
    assert (seen.id, seen.message.progress.note) == (task_id, "half")


def test_a_wait_for_an_unknown_task_is_refused(tube):
    task_id = tube.put("x")
    with pytest.raises(errors.TaskNotFound):
        tube.wait(99)
    with pytest.raises(errors.ItemsRefused) as told:
        tube.wait([task_id, 99], wait=0)
    assert list(told.value.refused) == [1]


# ------------------------------------------------------------------------------------ chosen tasks


def test_tasks_are_found_by_key(tube):
    task_id = tube.put("x", key=("order", "7"))
    assert tube.peek(key=("order", "7")).id == task_id
    with pytest.raises(errors.TaskNotFound):
        tube.peek(key="order")
    with pytest.raises(TypeError):
        tube.peek()


def test_a_waiting_task_is_changed(tube):
    task_id = tube.put("x", headers={"old": "1"}, key="k")
    changed = tube.update(
        Keys("k"),
        payload={"n": 1},
        headers={"new": "2"},
        headers_remove=["old"],
        priority=-1,
        delay="1h",
        ttl="2h",
        ttr="1m",
    )
    task = tube.peek(task_id)
    assert changed == 1
    assert (task.json(), task.content_type) == ({"n": 1}, "application/json")
    assert dict(task.headers) == {"new": b"2"}
    assert (task.priority, task.state, task.message.ttr_ms) == (-1, "DELAYED", 60_000)
    assert tube.update(task_id, delay=0) == 1
    assert tube.peek(task_id).state == "READY"
    with pytest.raises(TypeError, match="colour"):
        tube.update(task_id, colour="red")


def test_a_filter_is_processed_to_its_end(tube):
    tube.put_many([str(n) for n in range(2_500)], type="mail")
    other = tube.put("other")
    assert tube.bury(Where("type = mail")) == 2_500
    assert tube.kick(ids=Where("state = BURIED AND id <= 2000")) == 2_000
    assert tube.delete(Where("type = mail")) == 2_500
    assert [task.id for task in tube.list()] == [other]


def test_an_administrator_moves_tasks_from_state_to_state(tube):
    task_id = tube.put("x")
    task = tube.take(wait=0)
    assert tube.cancel(task_id) == (1, 0)
    task.touch()
    assert task.is_cancel_requested
    second = tube.put("y")
    lease = tube.take(wait=0)
    assert tube.snatch(second) == 1
    with pytest.raises(errors.LeaseStale):
        lease.ack()
    assert tube.switch(second, "zombie", duration="1h") == 1
    assert tube.restart(second, delay="1h") == 1
    assert tube.peek(second).state == "DELAYED"
    with pytest.raises(errors.WrongState):
        tube.snatch(second)
    assert tube.release_all() == 1
    assert tube.cancel(second) == (0, 1)


def test_tasks_are_moved_and_dead_letters_are_redriven(client):
    dead = created(client)
    source = created(client, dead_letter_tube=dead.name)
    other = created(client)
    source.put_many([str(n) for n in range(3)])
    for task in source.take_many(2, wait=0):
        task.reject(reason="broken")
    own = dead.put("own")
    assert dead.redrive(Where("priority > 9")) == 0
    assert dead.redrive(delay="1h", changes={"priority": 7}) == 2
    assert [task.id for task in dead.list()] == [own]
    assert [task.priority for task in source.list("state = DELAYED")] == [7, 7]
    assert source.move(Where("priority = 7"), other.name, delay=0) == 2
    assert other.move(1, source.name, position="front", renew_times=True) == 1
    assert [task.text() for task in source.take_many(9, wait=0)] == ["0", "2"]
    with pytest.raises(errors.TubeNotFound):
        other.move(2, "nowhere")
    with pytest.raises(errors.ItemsRefused):
        source.move(Keys("a", "b"), other.name)


# ----------------------------------------------------------------------------------------- batches


def test_a_release_can_change_the_task_its_position_and_its_ttl(client, tube):
    other = created(client)
    first = tube.put("a", priority=1)
    tube.put("b", priority=9)
    task = tube.take(wait=0)
    task.release(0, position="back", ttl_policy="reset", ttl="1h", changes={"payload": "A"})
    seen = tube.peek(first)
    assert (seen.text(), seen.message.ttl_ms) == ("A", 3_600_000)
    assert [each.text() for each in tube.take_many(2, wait=0)] == ["b", "A"]
    tube.release_all()
    tube.take(wait=0).release("1m", move_to=other.name, reason="not mine")
    assert [each.state for each in other.list()] == ["DELAYED"]
    with pytest.raises(TypeError, match="colour"):
        tube.take(wait=0).release(colour="red")


def test_a_task_is_changed_with_its_burial_and_at_its_end(tube):
    task_id = tube.put("a")
    tube.take(wait=0).bury("why", changes={"priority": 7})
    assert tube.peek(task_id).priority == 7
    tube.kick()
    tube.take(wait=0).ack("result", keep="done", payload="small")
    seen = tube.peek(task_id)
    assert (seen.text(), seen.result, seen.outcome) == ("small", b"result", "PROCESSED")


def test_a_batch_does_all_or_nothing(client, tube):
    orders, invoices = tube, created(client)
    orders.put("order 7")
    waiting = orders.put("order 8")
    with orders.take(wait=0) as order:
        batch = (
            Batch()
            .ack(order)
            .put(invoices.task("a"), invoices.task("b", priority=-1))
            .update(orders.name, waiting, priority=3)
        )
        assert len(batch) == 3
        results = client.execute(batch)
    assert order.is_settled
    assert len(results[1].put.task_ids) == 2
    assert [task.text() for task in invoices.take_many(9, wait=0)] == ["b", "a"]
    with pytest.raises(errors.LeaseStale) as told:
        client.execute(Batch().delete(orders.name, waiting).ack(order))
    assert told.value.metadata["operation"] == "1"
    assert orders.peek(waiting).priority == 3


def test_every_operation_can_be_part_of_a_batch(client, tube):
    elsewhere = created(client)
    released, rejected, buried, gone, kicked, moved = tube.put_many([*"abcdef"])
    first, second = tube.take_many(2, wait=0)
    tube.bury(kicked)
    batch = Batch().release(first, "1h", reason="later").reject(second, "never")
    batch.bury(tube.name, buried, reason="why").delete(tube.name, gone).kick(tube.name, kicked)
    batch.move(tube.name, moved, elsewhere.name, delay="1h")
    client.execute(batch)
    assert [(task.text(), task.state) for task in elsewhere.list()] == [("f", "DELAYED")]
    states = {task.id: task.state for task in tube.list()}
    assert states == {
        released: "DELAYED",
        rejected: "BURIED",
        buried: "BURIED",
        kicked: "READY",
    }


# ------------------------------------------------------------------------------- groups, schedules


def test_a_group_holds_its_tasks_and_ends_with_one_more(client, tube):
    books, name = created(client), f"book-{uuid.uuid4()}"
    group = client.groups.create(name, end_task=books.task("bind"), only_if_processed=True)
    assert group.state == "HELD"
    tube.put_many(["page 1", "page 2"], group=name)
    assert tube.take(wait=0) is None
    client.groups.start(name)
    for page in tube.take_many(2, wait="5s"):
        page.ack()
    assert books.take(wait="5s").text() == "bind"
    group = client.groups.get(name)
    assert (group.state, group.processed) == ("ENDED", 2)
    with pytest.raises(errors.GroupExists):
        client.groups.create(name)


def test_a_cancelled_group_puts_its_abort_task(client, tube):
    name = f"group-{uuid.uuid4()}"
    client.groups.create(name, abort_task=tube.task("clean up"))
    tube.put("never", group=name)
    assert client.groups.cancel(name, revoke=True).state == "CANCELLED"
    assert tube.take(wait="5s").text() == "clean up"
    with pytest.raises(errors.GroupNotFound):
        client.groups.start("nobody")


def test_a_schedule_is_made_paused_listed_and_removed(client, tube):
    name = f"nightly-{uuid.uuid4()}"
    made = client.schedules.create(
        name,
        "30 2 * * *",
        tube.task({"report": 1}, priority=5),
        time_zone="Europe/Vienna",
        jitter="1m",
        catch_up="one",
        overlap="skip",
    )
    assert made.next_ms > 0
    assert (made.jitter_ms, made.catch_up) == (60_000, "one")
    assert made.overlap == "skip"
    assert (made.tube, made.spec.priority) == (tube.name, 5)
    assert made.next.minute == 30
    assert client.schedules.update(replace(made, paused=True)).next is None
    (again,) = [each for each in client.schedules.list() if each.name == name]
    assert again.etag != made.etag
    assert replace(again, paused=False, next_ms=made.next_ms, etag=made.etag) == made
    with pytest.raises(errors.ScheduleChanged):
        client.schedules.update(made, if_unchanged=True)
    assert client.schedules.get(name) == again
    changed = client.schedules.change(name, cron="0 3 * * *", jitter=0)
    assert (changed.cron, changed.jitter_ms, changed.paused) == ("0 3 * * *", 0, True)
    with pytest.raises(ValueError, match="at least one part"):
        client.schedules.change(name)
    assert [each.name for each in client.schedules.list() if each.paused] == [name]
    client.schedules.delete(name)
    with pytest.raises(errors.ScheduleNotFound):
        client.schedules.delete(name)
    with pytest.raises(errors.InvalidField) as told:
        client.schedules.create(name, "0 61 * * *", tube.task("x"))
    (violation,) = told.value.violations
    assert violation.field == "schedule.cron"
    with pytest.raises(TypeError, match="zone"):
        client.schedules.create(name, "* * * * *", tube.task("x"), zone="UTC")


# ----------------------------------------------------------------------------------------- asyncio


def test_the_client_for_asyncio_does_the_same(taskraft):
    texts = taskraft.run(use_asyncio(f"tube-{uuid.uuid4()}"))
    assert texts == ["next"]


async def use_asyncio(name):
    async with AsyncClient() as client:
        await client.create_tube(name)
        tube = client.tube(name)
        await client.groups.create(name, end_task=tube.task("end"))
        await client.groups.start(name)
        async with await tube.take(wait="5s") as task:
            await client.execute(Batch().ack(task).put(tube.task("next")))
        (waiting,) = await tube.wait(task.id + 1, wait=0)
        assert waiting.outcome == "TIMEOUT"
        texts = [each.text() async for each in tube.list()]
        await client.schedules.create(name, "0 0 1 1 *", tube.task("happy new year"))
        await client.schedules.delete(name)
        return texts


@pytest.mark.parametrize(
    ("blocking", "asynchronous"),
    [(Client, AsyncClient), (Tube, AsyncTube), (Groups, AsyncGroups), (Schedules, AsyncSchedules)],
)
def test_both_clients_offer_the_same_methods(blocking, asynchronous):
    def offered(kind):
        return {
            name: [*inspect.signature(method).parameters]
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert offered(blocking) == offered(asynchronous)


def test_a_wait_after_success_does_not_fail(client, tube):
    task_id = tube.put("x")
    tube.take(wait=0).ack()
    (ended,) = tube.wait(task_id)
    assert (str(ended), ended.outcome, ended.state) == (f"{tube.name}/{task_id}", "NOT_KEPT", "")
    kept = created(client, on_ack="keep")
    task_id = kept.put("x")
    kept.take(wait=0).ack("done")
    (ended,) = kept.wait(task_id)
    assert (ended.outcome, ended.result) == ("PROCESSED", b"done")
    with pytest.raises(errors.TaskNotFound):
        tube.wait(99)


def test_a_put_and_a_settlement_return_the_task_as_it_is_afterwards(client, tube):
    task = tube.put_and_read({"n": 1}, delay="1h", key="k")
    assert (task.id, task.state, task.json()) == (1, "DELAYED", {"n": 1})
    assert task.visible_at - task.created == timedelta(hours=1)
    again = tube.put_and_read({"n": 2}, key="k", on_conflict="return_existing")
    assert (again.id, again.payload) == (task.id, b"")
    with pytest.raises(errors.KeyTaken):
        tube.put_and_read({"n": 2}, key="k")
    tube.put_many(["a", "b"])
    first, second = tube.take_many(2, wait=0)
    reason = task_service_pb2.Settlement(
        release=task_service_pb2.Settlement.Release(failure=task_pb2.Failure(type="Broken"))
    )
    (released,) = client.settle_and_read(first.token, reason)
    assert (released.id, released.state, released.failed_attempts) == (first.id, "DELAYED", 1)
    (gone,) = client.settle_and_read(second.token)
    assert (gone.id, gone.state, gone.outcome) == (second.id, "", "PROCESSED")
    with pytest.raises(errors.LeaseStale, match=f"token {first.token}: "):
        client.settle_and_read(first.token)


# ------------------------------------------------------------------------------------------- tubes


def test_a_tube_that_exists_with_other_options_is_named_and_changed(client):
    name = f"tube-{uuid.uuid4()}"
    retry = Retry(attempts_max=3, backoff="1s")
    wanted = {"ttr": "1m", "retry": retry}
    client.create_tube(name, **wanted)
    client.create_tube(name, if_not_exists=True, take_paused=False, ttl=math.inf, **wanted)
    with pytest.warns(TubeDiffers, match="another ttr, retry;") as told:
        client.create_tube(name, if_not_exists=True, ttr="2m", retry=Retry(attempts_max=3))
    assert told[0].message.differences == ("ttr", "retry")
    tube = client.ensure_tube(name, ttr="2m", on_ack="keep")
    assert (tube.options.ttr_ms, tube.options.on_ack) == (120_000, "keep")
    assert tube.options.retry.attempts_max == 3
    assert client.ensure_tube(name, ttr="2m") == tube
    assert client.ensure_tube(f"{name}-2", "fifo").kind == "fifo"
    with pytest.warns(TubeDiffers, match="another kind"):
        client.create_tube(name, "fifo", if_not_exists=True)
    with pytest.raises(errors.TubeExists, match="another kind, profile"):
        client.ensure_tube(name, "utube", profile="t15")
    with pytest.raises(errors.InvalidField, match="fixed when the tube is created"):
        client.ensure_tube(name, priority_order="higher_first")
    assert client.list_tubes(name) == [tube]
