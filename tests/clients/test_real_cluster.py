"""The client and the command line on real nodes, with a killed leader."""

import asyncio
import json
import time
import uuid

import pytest
from click.testing import CliRunner

from taskraft import AsyncClient, Client, errors
from taskraft.cli import main
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

TASKS = 1_000
TASKS_BEFORE_THE_KILL = 300
PRODUCERS = 20


def test_a_task_goes_through_its_whole_life(real_client, tube):
    first = tube.put({"n": 1}, priority=5, ttl="1h", ttr="1m", headers={"a": "b"})
    second = tube.put("two", priority=1)
    task = tube.take(wait=0)
    assert (task.id, task.text(), task.attempt) == (second, "two", 1)
    task.release(0, reason="not yet")
    again = tube.take(wait=0)
    assert (again.id, again.attempt) == (second, 2)
    assert again.token > task.token
    assert again.message.failure.message == "not yet"
    again.bury("broken")
    assert tube.peek(second).state == "BURIED"
    assert tube.kick() == 1
    assert [each.id for each in tube.take_many(5, wait=0)] == [second, first]
    assert tube.peek(first).headers["a"] == b"b"
    assert tube.stats().tasks.taken == 2
    assert tube.delete([first, second]) == 2
    with pytest.raises(errors.TaskNotFound):
        tube.peek(first)


def test_leases_are_touched_settled_together_and_fenced(real_client, tube):
    tube.put_many([str(n) for n in range(5)], ttr="30s")
    tasks = tube.take_many(5, wait=0)
    before = tasks[0].lease_until_ms
    tasks[0].touch("60s")
    assert tasks[0].lease_until_ms == before + 60_000
    real_client.settle([task.token for task in tasks])
    with pytest.raises(errors.LeaseStale):
        tasks[0].ack()
    with pytest.raises(errors.ItemsRefused) as told:
        real_client.settle([task.token for task in tasks])
    assert len(told.value.refused) == 5


def test_a_handler_may_take_longer_than_the_time_to_run(tube):
    task_id = tube.put("a", ttr="600ms")
    with tube.take(wait=0) as task:
        first_until_ms = task.lease_until_ms
        while task.lease_until_ms < first_until_ms + 600:
            assert not task.is_lost
        assert tube.peek(task_id).attempt == 1
        assert tube.take(wait=0) is None


def test_a_take_waits_for_a_delayed_task(tube):
    started = time.monotonic()
    tube.put("later", delay="300ms")
    assert tube.take(wait=0) is None
    assert tube.take(wait="10s").text() == "later"
    assert time.monotonic() - started >= 0.3


def test_closing_a_client_releases_its_tasks(node, tube):
    tube.put("a")
    with Client(node.target) as other:
        assert other.tube(tube.name).take(wait=0).text() == "a"
        assert tube.take(wait=0) is None
    assert tube.take(wait=0).attempt == 1


def test_a_subscription_takes_and_settles_on_one_stream(real_client, tube):
    tube.put_many([str(n) for n in range(300)])
    seen = []
    with real_client.subscribe(tube.name, credit=50) as tasks:
        for batch in tasks.batches():
            seen += [int(task.text()) for task in batch]
            tasks.ack(batch)
            if len(seen) == 300:
                break
    assert seen == list(range(300))
    assert tube.stats().tasks.total == 0


def test_a_waiting_subscription_can_change_its_filter(real_client, tube):
    tube.put_many(["urgent", "later"], type="x")
    tube.put("other", type="y")
    with real_client.subscribe(tube.name, types=["y"]) as tasks:
        assert next(tasks).text() == "other"
        tasks.narrow(types=["x"])
        assert [next(tasks).text(), next(tasks).text()] == ["urgent", "later"]


def test_a_subscription_limited_in_bytes_goes_on_as_tasks_are_settled(real_client, tube):
    tube.put_many([b"x" * 1_000] * 20)
    with real_client.subscribe(tube.name, credit=100, credit_bytes=3_000) as tasks:
        for done, task in enumerate(tasks, start=1):
            task.ack()
            if done == 20:
                break
    assert done == 20
    assert tube.stats().tasks.total == 0


