"""One surviving node of three continues alone, with everything that it has stored."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from taskraft.cli import confirmation, main
from taskraft.v1 import cluster_service_pb2 as cluster_pb
from taskraft_replication.errors import MemberRemoved
from taskraft_service.process.node_server import NodeServer
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import ack, config_in, create, put, running, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

YES = ("cluster", "recover", "--force-new", "--yes")


def variables_of(config):
    """Return the environment of a node with these settings."""
    names = ("cluster_id", "node_name", "data_dir", "peers", "listen", "peer_listen")
    return {f"TASKRAFT_{name.upper()}": str(getattr(config, name)) for name in names}


async def recover(config, *words, **options):
    arguments = words or YES
    runner = CliRunner()
    environment = variables_of(config)
    return await asyncio.to_thread(runner.invoke, main, arguments, env=environment, **options)


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_each_founder_continues_without_the_names_of_the_founders(tmp_path, place):
    async with cluster_in(tmp_path) as three:
        await create(three.leader)
        (task_id,) = (await put(three.leader, b"kept")).task_ids
        node = three.nodes[place]
        await turns_until(lambda: node.queue.applied_index == three.leader.queue.applied_index)
        config = node.server.config
    alone = config.model_copy(update={"peers": ""})
    result = await recover(alone)
    assert result.exit_code == 0, result.output
    async with running(alone) as node:
        assert [task.id for task in (await take(node)).tasks] == [task_id]
        state = await node.cluster.GetClusterState(cluster_pb.GetClusterStateRequest())
        assert [member.id for member in state.members] == [place + 1]


async def test_one_of_three_nodes_continues_with_all_that_it_has(tmp_path):
    async with cluster_in(tmp_path) as three:
        leader, survivor = three.leader, three.followers[0]
        await create(leader)
        ids = (await put(leader, *(b"%d" % number for number in range(30)))).task_ids
        (held, *_) = (await take(leader, tasks_max=1)).tasks
        await turns_until(lambda: survivor.queue.applied_index == leader.queue.applied_index)
        configs = {node.server.config.node_name: node.server.config for node in three.nodes}
        name = survivor.server.config.node_name
    config = configs[name]
    result = await recover(config)
    assert result.exit_code == 0, result.output
    lost = sorted(set(configs) - {name})
    assert f"removed members: {', '.join(lost)}" in result.output

    async with running(config) as alone:
        state = await alone.cluster.GetClusterState(cluster_pb.GetClusterStateRequest())
        assert [member.name for member in state.members] == [name]
        assert not (await ack(alone, [held])).errors
        left = [task.id for task in (await take(alone, tasks_max=100)).tasks]
        assert left == list(ids[1:])
        # A node of the lost majority is refused for good.
        old = await NodeServer.open(configs[lost[0]])
        await old.start()
        try:
            await turns_until(old.node.failed.done)
            assert isinstance(old.node.failed.result(), MemberRemoved)
        finally:
            await old.stop()
    again = await recover(config)
    assert (again.exit_code, "removed members: none" in again.output) == (0, True)
    async with running(config):
        pass


async def test_entries_beyond_the_commit_index_are_kept(tmp_path):
    """An entry of the log may have been acknowledged, although this node does not know."""
    async with cluster_in(tmp_path) as three:
        leader = three.leader
        await create(leader)
        followers = three.followers
        for follower in followers:
            await three.stop(follower)
        lost = asyncio.ensure_future(put(leader, b"stored on one node only"))
        last = leader.server.node.status().last
        await turns_until(lambda: leader.server.node.status().last > last)
        await turns_until(lambda: leader.server.node.append_idle)
        lost.cancel()
        config = leader.server.config
    assert (await recover(config)).exit_code == 0
    async with running(config) as alone:
        (task,) = (await take(alone)).tasks
        assert task.spec.payload == b"stored on one node only"


async def test_a_recovery_must_be_confirmed(tmp_path, monkeypatch):
    config = config_in(tmp_path)
    async with running(config):
        pass
    assert (await recover(config, "cluster", "recover")).exit_code == 2
    piped = await recover(config, *YES[:-1], input="y\n")
    assert (piped.exit_code, "give --yes to confirm" in piped.output) == (2, True)
    monkeypatch.setattr(confirmation, "is_terminal", lambda: True)
    result = await recover(config, *YES[:-1], input="n\n")
    assert result.exit_code == 1
    assert "lost for good" in result.output
    assert result.output.endswith("error: nothing was changed\n")
    assert (await recover(config, *YES[:-1], input="")).exit_code == 130
    result = await recover(config, *YES[:-1], input="y\n")
    assert result.exit_code == 0


async def test_a_dry_run_of_a_recovery_changes_nothing(tmp_path):
    config = config_in(tmp_path)
    async with running(config):
        pass
    result = await recover(config, *YES[:-1], "--dry-run", "-o", "jsonl")
    assert (result.exit_code, result.stdout) == (0, '{"dry_run": true, "lost": []}\n')
    (recovered,) = json.loads((await recover(config, *YES, "-o", "json")).stdout)
    async with running(config) as alone:
        assert alone.server.node.status().last >= int(recovered["index"])


async def test_a_directory_without_a_usable_member_is_refused(tmp_path):
    config = config_in(tmp_path)
    missing = await recover(config)
    assert (missing.exit_code, "does not exist" in missing.output) == (1, True)
    config.data_dir.mkdir()
    empty = await recover(config)
    assert (empty.exit_code, "has no member" in empty.output) == (1, True)
    other = config_in(tmp_path / "other")
    async with running(other):
        used = await recover(other)
        assert (used.exit_code, "holds the lock" in used.output) == (1, True)
    foreign = await recover(other.model_copy(update={"cluster_id": "foreign"}))
    assert (foreign.exit_code, "belongs to cluster_id" in foreign.output) == (1, True)
