"""The leader plans, withdraws and proposes raises of the cluster version."""

import asyncio
from types import SimpleNamespace

import pytest

from taskraft_service.cluster.member_versions import MemberVersions
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.leader import version_keeper as module
from taskraft_service.leader.command_submitter import NotProposed, OutcomeUnknown
from taskraft_service.leader.version_keeper import UpgradeBlocked, VersionKeeper
from taskraft_service.queue.state.cluster_version import HOLD_MS
from taskraft_service.versions import VersionRange

OLD, NEW = VersionRange(1, 1), VersionRange(1, 2)
MEMBERS = [PeerAddress(number, f"n{number}", "h:1", "h:2") for number in (1, 2)]


class Bench:
    """The keeper of the first of two members; proposed versions come into force at once."""

    def __init__(self, other=NEW):
        self.now_ms, self.error, self.proposed = 1_000, None, []
        self.tube_count = 1
        self.cluster = SimpleNamespace(version=1, planned=0, planned_at_ms=0)
        self.settings = SimpleNamespace(upgrade_hold_ms=None, cluster_version_max=None)
        self.versions = MemberVersions(1, lambda: 0, NEW)
        self.other_speaks(other)
        self.keeper = VersionKeeper(
            self.versions,
            SimpleNamespace(all=lambda: MEMBERS),
            lambda: self.settings,
            lambda: self,
            self,
            lambda: self.now_ms,
        )

    def other_speaks(self, spoken):
        if spoken is not None:
            self.versions.received(2, MemberVersions(2, lambda: 0, spoken).make())

    async def submit(self, encoded):
        if self.error is not None:
            raise self.error
        message, was = encoded.command, self.cluster
        self.proposed.append((message.version, message.planned))
        await asyncio.sleep(0)
        planned_at_ms = was.planned_at_ms if message.planned == was.planned else self.now_ms
        self.cluster = SimpleNamespace(
            version=message.version, planned=message.planned, planned_at_ms=planned_at_ms
        )


def test_the_raise_is_planned_once_and_made_after_the_hold():
    async def story():
        bench = Bench()
        await bench.keeper.check()
        await bench.keeper.check()
        assert bench.proposed == [(1, 2)]
        bench.now_ms += HOLD_MS - 1
        await bench.keeper.check()
        assert bench.cluster.version == 1
        bench.now_ms += 1
        await bench.keeper.check()
        await bench.keeper.check()
        assert bench.proposed == [(1, 2), (2, 0)]

    asyncio.run(story())


def test_a_member_that_returns_withdraws_the_plan_and_the_next_hold_is_whole():
    async def story():
        bench = Bench()
        await bench.keeper.check()
        bench.other_speaks(OLD)
        bench.now_ms += HOLD_MS
        await bench.keeper.check()
        assert bench.proposed == [(1, 2), (1, 0)]
        bench.other_speaks(NEW)
        await bench.keeper.check()
        await bench.keeper.check()
        assert bench.proposed[2:] == [(1, 2)]
        assert bench.cluster.version == 1

    asyncio.run(story())


def test_the_settings_change_the_hold_and_pin_the_version():
    async def story():
        bench = Bench()
        bench.settings.upgrade_hold_ms = 10
        await bench.keeper.check()
        bench.now_ms += 10
        bench.settings.cluster_version_max = 1
        await bench.keeper.check()
        assert bench.proposed == [(1, 2), (1, 0)]
        with pytest.raises(UpgradeBlocked, match="cluster_version_max is 1"):
            await bench.keeper.upgrade()
        bench.settings.cluster_version_max = 0
        await bench.keeper.check()
        bench.now_ms += 10
        await bench.keeper.check()
        assert bench.cluster.version == 2

    asyncio.run(story())


def test_an_operator_ends_the_hold():
    async def story():
        bench = Bench()
        assert await bench.keeper.upgrade() == 2
        assert await bench.keeper.upgrade() == 2, "there is no higher version"
        assert bench.proposed == [(2, 0)]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("other", "blocker"),
    [(None, "n2 does not answer"), (OLD, "n2 speaks cluster version 1")],
)
def test_a_member_blocks_the_command_and_nothing_is_proposed(other, blocker):
    async def story():
        bench = Bench(other)
        with pytest.raises(UpgradeBlocked, match=blocker) as blocked:
            await bench.keeper.upgrade()
        assert blocked.value.version == 1
        assert bench.proposed == []

    asyncio.run(story())


def test_a_cluster_without_tubes_is_raised_at_once():
    async def story():
        bench = Bench()
        bench.tube_count = 0
        await bench.keeper.check()
        assert bench.cluster.version == 2

    asyncio.run(story())


@pytest.mark.parametrize("error", [NotProposed("no leader"), OutcomeUnknown("stopped")])
def test_a_lost_leadership_postpones_the_check_and_fails_the_command(error):
    async def story():
        bench = Bench()
        bench.error = error
        await bench.keeper.check()
        with pytest.raises(type(error)):
            await bench.keeper.upgrade()
        bench.error = None
        await bench.keeper.check()
        assert bench.proposed == [(1, 2)]

    asyncio.run(story())


def test_a_command_beside_a_check_proposes_each_change_once():
    async def story():
        bench = Bench()
        bench.settings.upgrade_hold_ms = 0
        bench.cluster.planned, bench.cluster.planned_at_ms = 2, 0
        await asyncio.gather(bench.keeper.check(), bench.keeper.upgrade(), bench.keeper.check())
        assert bench.proposed == [(2, 0)]

    asyncio.run(story())


def test_only_a_leader_that_serves_checks_periodically(monkeypatch):
    monkeypatch.setattr(module, "CHECK_MS", 0)

    async def story():
        bench = Bench()
        leadership = SimpleNamespace(serves=False)
        task = asyncio.ensure_future(bench.keeper.run_periodically(leadership))
        for _ in range(10):
            await asyncio.sleep(0)
        assert bench.proposed == []
        leadership.serves = True
        while not bench.proposed:
            assert not task.done()
            await asyncio.sleep(0)
        assert bench.proposed == [(1, 2)]
        task.cancel()

    asyncio.run(story())


def test_a_raise_waits_for_a_change_of_the_members_and_sees_it():
    async def story():
        bench = Bench()
        async with bench.keeper.changing:
            check = asyncio.create_task(bench.keeper.check())
            await asyncio.sleep(0)
            bench.other_speaks(OLD)
        await check
        assert bench.proposed == []

    asyncio.run(story())
