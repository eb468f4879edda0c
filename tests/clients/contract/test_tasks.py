"""Tasks, leases, subscriptions, sessions, settings and errors, in memory and on a real node."""

import socket
import uuid

import pytest
from click.testing import CliRunner

from taskraft import Batch, Client, Retry, errors
from taskraft import _settlement as settlement
from taskraft.cli import main


def test_a_task_goes_through_its_whole_life(client, tube):
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


def test_leases_are_touched_settled_together_and_fenced(client, tube):
    tube.put_many([str(n) for n in range(5)], ttr="30s")
    tasks = tube.take_many(5, wait=0)
    before = tasks[0].lease_until_ms
    tasks[0].touch("60s")
    assert tasks[0].lease_until_ms == before + 60_000
    client.settle([task.token for task in tasks])
    with pytest.raises(errors.LeaseStale):
        tasks[0].ack()
    with pytest.raises(errors.ItemsRefused) as told:
        client.settle([task.token for task in tasks])
    assert len(told.value.refused) == 5


def test_a_batch_repeated_with_its_request_id_has_one_effect(client, tube):
    request_id = f"batch-{uuid.uuid4().hex}"
    first, again = [
        client.execute(Batch().put(tube.task("a")), request_id=request_id) for _ in range(2)
    ]
    assert [one.put.task_ids for one in first] == [one.put.task_ids for one in again]
    assert tube.stats().tasks.total == 1


def test_a_take_waits_for_a_delayed_task(taskraft, tube):
    started = taskraft.clock.now_ms
    tube.put("later", delay="300ms")
    assert tube.take(wait=0) is None
    assert tube.take(wait="10s").text() == "later"
    assert taskraft.clock.now_ms - started >= 300


def test_closing_a_client_releases_its_tasks(tube):
    tube.put("a")
    with Client() as other:
        assert other.tube(tube.name).take(wait=0).text() == "a"
        assert tube.take(wait=0) is None
    assert tube.take(wait=0).attempt == 1


def test_a_waiting_subscription_can_change_its_filter(client, tube):
    tube.put_many(["urgent", "later"], type="x")
    tube.put("other", type="y")
    with client.subscribe(tube.name, types=["y"]) as tasks:
        assert next(tasks).text() == "other"
        tasks.narrow(types=["x"])
        assert [next(tasks).text(), next(tasks).text()] == ["urgent", "later"]


def test_a_subscription_limited_in_bytes_continues_as_tasks_are_settled(client, tube):
    tube.put_many([b"x" * 1_000] * 20)
    with client.subscribe(tube.name, credit=100, credit_bytes=3_000) as tasks:
        for done, task in enumerate(tasks, start=1):
            task.ack()
            if done == 20:
                break
    assert done == 20
    assert tube.stats().tasks.total == 0


def test_unsettled_tasks_of_a_subscription_are_released_without_counting_an_attempt(client, tube):
    tube.put("a")
    with client.subscribe(tube.name) as tasks:
        next(tasks)
    assert tube.take(wait="1s").attempt == 1


def test_a_session_is_resumed_with_the_tasks_it_holds(client, tube):
    tube.put("a")
    first = client.subscribe(tube.name)
    token = next(first).token
    # Closing leaves the session open, as the death of the process would.
    first._inner._run._is_own_session = False
    first.close()
    with client.subscribe(tube.name, session=first.session_id) as tasks:
        task = next(tasks)
        assert (task.text(), task.token) == ("a", token)
        task.ack()


def test_every_transition_is_in_the_feed(client, tube):
    tube.put("a")
    tube.take(wait=0).ack()
    events = list(client.changes([tube.name], from_start=True, follow=False))
    assert [(event.kind, event.task_id) for event in events] == [(1, 1), (2, 1), (3, 1)]
    ends = client.changes([tube.name], kinds=["ACK", "DELETE"], from_start=True, follow=False)
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
def test_invalid_calls_raise_typed_errors(client, tube, call, error):
    with pytest.raises(error) as told:
        call(client, tube)
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
def test_a_refusal_names_the_task(client, tube, call, named):
    with pytest.raises(errors.TaskraftError, match=f"^{named.format(tube=tube.name)}"):
        call(client, tube)


def test_a_tube_has_a_profile_and_its_options_change_while_it_is_in_use(client):
    name = "changed"
    tube = client.create_tube(name, profile="t15", ttr="5s")
    assert (tube.profile, tube.options.priority, tube.options.ttr_ms) == ("t15", 127, 5_000)
    tube = client.update_tube(name, ttr="7s", take_paused=True, on_ack="keep")
    assert (tube.options.ttr_ms, tube.options.take_paused) == (7_000, True)
    client.tube(name).put("x")
    assert client.tube(name).take(wait=0) is None
    tube = client.update_tube(name, reset=["ttr", "take_paused"])
    assert (tube.options.ttr_ms, tube.options.take_paused) == (60_000, False)
    assert client.tube(name).take(wait=0) is not None
    with pytest.raises(errors.InvalidField):
        client.update_tube(name, priority_order="lower_first")
    with pytest.raises(TypeError, match="no option colour"):
        client.update_tube(name, reset=["colour"])


