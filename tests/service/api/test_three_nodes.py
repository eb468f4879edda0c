"""Three nodes in one process over real gRPC: any node answers, one leads."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest

from taskraft.v1 import cluster_service_pb2, error_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.core.types import MemberId
from taskraft_service.api.rpc.forwarding_metadata import HOPS_KEY, WAITED_KEY
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.process.node_server import NodeServer
from tests.service.conftest import (
    Node,
    ack,
    config_in,
    create,
    put,
    reason_of,
    take,
)
from tests.turns import turns_until
from tools.free_addresses import free_addresses

pytestmark = pytest.mark.real_time

WAITS = 1_500
"""Number of waiting calls, above the maximum that gRPC allows on a connection of a client."""


class Three:
    """The running nodes of a cluster."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.configs = {}

    @property
    def leader(self):
        return next(
            node for node in self.nodes if node.server.components.phases.phase is NodePhase.RUNNING
        )

    @property
    def followers(self):
        return [
            node for node in self.nodes if node.server.components.phases.phase is NodePhase.WAITING
        ]

    async def settled(self):
        """Return once one node leads, and the others follow this node."""
        phases = sorted([NodePhase.RUNNING, *[NodePhase.WAITING] * (len(self.nodes) - 1)])

        def is_settled():
            components = [node.server.components for node in self.nodes]
            leaders = {one.leadership.leader_and_term for one in components}
            # A deposed leader waits too, but without a leader until it hears of the next one.
            return len(leaders) == 1 and sorted(one.phases.phase for one in components) == phases

        await turns_until(is_settled)

    async def start(self, name):
        server = await NodeServer.open(self.configs[name])
        await server.start()
        node = Node(server, grpc.aio.insecure_channel(self.configs[name].listen))
        self.nodes.append(node)
        return node

    async def stop(self, node):
        self.nodes.remove(node)
        await node.channel.close()
        await node.server.stop()


@asynccontextmanager
async def cluster_in(tmp_path, **settings):
    peers, clients = free_addresses(3), free_addresses(3)
    members = ",".join(
        f"n{place}={peer}/{client}"
        for place, (peer, client) in enumerate(zip(peers, clients, strict=True))
    )
    async with AsyncExitStack() as stack:
        three = Three([])
        stack.push_async_callback(stop_all, three)
        for place in range(3):
            config = config_in(
                tmp_path / f"n{place}",
                node_name=f"n{place}",
                peers=members,
                listen=clients[place],
                peer_listen=peers[place],
                auto_create_tubes=True,
                **settings,
            )
            server = await NodeServer.open(config)
            await server.start()
            channel = grpc.aio.insecure_channel(clients[place])
            three.nodes.append(Node(server, channel))
            three.configs[f"n{place}"] = config
        await three.settled()
        yield three


async def stop_all(three):
    for node in list(three.nodes):
        await three.stop(node)


@pytest.fixture
async def three(tmp_path):
    async with cluster_in(tmp_path) as one:
        yield one


async def test_every_node_accepts_every_call(three):
    await create(three.leader)
    for node in three.nodes:
        await put(node, b"x")
        taken = await take(node, wait_ms=1_000)
        assert len(taken.tasks) == 1
        assert not (await ack(node, taken.tasks)).errors
        statistics = await node.tubes.GetStatistics(tube_service_pb2.GetStatisticsRequest())
        assert statistics.total.tasks.total == 0


async def test_every_answer_names_the_leader(three):
    leader = three.leader.server.config.listen
    for node in three.nodes:
        call = node.tubes.ListTubes(tube_service_pb2.ListTubesRequest())
        await call
        assert dict(await call.trailing_metadata())["x-taskraft-leader"] == leader
        wrong = node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="nowhere"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await wrong
        assert reason_of(caught.value) == "TUBE_NOT_FOUND"
        assert dict(caught.value.trailing_metadata())["x-taskraft-leader"] == leader


async def test_replicas_with_the_same_index_have_the_same_state(three):
    await create(three.leader)
    for number in range(20):
        await put(three.nodes[number % 3], b"x" * number, delay_ms=number)
        await take(three.nodes[number % 3], tasks_max=2)
    queues = [node.queue for node in three.nodes]
    # Deadlines may add entries at any time, so look for equal indexes in each try.
    await turns_until(lambda: len({queue.applied_index for queue in queues}) == 1)
    assert len({queue.digest() for queue in queues}) == 1


