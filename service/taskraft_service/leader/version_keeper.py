"""Raise the cluster version on the leader, once all members speak a higher one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from taskraft_service.cluster.cluster_members import ClusterMembers
from taskraft_service.cluster.effective_settings import EffectiveSettings
from taskraft_service.cluster.member_versions import MemberVersions
from taskraft_service.command_codecs.sessions import SET_CLUSTER_VERSION
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.leader.command_submitter import (
    CommandSubmitter,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.cluster_version import (
    HOLD_MS,
    ClusterVersionState,
    RaiseDecision,
    RaiseRules,
    decide_raise,
)
from taskraft_service.stubs.log.v1 import log_pb2

log: Final = structlog.get_logger(__name__)

CHECK_MS: Final = 1_000
"""Interval between two checks."""


class UpgradeBlocked(Exception):
    """The cluster version cannot be raised now; ``version`` is in force."""

    def __init__(self, version: int, blockers: tuple[str, ...]) -> None:
        super().__init__(f"the cluster version stays {version}: {'; '.join(blockers)}")
        self.version = version


class VersionKeeper:
    """Decides on the leader when the cluster version is raised, and proposes the raise.

    Args:
        versions: the versions that the members speak.
        members: the members.
        settings: the settings in force.
        queue: returns the replicated queue.
        submitter: proposes commands.
        cluster_ms: reads the cluster time.
    """

    def __init__(
        self,
        versions: MemberVersions,
        members: ClusterMembers,
        settings: EffectiveSettings,
        queue: Callable[[], Queue],
        submitter: CommandSubmitter,
        cluster_ms: Callable[[], int],
    ) -> None:
        self.versions: Final = versions
        self._members = members
        self._settings = settings
        self._queue = queue
        self._submitter = submitter
        self._cluster_ms = cluster_ms
        self.changing: Final = asyncio.Lock()
        """Held during each raise and each change of the members, so that no member that does not
        speak the new version is added meanwhile.
        """

    @property
    def state(self) -> ClusterVersionState:
        """The cluster version in force, and the planned one."""
        return self._queue().cluster

    def decide(self, *, is_finalized: bool = False) -> RaiseDecision:
        """Return whether to raise or to plan a cluster version now; see ``decide_raise``."""
        settings, queue = self._settings(), self._queue()
        rules = RaiseRules(
            HOLD_MS if settings.upgrade_hold_ms is None else settings.upgrade_hold_ms,
            settings.cluster_version_max or 0,
            is_finalized=is_finalized,
            is_empty=not queue.tube_count,
        )
        spoken = self.versions.of_all(self._members.all())
        return decide_raise(queue.cluster, spoken, rules, self._cluster_ms())

    async def run_periodically(self, leadership: LeadershipTracker) -> None:
        """Plan and raise the version while this node leads, until the task is cancelled."""
        while True:
            await asyncio.sleep(CHECK_MS / 1_000)
            if leadership.serves:
                await self.check()

    async def check(self) -> None:
        """Plan, withdraw or make the next raise if one is due."""
        try:
            await self._carry_out(is_finalized=False)
        except (NotProposed, LeaderOverloaded, OutcomeUnknown) as error:
            log.info("raise of the cluster version postponed", reason=str(error))

    async def upgrade(self) -> int:
        """Raise the version now; return the version in force.

        Raises:
            UpgradeBlocked: a member or a setting keeps the version from being raised.
            NotProposed, LeaderOverloaded, OutcomeUnknown: the leadership was lost, or the leader
                has too much work.
        """
        before = int(self.state.version)
        decision = await self._carry_out(is_finalized=True)
        if decision.version == before and decision.blockers:
            raise UpgradeBlocked(before, decision.blockers)
        return self.state.version

    async def _carry_out(self, *, is_finalized: bool) -> RaiseDecision:
        """Propose the command that makes the state equal to the decision, if they differ."""
        async with self.changing:
            decision, state = self.decide(is_finalized=is_finalized), self.state
            wanted = (decision.version, decision.planned)
            if wanted != (state.version, state.planned):
                log.info(
                    "the leader sets the cluster version",
                    version=decision.version,
                    planned=decision.planned,
                    blockers=decision.blockers,
                )
                message = log_pb2.SetClusterVersion(
                    version=decision.version, planned=decision.planned
                )
                encoded = encode_leader_command(SET_CLUSTER_VERSION, message)
                await self._submitter.submit(encoded)
            return decision
