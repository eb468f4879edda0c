"""The blocking client: same operations as the asyncio client, threads, forks."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from taskraft import AsyncClient, AsyncTakenTask, AsyncTube, Client, TakenTask, Tube, errors
from taskraft.v1 import feed_service_pb2, task_pb2
from taskraft.v1.task_service_pb2 import Settlement

pytestmark = pytest.mark.real_time

READY = task_pb2.Task.READY
DONE = task_pb2.Task.DONE


@pytest.fixture
def client(emails):
    """Return a client of the node in memory."""
    with Client() as one:
        yield one


def states(tube):
    return [task.state for task in tube.list()]


@pytest.mark.parametrize(
    ("blocking", "asynchronous"),
    [(Client, AsyncClient), (Tube, AsyncTube), (TakenTask, AsyncTakenTask)],
)
def test_both_clients_have_the_same_methods(blocking, asynchronous):
    def verbs(kind):
        return {name for name in dir(kind) if not name.startswith("_")}

    assert verbs(blocking) - {"taken"} == verbs(asynchronous) - {"note_given_up", "settle_after"}


def test_a_task_is_put_taken_and_acknowledged(client):
    tube = client.tube("emails")
    assert tube.put({"to": "a"}) == 1
    task = tube.take(wait=0)
    assert task.json() == {"to": "a"}
    task.touch("5s")
    task.ack("sent")
    assert task.is_settled
    assert states(client.tube("emails")) == ["DONE"]
    assert tube.take(wait=0) is None


def test_a_task_can_be_settled_in_every_way(calls, client):
    tube = client.tube("emails")
    tube.put_many(["a", "b", "c", "d", "e"])
    one, two, three, four, five = tube.take_many(5, wait=0)
    one.release("1s", reason=ValueError("no"))
    two.bury("why")
    three.reject("why")
    client.settle([four.token])
    five.settle(Settlement(release=Settlement.Release()))
    assert five.is_settled
    actions = [
        request.settlements[0].WhichOneof("action") for request in calls.requests("SettleTasks")
    ]
    assert actions == ["release", "bury", "reject", "ack", "release"]
    failures = [tube.peek(task.id).failure for task in (one, two, four)]
    assert failures == ["ValueError: no", "why", ""]
    with pytest.raises(errors.LeaseStale):
        client.settle(four.token)
    with pytest.raises(errors.ItemsRefused):
        client.settle([one.token, four.token])


def test_contexts_settle_their_tasks(calls, client):
    tube = client.tube("emails")
    tube.put_many(["a", "b", "c"])
    with tube.take(wait=0):
        pass
    with pytest.raises(ZeroDivisionError), tube.take(wait=0):
        _ = 1 / 0
    with pytest.raises(KeyboardInterrupt), tube.take(wait=0):
        raise KeyboardInterrupt
    with tube.take(wait=0) as task:
        task.bury("settled inside")
    settlements = [request.settlements[0] for request in calls.requests("SettleTasks")]
    assert len(settlements) == 4
    assert settlements[3].HasField("bury")
    assert settlements[0].HasField("ack")
    assert settlements[1].release.failure.type == "ZeroDivisionError"
    assert settlements[2].release.uncounted


def test_a_lost_lease_is_noted_on_the_users_exception(client):
    client.tube("emails").put("a")
    task = client.tube("emails").take(wait=0)
    client.settle(task.token)
    with pytest.raises(ZeroDivisionError) as told, task:
        _ = 1 / 0
    assert "LEASE_STALE" in told.value.__notes__[0]


def test_a_subscription_is_a_plain_iterator(client):
    client.tube("emails").put_many([str(n) for n in range(20)])
    seen = []
    with client.subscribe("emails", credit=5) as tasks:
        for task in tasks:
            with task:
                seen.append(int(task.text()))
            if len(seen) == 20:
                break
    assert seen == list(range(20))
    assert states(client.tube("emails")) == ["DONE"] * 20


def test_a_signal_stops_a_subscription_and_the_task_in_hand_is_finished(client):
    client.tube("emails").put_many([str(n) for n in range(5)])
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: tasks.stop())
    try:
        with client.subscribe("emails", credit=5) as tasks:
            for task in tasks:
                with task:
                    seen.append(task.text())
                    signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == ["0"]
    assert states(client.tube("emails")) == ["DONE"] + ["READY"] * 4


def test_a_signal_stops_a_subscription_that_waits(cluster, blocking_client):
    before = signal.signal(signal.SIGUSR1, lambda *_: tasks.stop())
    main = threading.main_thread().ident
    try:
        with blocking_client.subscribe("emails") as tasks:
            threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGUSR1)).start()
            assert list(tasks) == []
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_subscription_restores_the_signal_handler_after_the_first_signal(client):
    client.tube("emails").put_many(["a", "b"])
    seen, others = [], []
    before = signal.signal(signal.SIGUSR1, lambda *_: others.append(len(seen)))
    try:
        with client.subscribe("emails", credit=2) as tasks:
            tasks.stop_on(signal.SIGUSR1)
            for task in tasks:
                with task:
                    seen.append(task.text())
                    signal.raise_signal(signal.SIGUSR1)
                    signal.raise_signal(signal.SIGUSR1)
        with client.subscribe("emails") as tasks:
            tasks.stop_on(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (seen, others) == (["a"], [1, 1])
    assert states(client.tube("emails")) == ["DONE", "READY"]


def test_a_call_inside_the_iterable_of_put_many_is_refused(blocking_client):
    emails = blocking_client.tube("emails")
    with pytest.raises(RuntimeError, match="would deadlock"):
        emails.put_many(str(emails.put("a")) for _ in range(2))


def test_batches_are_acknowledged_together(client):
    client.tube("emails").put_many([str(n) for n in range(20)])
    with client.subscribe("emails", credit=10) as tasks:
        done = 0
        for batch in tasks.batches():
            tasks.ack(batch)
            done += len(batch)
            if done == 20:
                break
    assert states(client.tube("emails")) == ["DONE"] * 20


def test_threads_share_one_client_and_their_puts_are_joined(cluster, blocking_client):
    tube = blocking_client.tube("emails")
    cluster.hold_puts()
    with ThreadPoolExecutor(16) as pool:
        puts = [pool.submit(tube.put, str(n)) for n in range(16)]
        while sum(each.running() for each in puts) < 16:
            pass
        cluster.let_puts_go()
        assert sorted(each.result() for each in puts) == list(range(1, 17))
    assert len(cluster.requests("PutTasks")) < 16


def test_other_calls_reach_the_server(client):
    tube = client.tube("emails")
    tube.put_many(["a", "b", "c"])
    assert tube.put_atomic(["d"]) == [4]
    assert [task.id for task in tube.list()] == [1, 2, 3, 4]
    assert tube.peek(1).text() == "a"
    assert tube.stats().tasks.total == 4
    tube.take(wait=0).bury()
    assert tube.kick() == 1
    assert tube.delete(1) == 1
    assert client.create_tube("x").name == "x"
    assert [each.name for each in client.list_tubes()] == ["emails", "x"]
    assert client.stats().tubes[0].tube == "emails"
    client.tube("x").put_many(["a", "b"])
    assert client.drop_tube("x", force=True) == 2
    assert client.cluster_state().leader == "memory"
    assert client.server_info().node == "memory"
    seen = [event.kind for event in client.changes(["x"], from_start=True, follow=False)]
    assert seen.count(feed_service_pb2.ChangeEvent.PUT) == 2
    assert [str(task) for task in client.take_many(["emails"], 2, wait=0)] == [
        "emails/2",
        "emails/3",
    ]


def test_a_client_may_be_closed_while_its_changes_are_read(cluster, caplog):
    with Client(cluster.target) as client:
        client.tube("emails").put("a")
        changes = client.changes(from_start=True)
        assert next(changes).task_id == 1
    assert [record.getMessage() for record in caplog.records] == []
    with pytest.raises(errors.ClientClosed):
        next(changes)


def test_a_closed_client_refuses_calls(cluster):
    client = Client(cluster.target)
    client.tube("emails").put("a")
    client.tube("emails").take(wait=0)
    client.close()
    client.close()
    assert cluster.states() == [READY]
    with pytest.raises(errors.ClientClosed):
        client.tube("emails").put("b")
    assert not [each for each in threading.enumerate() if each.name.startswith("taskraft")]


def test_an_unused_client_starts_no_thread(cluster):
    with Client(cluster.target):
        assert not [each for each in threading.enumerate() if each.name.startswith("taskraft")]


def test_an_unclosed_client_releases_its_tasks_at_process_exit(cluster):
    code = """
        import sys
        from taskraft import Client
        client = Client(sys.argv[1])
        client.tube("emails").put("a")
        print(client.tube("emails").take(wait=0).text())
    """
    command = [sys.executable, "-c", textwrap.dedent(code), cluster.target]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert (done.stdout, done.stderr) == ("a\n", "")
    assert cluster.states() == [READY]


# -------------------------------------------------------------------------------------------- fork

FORKING = """
    import os, sys
    from taskraft import Client, errors

    client = Client(sys.argv[1])
    if sys.argv[2] == "after":
        client.tube("emails").put("parent")
    if sys.argv[2] == "closed":
        client.tube("emails").put("parent")
        client.close()
        client = Client(sys.argv[1])
    pid = os.fork()
    try:
        client.tube("emails").put("child" if pid == 0 else "parent again")
        outcome = 10
    except errors.ClientForked:
        outcome = 20
    if pid == 0:
        try:
            Client(sys.argv[1]).tube("emails").put("child with a client of its own")
        except errors.ClientForked:
            outcome += 1
        os._exit(outcome)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), outcome)
    client.close()