async def test_a_follower_serves_bounded_stale_reads(three):
    await create(three.leader)
    follower = three.followers[0]
    local = task_pb2.Consistency(level=task_pb2.Consistency.LOCAL, staleness_ms_max=1)
    index = three.leader.queue.applied_index
    await turns_until(lambda: follower.queue.applied_index >= index)
    before = follower.server.components.forwarder.calls
    answer = await follower.tubes.ListTubes(tube_service_pb2.ListTubesRequest(consistency=local))
    assert [tube.name for tube in answer.tubes] == ["emails"]
    assert follower.server.components.forwarder.calls == before


async def test_a_forwarded_call_keeps_its_trace(three, monkeypatch):
    await create(three.leader)
    endpoint = three.leader.server.components.endpoint
    execute, seen = endpoint._execute, []

    async def noting(path, method, raw, context, caller):
        seen.append(dict(context.invocation_metadata()).get("traceparent"))
        return await execute(path, method, raw, context, caller)

    monkeypatch.setattr(endpoint, "_execute", noting)
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    # Over the edge, a plain put is a prompt call, for which the endpoint does not call `_execute`.
    request = pb.PutTasksRequest(
        tube="emails", tasks=[task_pb2.TaskSpec(payload=b"x")], return_tasks=True
    )
    await three.followers[0].tasks.PutTasks(request, metadata=(("traceparent", parent),))
    assert seen == [parent]


async def test_a_forwarded_wait_keeps_its_waiting_time(three):
    """A take that was forwarded twice has waited as long as its caller sees it wait."""
    await create(three.leader)
    request = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="emails")], wait_ms=50_000)
    waited = ((WAITED_KEY, "49999"),)
    for node in three.nodes:
        assert not (await node.tasks.TakeTasks(request, metadata=waited, timeout=5)).tasks


async def test_a_forwarded_call_is_not_forwarded_again(three):
    follower = three.followers[0]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await follower.tubes.CreateTube(
            tube_service_pb2.CreateTubeRequest(
                tube=tube_service_pb2.Tube(name="t", kind=tube_service_pb2.Tube.FIFO)
            ),
            metadata=((HOPS_KEY, "1"),),
        )
    assert reason_of(caught.value) == "NOT_LEADER"


async def test_a_stream_through_a_follower_reaches_the_leader(three):
    await create(three.leader)
    stream = three.followers[0].tasks.Subscribe(timeout=20)
    sources = [pb.TakeSource(tube="emails")]
    await stream.write(
        pb.SubscribeRequest(
            open=pb.SubscribeRequest.Open(sources=sources, session_ttr_ms=60_000),
            credit=pb.SubscribeRequest.Credit(tasks=5),
        )
    )
    opened = await stream.read()
    assert opened.opened.session_id
    await put(three.followers[1], b"x")
    message = await stream.read()
    settlement = pb.Settlement(
        tokens=[task.token for task in message.tasks], ack=pb.Settlement.Ack()
    )
    await stream.write(pb.SubscribeRequest(settlements=[settlement], request_id="s"))
    assert (await stream.read()).settled[0].request_id == "s"
    await three.stop(three.leader)
    message = await stream.read()
    assert message.go_away.error.reason in (
        error_pb2.Error.NOT_LEADER,
        error_pb2.Error.NO_LEADER,
        error_pb2.Error.DRAINING,
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert reason_of(caught.value) in ("NOT_LEADER", "NO_LEADER", "DRAINING")


async def test_waiting_takes_through_a_follower_hold_up_no_other_call(three):
    follower, leader = three.followers[0], three.leader
    await create(follower)
    request = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="emails")], wait_ms=60_000)
    waits = [follower.tasks.TakeTasks(request) for _ in range(WAITS)]
    assert (await put(follower, b"x", tube="other")).task_ids
    await leader.waiting(WAITS)
    for wait in waits:
        wait.cancel()


async def test_a_waiting_take_survives_a_change_of_leader(three):
    await create(three.leader)
    follower, other = three.followers
    waiting = asyncio.ensure_future(take(follower, wait_ms=8_000))
    await three.leader.waiting(1)
    await three.stop(three.leader)
    await three.settled()
    await put(other, b"x")
    assert len((await waiting).tasks) == 1


async def test_leadership_is_transferred_to_a_member_by_name(three):
    target = three.followers[0]
    name = target.server.config.node_name
    answer = await three.followers[1].cluster.TransferLeadership(
        cluster_service_pb2.TransferLeadershipRequest(name=name), timeout=10
    )
    assert answer.leader == name
    await three.settled()
    assert three.leader is target


