"""Compare the figures of a report with those of the queue, after each way into each state."""

from collections import Counter

import grpc
import pytest

from taskraft import Batch, Client, Retry
from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft.v1.session_service_pb2 import OpenSessionRequest
from taskraft.v1.session_service_pb2_grpc import SessionServiceStub
from taskraft.v1.task_service_pb2 import TakeTasksRequest
from taskraft.v1.task_service_pb2_grpc import TaskServiceStub
from taskraft_pipeline.figures import FIGURES
from taskraft_pipeline.report.make import report_from_feed
from tests.cluster.node_clocks import NodeClocks
from tests.drill.spark_deaths import events_of
from tools.local_cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

WAIT = "20s"
BRIEF = "1ms"
MINUTE_MS = 60_000
QUICK = Retry(attempts_max=2)
ODD = ("uncounted", "unsaid", "outlived")


def take(tube, tasks):
    """Take exactly this many tasks; wait until they are READY."""
    found = []
    while len(found) < tasks:
        more = tube.take_many(tasks - len(found), wait=WAIT)
        assert more, f"{len(found)} of {tasks} tasks became READY"
        found += more
    return found


def use_up(tube, tasks, reason):
    """Fail tasks until their attempts are used up."""
    for _ in range(QUICK.attempts_max):
        for task in take(tube, tasks):
            task.release(0, reason=reason)


def settle_each_way(client):
    """Put tasks, and settle them: acknowledged, kept, released, buried, rejected, moved."""
    work = client.tube("work")
    work.put_many(map(str, range(12)), retry=QUICK)
    first, second, third, fourth, *rest = take(work, 12)
    first.ack()
    second.ack(keep="done")
    third.ack(keep="zombie", retain=BRIEF)
    fourth.touch()
    fourth.bury(ValueError("no"))
    rest[0].bury()
    rest[1].release(move_to="other")
    rest[2].reject("never")
    for task in rest[3:]:
        task.release()
    use_up(work, 5, TimeoutError("host 10.0.0.7"))


def give_up_each_way(client):
    """Use the attempts of tasks up: buried, removed, moved to the dead-letter tube."""
    for name, exhausted in (("given-up", "dead_letter"), ("removed", "remove")):
        client.create_tube(name, dead_letter_tube="dead", retry=QUICK)
        tube = client.tube(name)
        retry = Retry(attempts_max=QUICK.attempts_max, exhausted=exhausted)
        tube.put_many(map(str, range(4)), retry=retry)
        use_up(tube, 4, ConnectionError("closed"))
    rejected = client.tube("given-up")
    rejected.put("one")
    take(rejected, 1)[0].reject(KeyError("a"))
    client.create_tube("surplus", buried_max=1)
    surplus = client.tube("surplus")
    surplus.put_many(["a", "b"])
    for task in take(surplus, 2):
        task.bury(ValueError("too many"))


def lose_leases(client):
    """End leases by their TTR, by an operator, by the end of a session, and by a cancellation."""
    lost = client.tube("lost")
    ids = lost.put_many(map(str, range(3)), ttr=BRIEF, retry=QUICK)
    take(lost, 3 * QUICK.attempts_max)  # the second take of a task comes after its TTR
    lost.wait(ids, wait=WAIT)
    held = client.tube("held")
    held.put_many(map(str, range(6)))
    taken = take(held, 6)
    held.snatch([taken[0].id])
    held.snatch([taken[1].id], delay="1h")
    held.cancel([taken[2].id])
    taken[2].release()
    held.delete([taken[3].id])
    held.release_all()


def fail_oddly(client):
    """Fail attempts that the queue counts by other rules than the texts of their failures.

    Each way has its own tube, because the differences would compensate each other in one tube.
    """
    for name in ODD:
        client.tube(name).put_many(["a", "b"], retry=QUICK, ttl="10s", ttr="20s")
    for task in take(client.tube("uncounted"), 2):
        task.release("1h", reason=ValueError("not yet"), uncounted=True)
    for task in take(client.tube("unsaid"), 2):
        task.release("1h", reason="")
    take(client.tube("outlived"), 2)  # the leases end after the TTL, with the minute


def administer(client):
    """Change tasks as an operator: bury, kick, delete, update, restart, switch, move, truncate."""
    admin = client.tube("admin")
    ids = admin.put_many(map(str, range(8)))
    later = admin.put("later", delay="1h")
    admin.put("soon", delay=BRIEF)
    admin.bury(ids[:3], reason=ValueError("bad data"))
    admin.kick(ids=[ids[0]])
    admin.delete([ids[1], later])
    admin.update([ids[3]], priority=7)
    admin.switch([ids[4]], "DONE")
    admin.restart([ids[4]])
    admin.switch([ids[5]], "BURIED")
    admin.move([ids[2], ids[6]], "other")
    expiring = admin.put("brief", ttl=BRIEF)
    admin.wait([expiring], wait=WAIT)
    client.tube("emptied").put_many(["a", "b", "c"])
    client.truncate_tube("emptied")


