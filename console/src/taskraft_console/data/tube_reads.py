"""Questions about tubes: their counts, samples, consumers, sub-queues and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft import errors
from taskraft_console.data.failure_report import FailureReport, Stage, report_failures
from taskraft_console.data.questions import LIST_SECONDS, OPTIONS_SECONDS, TASK_SECONDS, Questions
from taskraft_console.data.shared_reads import Reading, SharedReads
from taskraft_console.data.subqueue_counts import SubqueueCounts, count_subqueues

if TYPE_CHECKING:
    from taskraft import AsyncClient, TaskCounts, TubeInfo, TubeStatistics
    from taskraft.v1.tube_service_pb2 import GetHistoryResponse, WaitingConsumer

TUBES_SECONDS: Final = 4.0
"""Minimum age of the counts of all tubes before they are read again."""
TUBES_SECONDS_MAX: Final = 120.0
TUBES_PATIENCE_SECONDS: Final = 0.05
"""Maximum wait of the overview for new counts of all tubes; 10 000 tubes take about 1 s."""
TUBES_SHARE: Final = 0.005
"""Maximum part of the time in which the nodes answer questions about all tubes: 0.5 %."""
TUBES_CHEAP: Final = 500
"""Maximum number of tubes whose options are read together with each answer about their counts."""
HISTORY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class CountedTube:
    """A tube with its options and its counts."""

    info: TubeInfo
    counts: TubeStatistics


@dataclass(frozen=True, slots=True)
class BriefInfo:
    """The options of a tube that lists of tubes show."""

    name: str
    kind: str
    is_temporary: bool
    put_paused: bool
    take_paused: bool
    quarantined_at: int
    """Log index at which the driver of the tube failed; 0: the driver did not fail."""

    @classmethod
    def of(cls, info: TubeInfo) -> BriefInfo:
        """Return the part of the options that lists show."""
        options = info.options
        return cls(
            info.name,
            info.kind,
            options.durability == "temporary",
            options.put_paused,
            options.take_paused,
            info.quarantined_at,
        )


@dataclass(frozen=True, slots=True)
class BriefCounts:
    """The counts of a tube that lists of tubes show."""

    tasks: TaskCounts
    oldest_ready_ms: int
    """Time since which the oldest READY task has been READY; 0: no task is READY."""
    waiting: int
    """Number of consumers that wait for a task."""


@dataclass(frozen=True, slots=True)
class ListedTube:
    """One of all tubes: small, because the console keeps up to 10 000 of them in memory."""

    info: BriefInfo
    counts: BriefCounts


@dataclass(frozen=True, slots=True)
class ListedTubes:
    """All tubes that the console may read."""

    tubes: tuple[ListedTube, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class OneTube:
    """A tube, and the time of the cluster at the count."""

    tube: CountedTube
    now_ms: int


class TubeReads(Questions):
    """Asks a cluster about tubes."""

    def __init__(self, client: AsyncClient, reads: SharedReads, timeout_seconds: float) -> None:
        super().__init__(client, reads, timeout_seconds)
        self._tubes_seconds = TUBES_SECONDS
        self._infos: Mapping[str, BriefInfo] = {}
        self._infos_at = float("-inf")

    def forget(self) -> None:
        """Forget all answers, so that the next page shows the effect of a change."""
        super().forget()
        self._infos_at = float("-inf")

    async def tubes(self) -> Reading[ListedTubes]:
        """Return all tubes with the options and counts that lists show."""
        return await self.reads.read("tubes", self._tubes_seconds, self._ask_tubes)

    async def tubes_soon(self) -> Reading[ListedTubes] | None:
        """Return all tubes without a long wait: older counts, or None before the first counts."""
        return await self.reads.read_soon(
            "tubes", self._tubes_seconds, self._ask_tubes, TUBES_PATIENCE_SECONDS
        )

    async def _ask_tubes(self) -> ListedTubes:
        """Read the counts of all tubes; read their options less often if there are many tubes."""
        clock = asyncio.get_running_loop().time
        began = clock()
        counts = await self.client.stats(
            brief=True, staleness=self._staleness(), timeout=self._timeout
        )
        names = {each.tube for each in counts.tubes}
        age = OPTIONS_SECONDS if len(names) > TUBES_CHEAP else 0.0
        if began - self._infos_at > age or not names <= self._infos.keys():
            infos = await self.client.list_tubes(staleness=self._staleness(), timeout=self._timeout)
            self._infos = {one.name: BriefInfo.of(one) for one in infos}
            self._infos_at = began if began > self._changed_at else float("-inf")
        wanted = (clock() - began) / TUBES_SHARE if len(names) > TUBES_CHEAP else 0.0
        self._tubes_seconds = min(max(wanted, TUBES_SECONDS), TUBES_SECONDS_MAX)
        return ListedTubes(
            # A tube can be created or dropped between the two calls.
            tuple(
                ListedTube(
                    self._infos[one.tube],
                    BriefCounts(one.tasks, one.oldest_ready_ms, one.waiting),
                )
                for one in counts.tubes
                if one.tube in self._infos
            ),
            counts.now_ms,
        )

    async def tube(self, name: str) -> Reading[OneTube]:
        """Return one tube with its counts.

        Raises:
            TubeNotFound: the tube does not exist.
        """

        async def ask() -> OneTube:
            infos, counts = await asyncio.gather(
                self.client.list_tubes([name], timeout=self._timeout),
                self.client.stats([name], timeout=self._timeout),
            )
            if not infos or not counts.tubes:
                raise errors.TubeNotFound.named(name)
            return OneTube(CountedTube(infos[0], counts.tubes[0]), counts.now_ms)

        return await self.reads.read(("tube", name), TASK_SECONDS, ask)

    async def history(
        self, tubes: Sequence[str], *, is_day: bool = False
    ) -> Reading[GetHistoryResponse]:
        """Return the samples of the named tubes; without a name, the sums over all tubes."""
        return await self.reads.read(
            ("history", tuple(tubes), is_day),
            HISTORY_SECONDS,
            lambda: self.client.history(
                tubes,
                total=not tubes,
                step="120s" if is_day else "10s",
                timeout=self._timeout,
            ),
        )

    async def consumers(self, tube: str) -> Reading[Sequence[WaitingConsumer]]:
        """Return the consumers that wait for tasks of a tube, in the order of service."""
        return await self.reads.read(
            ("consumers", tube),
            LIST_SECONDS,
            lambda: self.client.consumers(tube, timeout=self._timeout),
        )

    async def subqueues(self, tube: str) -> Reading[SubqueueCounts]:
        """Return the sub-queues of a tube.

        Raises:
            TubeNotFound: the tube does not exist.
        """
        return await self._read_seldom(
            ("subqueues", tube), lambda: count_subqueues(self.client, tube, self._timeout)
        )

    async def failures(self, stage: Stage, tube: str = "") -> Reading[FailureReport]:
        """Return the causes of the failed tasks of a stage, in all tubes or in one tube."""
        tubes = await self.tubes()
        failing = [
            each.info.name
            for each in tubes.value.tubes
            if _may_have(each.counts.tasks, stage) and tube in ("", each.info.name)
        ]
        return await self._read_seldom(
            ("failures", stage, tube),
            lambda: report_failures(self.client, failing, stage, self._timeout),
        )


def _may_have(counts: TaskCounts, stage: Stage) -> bool:
    """Return whether a tube with these counts can have failed tasks of a stage."""
    return bool(counts.buried if stage == "buried" else counts.ready or counts.delayed)