def test_unsettled_tasks_of_a_subscription_come_back_uncounted(real_client, tube):
    tube.put("a")
    with real_client.subscribe(tube.name) as tasks:
        next(tasks)
    assert tube.take(wait="1s").attempt == 1


def test_a_session_is_resumed_with_the_tasks_it_holds(real_client, tube):
    tube.put("a")
    first = real_client.subscribe(tube.name)
    token = next(first).token
    first._inner._is_own_session = False  # as if the process had died
    first.close()
    with real_client.subscribe(tube.name, session=first.session_id) as tasks:
        task = next(tasks)
        assert (task.text(), task.token) == ("a", token)
        task.ack()


def test_every_transition_is_in_the_feed(real_client, tube):
    tube.put("a")
    tube.take(wait=0).ack()
    events = list(real_client.changes([tube.name], from_start=True, follow=False))
    assert [(event.kind, event.task_id) for event in events] == [(1, 1), (2, 1), (3, 1)]
    ends = real_client.changes([tube.name], kinds=["ACK", "DELETE"], from_start=True, follow=False)
    assert [event.kind for event in ends] == [3]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda client, _: client.tube("missing").put("a"), errors.TubeNotFound),
        (lambda client, _: client.tube("missing").stats(), errors.TubeNotFound),
        (lambda client, _: client.tube("no/such name").put("a"), errors.InvalidField),
        (lambda client, tube: client.create_tube(tube.name), errors.TubeExists),
        (lambda _, tube: tube.peek(99), errors.TaskNotFound),
        (lambda _, tube: tube.put(b"x" * 2_000_000), errors.PayloadTooLarge),
        (lambda client, _: client.settle(12345), errors.LeaseStale),
        (lambda client, _: next(client.subscribe("missing")), errors.TubeNotFound),
    ],
)
def test_invalid_calls_raise_typed_errors(real_client, tube, call, error):
    with pytest.raises(error) as told:
        call(real_client, tube)
    if error is errors.InvalidField:
        assert told.value.violations[0].field == "tube"


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda _, tube: tube.peek(99), "{tube}/99: "),
        (lambda _, tube: tube.peek(key=("a", "b")), "{tube}, key a/b: "),
        (lambda _, tube: tube.wait(99, wait=0), "{tube}/99: "),
        (lambda _, tube: tube.delete([99]), "{tube}/99: "),
        (lambda _, tube: tube.delete([98, 99]), "2 of 2 .* item 0: TASK_NOT_FOUND: {tube}/98: "),
        (lambda client, _: client.settle(12345), "token 12345: "),
    ],
)
def test_a_refusal_names_the_task(real_client, tube, call, named):
    with pytest.raises(errors.TaskraftError, match=f"^{named.format(tube=tube.name)}"):
        call(real_client, tube)


def test_the_commands_work_on_a_real_cluster(node, tube):
    def run(*words):
        return CliRunner().invoke(main, [*words, "-t", node.target])

    assert run("put", tube.name, '{"name": "you"}').stdout == f"{tube.name}/1  READY\n"
    taken = run("take", tube.name, "--keep")
    token = taken.stdout.split()[-1]
    assert '{"name": "you"}   lease 1m   token' in taken.stdout
    assert run("ack", token).exit_code == 0
    assert run("ack", token).exit_code == 4
    (stats,) = json.loads(run("stats", tube.name, "-o", "json").stdout)
    assert (stats["calls"]["put"], stats["calls"]["ack"]) == ("1", "1")
    assert "leader n1" in run("cluster", "status").stdout
    assert (
        len(run("feed", "tail", tube.name, "--from-start", "--no-follow").stdout.split("\n")) == 4
    )
    assert run("tube", "drop", tube.name, "--yes").exit_code == 0
    assert run("stats", tube.name).exit_code == 3


# ---------------------------------------------------------------------------------- a killed leader


async def produce(real_client, numbers, put, is_busy):
    for number in numbers:
        put.append(await real_client.tube("work").put(str(number)))
        if len(put) >= TASKS_BEFORE_THE_KILL:
            is_busy.set()


