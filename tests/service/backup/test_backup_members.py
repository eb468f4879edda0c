"""Each member, a founder or one that has joined, sends a backup and is restored from it."""

import json
import os

import pytest

from taskraft import AsyncClient
from taskraft.v1 import cluster_service_pb2 as cluster_pb
from taskraft_service.cluster.member_identity import DirectoryForeign, resolve_member_identity
from tests.service.api.test_three_nodes import cluster_in
from tests.service.backup.test_backup import interrupted, saved, snapshot
from tests.service.backup.test_recovery import variables_of
from tests.service.conftest import config_in, create, put, running, take
from tools.free_addresses import free_addresses

pytestmark = pytest.mark.real_time


async def joined(three, place):
    """Let a fourth node join the cluster as a voter."""
    client, peer = free_addresses(2)
    targets = ",".join(config.listen for config in three.configs.values())
    three.configs["n3"] = config_in(
        place,
        node_name="n3",
        join=targets,
        listen=client,
        peer_listen=peer,
        auto_create_tubes=True,
    )
    await three.start("n3")
    async with AsyncClient(targets) as admin:
        assert (await admin.promote_member("n3")).joined


async def test_each_member_sends_a_backup_and_is_restored_with_its_own_settings(tmp_path):
    files = {}
    async with cluster_in(tmp_path / "old") as three:
        await create(three.leader)
        await joined(three, tmp_path / "old" / "n3")
        ids = []
        for node in three.nodes:
            ids += (await put(three.leader, b"acknowledged before")).task_ids
            name = node.server.config.node_name
            files[name] = list(ids), await saved(node, tmp_path / f"{name}.snapshot")
    for name, (expected, file) in files.items():
        old = three.configs[name]
        config = old.model_copy(update={"cluster_id": "restored", "data_dir": tmp_path / name})
        result = await snapshot("restore", file, **variables_of(config))
        assert result.exit_code == 0, result.output
        async with running(config) as node:
            state = await node.cluster.GetClusterState(cluster_pb.GetClusterStateRequest())
            assert [(member.id, member.name) for member in state.members] == [(1, name)]
            assert [task.id for task in (await take(node, tasks_max=100)).tasks] == expected
        with pytest.raises(DirectoryForeign, match="belongs to cluster_id 'taskraft'"):
            await resolve_member_identity(config.model_copy(update={"data_dir": old.data_dir}))


async def test_the_part_of_a_file_from_another_member_is_replaced(tmp_path):
    async with cluster_in(tmp_path / "old") as three:
        await create(three.leader)
        await put(three.leader, *(os.urandom(100_000) for _ in range(20)))
        file = tmp_path / "f.snapshot"
        earlier = await interrupted(three.followers[0], file)
        await put(three.leader, b"after the snapshot")
        await saved(three.leader, file)
        shown = json.loads((await snapshot("inspect", file, "-o", "json")).output)
        assert (shown["snapshot_id"] != earlier, shown["tasks"]) == (True, 21)
        assert not file.with_name("f.snapshot.part").exists()
