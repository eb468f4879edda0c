"""A founder that is killed during the bootstrap recovers, also if another founder is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from taskraft_replication.core.types import MemberId
from taskraft_replication.errors import StorageFailed
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.storage.filesystem import DiskFileSystem
from tests.failpoints.failing_filesystem import FailingFileSystem
from tests.failpoints.failpoints import Failpoints, parse_rules
from tests.replication.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

ONE, TWO, THREE = map(MemberId, (1, 2, 3))
DISK = "membership.before_create=eio@4"
"""Rule of a failpoint: the disk fails when a founder stores that it has met all other founders."""


class Beginning(LocalCluster):
    """Three founders; member 2 fails after it has connected to the other two."""

    is_harmed = True

    def config(self, member: MemberId) -> NodeConfig:
        config = super().config(member)
        if not (self.is_harmed and member == TWO):
            return config
        failpoints = Failpoints(parse_rules(DISK))
        return replace(
            config,
            open_files=lambda place: FailingFileSystem(DiskFileSystem(place), failpoints),
        )


async def test_a_founder_that_met_all_founders_does_not_wait_for_a_lost_one_after_a_restart(
    tmp_path,
):
    async with Beginning(tmp_path, 3) as cluster:
        async with asyncio.timeout(20):
            assert isinstance(await cluster.nodes[TWO].failed, StorageFailed)
        await cluster.kill(TWO)
        leader = await cluster.leader()
        await leader.propose(b"promised")
        await cluster.kill(THREE)
        cluster.is_harmed = False
        back = await cluster.start(TWO)
        leader = await cluster.leader()
        await leader.propose(b"goes on")
        await cluster.until(lambda: back.status().applied >= leader.status().commit)
        assert back.roster == leader.roster