def test_settings_of_the_cluster_are_shown_and_changed(client):
    before = client.configure()
    try:
        changed = client.configure(failover_grace="20s", auto_create_kind="utube")
        assert (changed.failover_grace_ms, changed.auto_create_kind) == (20_000, 4)
        assert changed.feed_bytes_max == before.feed_bytes_max
        with pytest.raises(errors.InvalidField):
            client.configure(session_ttr="1s", feed_retention=0)
        assert client.configure() == changed
        with pytest.raises(TypeError, match="no setting colour"):
            client.configure(colour="red")
        shown = CliRunner().invoke(main, ["cluster", "settings"])
        assert "failover_grace       20s" in shown.output
        assert shown.exit_code == 0
    finally:
        client.configure(failover_grace="15s", auto_create_kind="fifottl")


def test_sessions_are_listed_with_their_leases(client, tube):
    tube.put_many(["1", "2"])
    labels = {"pid": "", "role": "mail"}
    with Client(name="holder", labels=labels) as holder:
        holder.tube(tube.name).take_many(2, wait=0)
        (session,) = [one for one in client.list_sessions() if one.name == "holder"]
        assert (session.taken, len(session.session_id)) == (2, 8)
        assert client.session(session.session_id) == session
        known = {"client": "taskraft-python", "host": socket.gethostname(), "role": "mail"}
        assert {name: session.labels[name] for name in known} == known
        assert "pid" not in session.labels
        shown = CliRunner().invoke(main, ["session", "list"])
        assert "holder" in shown.output
        shown = CliRunner().invoke(main, ["session", "show", session.session_id])
        assert "label role       mail" in shown.output
        assert f"{tube.name}/2" in shown.output


def test_a_release_tells_that_it_ended_the_last_attempt(client, taskraft):
    tube = client.tube(
        client.create_tube(f"retry-{uuid.uuid4()}", retry=Retry(attempts_max=2)).name
    )
    tube.put("a")
    task = tube.take(wait=0)
    task.release(0, reason="no")
    assert task.given_up is None
    task = tube.take(wait=0)
    task.release(reason="no")
    assert task.given_up == "BURIED_OUT"
    tube.put("b")
    token = tube.take(wait=0).token
    assert client.settle(token, settlement.reject("never")) == {token: "BURIED_OUT"}
    kicked = tube.kick()
    assert (kicked, kicked.buried) == (1, 1)


def test_a_stream_tells_that_a_release_ended_the_last_attempt(client):
    tube = client.tube(
        client.create_tube(f"retry-{uuid.uuid4()}", retry=Retry(attempts_max=1)).name
    )
    tube.put("a")
    with client.subscribe(tube.name) as tasks:
        task = next(iter(tasks))
        task.release(reason="no")
        assert task.given_up == "BURIED_OUT"


def test_the_leases_of_the_client_are_listed_across_tubes(client, tube):
    other = client.tube(client.create_tube(f"other-{uuid.uuid4()}").name)
    for each in (tube, other):
        each.put("a")
        each.take(wait=0)
    (session,) = [one for one in client.list_sessions() if one.taken == 2]
    assert [task.tube for task in client.list_leases(session.session_id)] == [tube.name, other.name]
    with pytest.raises(errors.SessionNotFound):
        client.list_leases("0" * 8)


def test_events_carry_the_content_of_tasks(client, tube):
    tube.put({"n": 1}, key="one", headers={"a": "b"})
    changes = client.changes(
        tube.name, from_start=True, follow=False, contents=["key", "headers", "payload"]
    )
    (event,) = changes
    assert list(event.content.unique_key) == ["one"]
    assert (event.content.headers["a"], event.content.payload) == (b"b", b'{"n":1}')
    (plain,) = client.changes(tube.name, from_start=True, follow=False)
    assert not plain.HasField("content")


def test_a_yielding_take_gets_ready_tasks(tube):
    tube.put("a")
    assert tube.take(wait=0, yielding=True).text() == "a"


def test_the_worst_tubes_are_listed_by_rank(client, tube):
    other = client.tube(client.create_tube(f"other-{uuid.uuid4()}").name)
    tube.put_many(["1", "2"])
    other.put("3")
    both = [tube.name, other.name]
    found = client.worst_tubes("ready", tubes=both)
    assert [each.tube for each in found.tubes] == both
    assert (found.total.tasks.ready, found.tube_count) == (3, 2)
    assert [each.tube for each in client.worst_tubes("ready", 1, tubes=both).tubes] == [tube.name]
    assert not client.worst_tubes("buried", tubes=both).tubes
    with pytest.raises(ValueError, match="by must be one of ready, buried, oldest_ready"):
        client.worst_tubes("size")
    other.bury([1])
    shown = CliRunner().invoke(main, ["stats", "--worst", "buried", *both, "-o", "name"])
    assert shown.output.split() == [other.name]
    changed = client.stats(both, changed_since=found.revision)
    assert other.name in [each.tube for each in changed.tubes]