"""


@pytest.mark.parametrize(
    ("moment", "child", "parent"), [("before", 10, 10), ("closed", 10, 10), ("after", 21, 10)]
)
def test_a_fork_with_a_connected_client_raises_a_clear_error(cluster, moment, child, parent):
    command = [sys.executable, "-c", textwrap.dedent(FORKING), cluster.target, moment]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == [str(child), str(parent)], done.stderr


def put_in_child(target):
    with Client(target) as client:
        client.tube("emails").put(str(os.getpid()))


def test_a_spawned_process_can_create_its_own_client(cluster, blocking_client):
    blocking_client.tube("emails").put("parent")
    child = multiprocessing.get_context("spawn").Process(
        target=put_in_child, args=(cluster.target,)
    )
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert len(cluster.states()) == 2


def test_common_mistakes_raise_clear_errors(client):
    emails = client.tube("emails")
    with pytest.raises(TypeError, match=r"`put` takes a single one.*not 'one text'"):
        emails.put_many("one text")
    with pytest.raises(TypeError, match="`put` takes a single one"):
        emails.put_many({"to": "a"})
    with pytest.raises(
        TypeError, match="tubes must be a string or several strings, not <Tube emails>"
    ):
        client.subscribe(emails)
    with pytest.raises(ValueError, match=r"fifottl, .* not 'lifo'"):
        client.create_tube("emails", "lifo")


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ("hello", r"emails/1: the payload is not JSON \(text/plain; charset=utf-8, 5 bytes\): "),
        (b"\xff\xfe\x00", r"emails/1: the payload is not JSON \(3 bytes\): "),
    ],
)
def test_a_payload_that_is_not_json_is_named_with_its_task(blocking_client, payload, told):
    tube = blocking_client.tube("emails")
    tube.put(payload)
    with pytest.raises(errors.PayloadNotJson, match=told) as raised:
        tube.take(wait=0).json()
    assert isinstance(raised.value, ValueError)
    assert raised.value.metadata == {"tube": "emails", "task_id": "1"}
    assert "text() or payload" in raised.value.advice
