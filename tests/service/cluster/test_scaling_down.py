"""Nodes that are not wanted stop at once, and their members leave; nothing is lost."""

import asyncio
from contextlib import asynccontextmanager, suppress

import grpc
import pytest
from structlog.testing import capture_logs

from taskraft.v1 import cluster_service_pb2 as pb_cluster
from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.errors import MemberRemoved
from taskraft_service.cluster import departure
from taskraft_service.leader.node_phases import NodePhase
from tests.service.api.test_three_nodes import Three, stop_all
from tests.service.conftest import config_in, put, until_phase
from tests.turns import turns_until
from tools.free_addresses import free_addresses

pytestmark = pytest.mark.real_time

LEFT, STAYS = "the node has left its cluster", "the node stays a member"


@asynccontextmanager
async def founded(tmp_path, size):
    """Run nodes whose names have ordinals, and yield them with the file of the wanted number."""
    peers, clients, file = free_addresses(size), free_addresses(size), tmp_path / "replicas"
    members = ",".join(f"n-{n}={peers[n]}/{clients[n]}" for n in range(size))
    cluster = Three([])
    try:
        for n in range(size):
            cluster.configs[f"n-{n}"] = config_in(
                tmp_path / f"n-{n}",
                node_name=f"n-{n}",
                peers=members,
                listen=clients[n],
                peer_listen=peers[n],
                auto_create_tubes=True,
                replicas_file=file,
            )
            await cluster.start(f"n-{n}")
        await cluster.settled()
        yield cluster, file
    finally:
        file.unlink(missing_ok=True)
        await stop_all(cluster)


def voters(node):
    return sorted(node.server.node.status().conf_state.voters)


async def put_until(node, is_over, tasks):
    """Put tasks through a node, and count the acknowledged ones in ``tasks``."""
    while not is_over.is_set():
        with suppress(grpc.aio.AioRpcError):  # the outcome is unknown while no node leads
            tasks += (await put(node, b"x")).task_ids


@pytest.mark.parametrize("size", [2, 3, 5])
async def test_all_nodes_but_one_stop_at_once_with_the_leader_among_them(tmp_path, size):
    async with founded(tmp_path, size) as (cluster, file):
        first, *others = cluster.nodes
        if cluster.leader is first:
            await first.server.node.transfer_leadership(size)
            await cluster.settled()
        assert cluster.leader is not first
        tasks, is_over = [], asyncio.Event()
        putting = asyncio.create_task(put_until(first, is_over, tasks))
        await turns_until(lambda: len(tasks) > 10)
        file.write_text("1")
        with capture_logs() as logs:
            async with asyncio.TaskGroup() as stopping:
                for node in others:
                    stopping.create_task(cluster.stop(node))
        assert [each["event"] for each in logs].count(LEFT) == size - 1
        assert voters(first) == [1]
        alone = len(tasks)
        await turns_until(lambda: len(tasks) > alone)
        is_over.set()
        await putting
        get = pb.GetTasksRequest(tube="emails", selector=task_pb2.TaskSelector(ids=tasks[-1_000:]))
        assert len((await first.tasks.GetTasks(get)).tasks) == len(tasks[-1_000:])


async def test_a_node_whose_turn_never_comes_stays_and_returns(tmp_path, monkeypatch):
    """Without n-2, only one of two voters would answer, because n-0 is down."""
    monkeypatch.setattr(departure, "LEAVE_SECONDS", 2.5)
    async with founded(tmp_path, 3) as (cluster, file):
        first, second, third = cluster.nodes
        await put(second, b"x")
        await cluster.stop(first)
        await cluster.settled()
        file.write_text("2")
        with capture_logs() as logs:
            await cluster.stop(third)
        (stays,) = (each for each in logs if each["event"] == STAYS)
        assert "only 1 of the 2 remaining voters answer" in stays["reason"]
        file.write_text("3")
        await cluster.start("n-0")
        await cluster.start("n-2")
        await cluster.settled()
        assert {tuple(voters(node)) for node in cluster.nodes} == {(1, 2, 3)}


async def test_a_learner_leaves(tmp_path):
    async with founded(tmp_path, 3) as (cluster, file):
        config, (peer, client) = cluster.configs["n-0"], free_addresses(2)
        cluster.configs["n-3"] = config_in(
            tmp_path / "n-3",
            node_name="n-3",
            join=config.listen,
            listen=client,
            peer_listen=peer,
            replicas_file=file,
        )
        learner = await cluster.start("n-3")
        leader = cluster.leader.server.node
        await turns_until(lambda: 4 in learner.server.node.status().conf_state.learners)
        file.write_text("3")
        await cluster.stop(learner)
        assert leader.status().conf_state.learners == ()
        assert voters(cluster.leader) == [1, 2, 3]


async def test_a_node_that_stops_as_wanted_returns_as_the_same_member(tmp_path):
    async with founded(tmp_path, 3) as (cluster, file):
        for text in ("3", "0", "-1", "", "2 3", None):
            if text is None:
                file.unlink()
            else:
                file.write_text(text)
            await cluster.stop(cluster.nodes[-1])
            await cluster.start("n-2")
            await cluster.settled()
            assert voters(cluster.leader) == [1, 2, 3]


async def test_a_node_that_does_not_know_of_its_removal_is_refused_with_its_old_volume(tmp_path):
    """The node was killed before the commit reached it, and returns before the other node."""
    async with founded(tmp_path, 3) as (cluster, file):
        first, second, third = cluster.nodes
        await cluster.stop(third)
        await cluster.settled()
        removal = pb_cluster.RemoveMemberRequest(name="n-2")
        await cluster.leader.cluster.RemoveMember(removal)
        file.write_text("1")
        await cluster.stop(second)
        file.unlink()
        await cluster.stop(first)
        with capture_logs() as logs:
            third = await cluster.start("n-2")
            first = await cluster.start("n-0")
            await turns_until(third.server.node.failed.done)
            await until_phase(first.server, NodePhase.RUNNING)
        assert isinstance(third.server.node.failed.result(), MemberRemoved)
        assert [each["event"] for each in logs].count("leads") == 1
        assert voters(first) == [1]