def combine(client):
    """Use dependencies, groups, a batch and a schedule."""
    flow = client.tube("flow")
    first = flow.put("first")
    flow.put("second", depends_on=[first])
    flow.put("third", depends_on=[first], on_dependency_failure="run")
    flow.delete([first])
    take(flow, 1)[0].ack()
    client.groups.create("group", end_task=flow.task("end"))
    flow.put_many(["x", "y"], group="group")
    client.groups.start("group")
    for task in take(flow, 2):
        task.ack()
    take(flow, 1)[0].ack()
    batch = Batch().put(flow.task("by batch")).move("other", [1], "flow")
    client.execute(batch)
    take(flow, 2)


def busy_hour(client):
    names = ("work", "other", "dead", "lost", "held", "admin", "emptied", "flow", "due", "left")
    for name in (*names, *ODD):
        client.create_tube(name)
    settle_each_way(client)
    give_up_each_way(client)
    lose_leases(client)
    fail_oddly(client)
    administer(client)
    combine(client)
    client.tube("left").put_many(["a", "b"], ttr="1h")
    client.schedules.create("minute", "* * * * *", client.tube("due").task("by schedule"))


def leave_a_task_to_a_restart(target):
    """Take a task in a session of a client that dies before the node restarts."""
    with grpc.insecure_channel(target) as channel:
        opened = SessionServiceStub(channel).OpenSession(OpenSessionRequest())
        request = TakeTasksRequest(session_id=opened.session.session_id, tasks_max=1)
        request.sources.add(tube="left")
        assert len(TaskServiceStub(channel).TakeTasks(request).tasks) == 1


def let_a_minute_end(client):
    """Take the task of the schedule, and the tasks whose leases have ended with the minute."""
    take(client.tube("left"), 2)[0].ack()
    take(client.tube("due"), 1)[0].ack()
    client.schedules.delete("minute")
    for task in take(client.tube("flow"), 2):
        task.ack()


def counts_of(tube, failures):
    """Return the figures that the queue itself counts for a tube."""
    changes = [one for one in tube.transitions if one.from_state != one.to_state]
    calls = tube.calls
    return {
        "put": calls.put,
        "moved_in": sum(one.count for one in changes if one.crossing and not one.from_state),
        "taken": calls.take,
        "acknowledged": calls.ack,
        "failed": calls.fail,
        "failures": failures[tube.tube],
        "buried": sum(one.count for one in changes if one.to_state == "BURIED"),
        "expired": calls.ttl,
        "ended": calls.finished,
        "moved_out": sum(one.count for one in changes if one.crossing and not one.to_state),
    }


def test_each_figure_of_a_report_equals_the_count_of_the_queue(spark, tmp_path):
    cluster = LocalCluster(1, tmp_path / "nodes")
    (node,) = cluster.nodes
    clocks = NodeClocks(node)
    with (
        cluster,
        Client(cluster.target) as client,
    ):
        cluster.wait_ready()
        busy_hour(client)
        # After the minute, the session of the first task has lived through a change of leader.
        for passed_ms in (0, MINUTE_MS):
            leave_a_task_to_a_restart(cluster.target)
            node.kill()
            clocks.set_wall(passed_ms)
            node.start()
            cluster.wait_ready()
        let_a_minute_end(client)
        settle_each_way(client)
        counted = client.failures().failures
        failures = Counter()
        for row in counted:
            failures[row.tube] += row.count
        queue = client.stats(transitions=True)
        report = report_from_feed(spark, cluster.target)
        changes = spark.read.format("taskraft").option("endpoints", cluster.target).load()
        told = changes.where("fingerprint IS NOT NULL").collect()
        dead = changes.where("target LIKE 'dead/%'").select("tube").collect()
        kinds = {kind for *_, kind in events_of(cluster.target)}
    assert kinds == {name.lower() for name in ChangeEvent.Kind.keys()[1:]}
    assert report.is_from_the_start
    assert {tube.name for tube in report.tubes} == {tube.tube for tube in queue.tubes}
    by_name = {tube.name: tube for tube in report.tubes}
    for tube in queue.tubes:
        found = {figure.name: by_name[tube.tube].count(figure.name) for figure in FIGURES}
        assert found == counts_of(tube, failures), tube.tube
        assert transitions_in(report, tube.tube) == transitions_of(tube)
    # The feed also tells why the server moved or removed a task, which is no failure.
    assert counted_causes(counted) <= told_causes(told)
    assert ("work", None, "never") in {(row.tube, row.reason, row.message) for row in told}
    assert Counter(row.tube for row in dead) == {"given-up": 5}
    never = [figure.name for figure in FIGURES if not report.total.count(figure.name)]
    assert never == []


def told_causes(rows):
    """Return the cause of each failure that the rows of the feed tell."""
    return {(row.tube, row.reason or "", row.fingerprint) for row in rows}


def counted_causes(counted):
    """Return the cause of each failure that the queue has counted."""
    return {(row.tube, row.reason, row.fingerprint) for row in counted if row.fingerprint}


def transitions_in(report, tube):
    return {
        (one.from_state.upper(), one.to_state.upper(), one.is_crossing): one.count
        for one in report.transitions
        if one.tube == tube
    }


def transitions_of(tube):
    return {(one.from_state, one.to_state, one.crossing): one.count for one in tube.transitions}