async def consume(real_client, seen, is_done):
    async with real_client.subscribe("work", credit=50) as tasks:
        async for batch in tasks.batches():
            accepted = await settle(tasks, batch)
            seen += [task.id for task in accepted]
            if is_done():
                return


async def settle(tasks, batch):
    """Acknowledge a batch; return the tasks that were accepted."""
    try:
        await tasks.ack(batch)
    except errors.ItemsRefused as told:
        return [task for position, task in enumerate(batch) if position not in told.refused]
    return batch


async def test_a_killed_leader_loses_no_put_and_no_acknowledgement(tmp_path):
    with LocalCluster(3, tmp_path) as cluster:
        put, seen, is_busy = [], [], asyncio.Event()
        async with AsyncClient(cluster.target) as client:
            await client.create_tube("work")
            numbers = iter(range(TASKS))
            consumer = asyncio.create_task(consume(client, seen, lambda: len(set(seen)) == TASKS))
            producers = [
                asyncio.create_task(produce(client, numbers, put, is_busy))
                for _ in range(PRODUCERS)
            ]
            async with asyncio.timeout(60):
                await is_busy.wait()
                seen_before = len(seen)
                cluster.leader().kill()
                await asyncio.gather(*producers)
                await consumer
            statistics = await client.tube("work").stats()
        assert 0 < seen_before < TASKS, "the leader was killed in the middle"
        assert sorted(put) == list(range(1, TASKS + 1)), "every put has one effect"
        assert sorted(seen) == sorted(put), "every task was acknowledged once"
        assert (statistics.tasks.total, statistics.calls.put) == (0, TASKS)


def test_a_tube_has_a_profile_and_changes_in_use(real_client):
    name = f"tube-{uuid.uuid4()}"
    tube = real_client.create_tube(name, profile="t15", ttr="5s")
    assert (tube.profile, tube.options.priority, tube.options.ttr_ms) == ("t15", 127, 5_000)
    tube = real_client.update_tube(name, ttr="7s", take_paused=True, on_ack="keep")
    assert (tube.options.ttr_ms, tube.options.take_paused) == (7_000, True)
    real_client.tube(name).put("x")
    assert real_client.tube(name).take(wait=0) is None
    tube = real_client.update_tube(name, reset=["ttr", "take_paused"])
    assert (tube.options.ttr_ms, tube.options.take_paused) == (60_000, False)
    assert real_client.tube(name).take(wait=0) is not None
    with pytest.raises(errors.InvalidField):
        real_client.update_tube(name, priority_order="lower_first")
    with pytest.raises(TypeError, match="no option colour"):
        real_client.update_tube(name, reset=["colour"])


def test_settings_of_the_cluster_are_shown_and_changed(node, real_client):
    before = real_client.configure()
    try:
        changed = real_client.configure(failover_grace="20s", auto_create_kind="utube")
        assert (changed.failover_grace_ms, changed.auto_create_kind) == (20_000, 4)
        assert changed.feed_bytes_max == before.feed_bytes_max
        with pytest.raises(errors.InvalidField):
            real_client.configure(session_ttr="1s", feed_retention=0)
        assert real_client.configure() == changed
        with pytest.raises(TypeError, match="no setting colour"):
            real_client.configure(colour="red")
        shown = CliRunner().invoke(main, ["cluster", "settings", "--target", node.target])
        assert "failover_grace       20s" in shown.output
        assert shown.exit_code == 0
    finally:
        real_client.configure(failover_grace="15s", auto_create_kind="fifottl")


def test_sessions_are_listed_with_what_they_hold(node, real_client, tube):
    tube.put_many(["1", "2"])
    with Client(node.target, name="holder") as holder:
        holder.tube(tube.name).take_many(2, wait=0)
        (session,) = [one for one in real_client.list_sessions() if one.name == "holder"]
        assert (session.taken, len(session.session_id)) == (2, 8)
        shown = CliRunner().invoke(main, ["cluster", "sessions", "--target", node.target])
        assert "holder" in shown.output