async def test_a_leader_logs_its_counts_before_a_transfer(three):
    await create(three.leader)
    await put(three.leader, b"x")
    await take(three.leader, tube="emails", tasks_max=2)
    await take(three.leader)
    get = pb.GetTasksRequest(tube="emails", selector=task_pb2.TaskSelector(ids=[1]))
    await three.leader.tasks.GetTasks(get)
    heir = three.followers[0].server.config.node_name
    await three.leader.cluster.TransferLeadership(
        cluster_service_pb2.TransferLeadershipRequest(name=heir), timeout=10
    )
    await three.settled()
    statistics = await three.leader.tubes.GetStatistics(tube_service_pb2.GetStatisticsRequest())
    (emails,) = statistics.tubes
    assert (emails.calls.take_timeout, emails.calls.peek) == (1, 1)
    assert (emails.calls_since_start.take_timeout, emails.calls_since_start.peek) == (0, 0)


async def test_without_a_majority_calls_fail_with_a_typed_error(three):
    await create(three.leader)
    survivor = three.followers[0]
    for node in [node for node in three.nodes if node is not survivor]:
        await three.stop(node)
    await turns_until(lambda: survivor.server.components.leadership.leader is None)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await put(survivor, b"x")
    assert reason_of(caught.value) == "NO_LEADER"
    # On request, a node shows its local state even without a leader.
    local = task_pb2.Consistency(level=task_pb2.Consistency.LOCAL)
    answer = await survivor.tubes.ListTubes(tube_service_pb2.ListTubesRequest(consistency=local))
    assert len(answer.tubes) == 1
    fresh = task_pb2.Consistency(level=task_pb2.Consistency.LOCAL, staleness_ms_max=1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await survivor.tubes.ListTubes(tube_service_pb2.ListTubesRequest(consistency=fresh))
    assert reason_of(caught.value) == "NODE_BEHIND"


async def test_a_leader_that_is_cut_off_shows_no_fresh_state(three, monkeypatch):
    """A partition: the majority continues under a new leader that the old leader does not know."""
    old = three.leader
    await create(old)
    tubes = {node: lister(node) for node in three.nodes}
    with monkeypatch.context() as cut:
        cut.setattr(old.server.node._effects, "send", lambda _: None)
        cut.setattr(old.server.node._driver, "receive", lambda _: None)
        others = three.followers
        asked = asyncio.ensure_future(tubes[old]())
        await turns_until(
            lambda: any(node.server.components.phases.phase is NodePhase.RUNNING for node in others)
        )
        new = next(
            node for node in others if node.server.components.phases.phase is NodePhase.RUNNING
        )
        await create(new, name="later")
        for reading in (asked, tubes[old](), tubes[old](level=LOCAL, staleness_ms_max=1)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await reading
            assert reason_of(caught.value) in {"NO_LEADER", "NODE_BEHIND"}
        # A read without a bound returns the local state.
        assert await tubes[old](level=LOCAL) == ["emails"]
        for node in others:
            assert await tubes[node]() == ["emails", "later"]
            assert await tubes[node](level=LOCAL, staleness_ms_max=60_000) == ["emails", "later"]
    await three.settled()
    assert await tubes[old]() == ["emails", "later"]
    assert await tubes[old](level=LOCAL, staleness_ms_max=60_000) == ["emails", "later"]


LOCAL = task_pb2.Consistency.LOCAL


def lister(node):
    """Return a function that asks a node for its tubes."""

    async def names(**consistency):
        request = tube_service_pb2.ListTubesRequest(consistency=task_pb2.Consistency(**consistency))
        answer = await node.tubes.ListTubes(request, timeout=10)
        return sorted(tube.name for tube in answer.tubes)

    return names


async def test_the_leader_shows_the_wall_clocks_of_all_voters(three):
    components = three.leader.server.components

    def knows_all():
        components.clock.compare()
        return len(components.clock.wall_deviations()) == 3

    await turns_until(knows_all)
    asked = cluster_service_pb2.GetClusterStateRequest()
    state = await three.leader.cluster.GetClusterState(asked)
    assert all(member.HasField("wall_deviation_ms") for member in state.members)
    assert max(abs(member.wall_deviation_ms) for member in state.members) < 1_000
    assert state.wall_offset_ms == components.machine.queue.wall_offset_ms
    assert state.clock_problem == ""


async def test_the_cluster_shows_its_members(three):
    state = await three.followers[0].cluster.GetClusterState(
        cluster_service_pb2.GetClusterStateRequest()
    )
    assert [member.name for member in state.members] == ["n0", "n1", "n2"]
    assert [member.leader for member in state.members].count(True) == 1
    assert state.leader == three.leader.server.config.node_name
    assert state.state.phase == cluster_service_pb2.NodeState.WAITING
    async with asyncio.timeout(10):
        # A follower can know its leader before the leader has heard from the follower.
        asked = cluster_service_pb2.GetClusterStateRequest()
        while not all(
            member.active for member in (await three.leader.cluster.GetClusterState(asked)).members
        ):
            pass
    info = await three.leader.cluster.GetServerInfo(cluster_service_pb2.GetServerInfoRequest())
    assert info.limits["payload_bytes_max"] == 1 << 20
    assert info.limits["put_tasks_max"] == 1_000
    assert "taskraft.leader" in info.service_config_json


async def test_sessions_survive_a_change_of_leader(three):
    await create(three.leader)
    stream = three.leader.tasks.Subscribe(timeout=20)
    sources = [pb.TakeSource(tube="emails")]
    # A session without a TTR ends with its stream. A change of leader is not the client's fault, so
    # the session survives the change.
    await stream.write(
        pb.SubscribeRequest(
            open=pb.SubscribeRequest.Open(sources=sources),
            credit=pb.SubscribeRequest.Credit(tasks=5),
        )
    )
    session_id = (await stream.read()).opened.session_id
    await put(three.leader, b"x")
    (task,) = (await stream.read()).tasks
    await three.stop(three.leader)
    await three.settled()
    again = three.leader.tasks.Subscribe(timeout=20)
    await again.write(
        pb.SubscribeRequest(open=pb.SubscribeRequest.Open(sources=sources, session_id=session_id))
    )
    opened = (await again.read()).opened
    assert [held.token for held in opened.held] == [task.token]
    again.cancel()


@pytest.mark.parametrize("is_moved", [False, True], ids=["same leader", "another leader"])
async def test_a_node_that_was_away_for_long_gets_a_snapshot(tmp_path, is_moved):
    small = {
        "log_segment_bytes": 16_384,
        "log_flush_bytes": 32_768,
        "log_kept_entries": 4,
        "collect_entries": 1,
    }
    async with cluster_in(tmp_path, **small) as three:
        await create(three.leader)
        away = three.followers[0]
        name = away.server.config.node_name
        index = away.queue.applied_index
        await three.stop(away)
        # Change both nodes, because either of them may lead when the third node returns.
        while any(node.server.node.status().first <= index + 1 for node in three.nodes):
            await put(three.leader, *[b"x" * 900] * 20)
            await take(three.leader, tasks_max=5)
        if is_moved:
            to = three.followers[0].server.config.node_name
            transfer = cluster_service_pb2.TransferLeadershipRequest(name=to)
            await three.leader.cluster.TransferLeadership(transfer, timeout=10)
        back = await three.start(name)
        await three.settled()
        await put(back, b"after")
        applied = three.leader.queue.applied_index
        await turns_until(lambda: {node.queue.applied_index for node in three.nodes} == {applied})
        assert len({node.queue.digest() for node in three.nodes}) == 1
        # The node's own log has no entry between its old and its new position.
        assert back.server.node.status().first > index + 1
        await three.stop(back)
        again = await three.start(name)
        await three.settled()
        await turns_until(lambda: again.queue.applied_index >= applied)


async def test_a_stopping_node_hands_over_a_leadership_that_it_gains_later(tmp_path):
    """A call that runs on keeps the node for its grace, in which the node refuses all calls."""
    async with cluster_in(tmp_path, stop_grace_ms=60_000) as three:
        leader, stopping = three.leader, three.followers[0]
        three.nodes.remove(stopping)
        components, load = stopping.server.components, stopping.server.components.endpoint.load
        load.calls += 1
        ending = asyncio.ensure_future(stopping.server.stop())
        await turns_until(lambda: load.idle is not None)
        await leader.server.node.transfer_leadership(
            MemberId(stopping.server.identity.member.member_id)
        )
        await turns_until(lambda: not components.leadership.is_leader)
        await three.settled()
        assert not ending.done()
        await put(leader, b"x")
        load.calls -= 1
        load.notify_if_idle()
        await ending
        await stopping.channel.close()
