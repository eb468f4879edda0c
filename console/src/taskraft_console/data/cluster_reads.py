"""All questions that pages ask a cluster, each with the maximum age of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from taskraft import TaskraftError, errors
from taskraft_console.data.group_tasks import GroupTasks, find_group_tasks
from taskraft_console.data.questions import LIST_SECONDS, OPTIONS_SECONDS, TASK_SECONDS
from taskraft_console.data.session_reads import SessionReads
from taskraft_console.data.shared_reads import Reading
from taskraft_console.data.task_reads import TaskReads
from taskraft_console.data.tube_reads import TubeReads

if TYPE_CHECKING:
    from datetime import datetime

    from taskraft import Group, Schedule, Statistics
    from taskraft.v1.bulk_sweep_pb2 import BulkSweep
    from taskraft.v1.cluster_service_pb2 import (
        AuditRecord,
        GetCallerResponse,
        GetClusterStateResponse,
        GetServerInfoResponse,
    )

TOTAL_SECONDS: Final = 1.0
STATE_SECONDS: Final = 1.0
SCHEDULE_TIMES: Final = 10
"""Number of next times of a schedule that a page shows."""


class ClusterReads(TubeReads, TaskReads, SessionReads):
    """Asks a cluster about its members, rights, groups, schedules and sweeps, and all the rest."""

    async def total(self) -> Reading[Statistics]:
        """Return the sums over all tubes."""
        return await self.reads.read(
            "total",
            TOTAL_SECONDS,
            lambda: self.client.total(staleness=self._staleness(), timeout=self._timeout),
        )

    async def state(self) -> Reading[GetClusterStateResponse]:
        """Return the members and the leader."""
        return await self.reads.read(
            "state", STATE_SECONDS, lambda: self.client.cluster_state(timeout=self._timeout)
        )

    async def nodes(self) -> Reading[Mapping[str, GetClusterStateResponse]]:
        """Return the state of each node that answers, by its name."""
        return await self.reads.read(
            "nodes", LIST_SECONDS, lambda: self.client.node_states(timeout=self._timeout)
        )

    async def caller(self) -> Reading[GetCallerResponse]:
        """Return the principal of the client, and its grants."""
        return await self.reads.read(
            "caller", LIST_SECONDS, lambda: self.client.caller(timeout=self._timeout)
        )

    async def server(self) -> Reading[GetServerInfoResponse]:
        """Return version and limits of the node that answers."""
        return await self.reads.read(
            "server", OPTIONS_SECONDS, lambda: self.client.server_info(timeout=self._timeout)
        )

    async def is_answering(self) -> bool:
        """Return whether a node answered in the last `LIST_SECONDS`, or answers now."""

        async def ask() -> bool:
            with suppress(errors.NoCredentials):  # a refusal is an answer too
                await self.client.server_info(timeout=self._timeout)
            return True

        try:
            return not (await self.reads.read("is answering", LIST_SECONDS, ask)).problem
        except TaskraftError:
            return False

    async def audit(
        self, *, principal: str, call: str, name: str, limit: int
    ) -> Reading[Sequence[AuditRecord]]:
        """Return the last acts of management, newest first."""
        return await self.reads.read(
            ("audit", principal, call, name, limit),
            LIST_SECONDS,
            lambda: self.client.audit(
                principal=principal, call=call, name=name, limit=limit, timeout=self._timeout
            ),
        )

    async def sweeps(self) -> Reading[Sequence[BulkSweep]]:
        """Return the bulk sweeps, newest first."""
        return await self.reads.read(
            "sweeps", TASK_SECONDS, lambda: self.client.bulk_sweeps(timeout=self._timeout)
        )

    async def sweep(self, number: int) -> Reading[BulkSweep]:
        """Return a bulk sweep.

        Raises:
            BulkSweepNotFound: there is no such sweep.
        """
        return await self.reads.read(
            ("sweep", number),
            TASK_SECONDS,
            lambda: self.client.bulk_sweep(number, timeout=self._timeout),
        )

    async def groups(self) -> Reading[Sequence[Group]]:
        """Return all groups."""
        return await self.reads.read(
            "groups", LIST_SECONDS, lambda: self.client.groups.list(timeout=self._timeout)
        )

    async def group_tasks(self, name: str, first_tube: str) -> Reading[GroupTasks]:
        """Return the tasks of a group; the search begins with `first_tube` (empty: any tube)."""
        tubes = await self.tubes()
        names = [each.info.name for each in tubes.value.tubes if each.counts.tasks.total]
        names.sort(key=lambda tube: tube != first_tube)
        return await self._read_seldom(
            ("group tasks", name),
            lambda: find_group_tasks(self.client, name, names, self._timeout),
        )

    async def schedule(self, name: str) -> Reading[tuple[Schedule, Sequence[datetime]]]:
        """Return a schedule with its next times.

        Raises:
            ScheduleNotFound: there is no such schedule.
        """

        async def ask() -> tuple[Schedule, Sequence[datetime]]:
            schedules = self.client.schedules
            return await asyncio.gather(
                schedules.get(name, timeout=self._timeout),
                schedules.times(name, SCHEDULE_TIMES, timeout=self._timeout),
            )

        return await self.reads.read(("schedule", name), TASK_SECONDS, ask)

    async def schedules(self) -> Reading[Sequence[Schedule]]:
        """Return all schedules."""
        return await self.reads.read(
            "schedules", LIST_SECONDS, lambda: self.client.schedules.list(timeout=self._timeout)
        )
