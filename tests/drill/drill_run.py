"""Run one drill: nodes, clients and faults; then heal, settle, list and judge."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.drill.caller import Caller, Channels, plain_channel
from tests.drill.calm_phases import CALM_AFTER_SECONDS, CalmPhases, Strain, strain_of
from tests.drill.clerk import Clerk
from tests.drill.consumers import Consumer, StreamConsumer
from tests.drill.drill_access import DrillAccess
from tests.drill.faults import Fault, Scene
from tests.drill.history import HistoryRecorder, read_history
from tests.drill.hostile import Findings, Hostile
from tests.drill.judge import Verdict, judge
from tests.drill.session import FRESH_SECONDS
from tests.drill.workload import (
    TUBES,
    Floor,
    Producer,
    Visitor,
    Worker,
    create_tubes,
)
from tools.local_cluster import LocalCluster
from tools.local_node import Node
from tools.packet_links import PacketLinks
from tools.peer_links import PeerLinks

SETTINGS = {"TASKRAFT_FAILOVER_GRACE_MS": "6000"}
BEFORE_SECONDS = 4.0
"""How long the other clients work before the hostile callers begin."""
CALM_SECONDS = 1.0
"""How long the clients work after the last fault has been healed."""
SETTLE_SECONDS = 60
"""Maximum time until all clients have finished."""
PRODUCERS, CONSUMERS = 3, 4


@dataclass(frozen=True)
class Drill:
    """One entry of the drill table."""

    name: str
    faults: Callable[[Scene], Sequence[Fault]]
    """Prepares the nodes and creates the faults, which the nemesis injects in turns."""
    size: int = 3
    seconds: float = 20.0
    links: Callable[[LocalCluster], PeerLinks | PacketLinks] | None = None
    """Creates links between the nodes that can fail; None: the nodes reach each other directly."""
    settings: dict[str, str] = field(default_factory=dict)
    rest_seconds: tuple[float, float] = (0.2, 0.6)
    """Time between two faults, after the cluster is ready again."""
    waits_ready: bool = True
    """Whether the next fault waits until the cluster has recovered from the last one."""
    unavailable_seconds_max: float = 3.0
    """Longest time without an acknowledged put while a majority is in order."""
    pace_seconds: float = 0.01
    """Pause of a client between two calls."""
    slack_seconds: float = 0.01
    """Maximum time by which the cluster may end a lease or a delay early."""
    hostile: tuple[type[Hostile], ...] = ()
    """Hostile callers; with any, the nodes have TLS and access control."""
    watches_calm: bool = False
    """Whether ``Strain`` judges the elections and the puts without a fault."""


@dataclass(frozen=True)
class Result:
    """Findings of one drill."""

    name: str
    faults: int
    unavailable_seconds: float
    verdict: Verdict
    unavailable_seconds_max: float
    repair_seconds: tuple[float, ...] = ()
    """Times from the detection of damage until the node served again."""
    breaches: tuple[str, ...] = ()
    """What hostile callers achieved; see ``breaches_of``."""
    tried: tuple[tuple[str, int], ...] = ()
    """Calls that nodes answered as they should, by hostile caller."""
    methods: int = 0
    """Methods of the contract whose most expensive request was answered."""
    strain: Strain | None = None
    """Elections and puts without a fault; None: not watched."""

    @property
    def is_available(self) -> bool:
        """Return whether puts were acknowledged without too long a break."""
        return self.unavailable_seconds <= self.unavailable_seconds_max

    @property
    def is_right(self) -> bool:
        """Return whether no promise was broken, and the cluster was available."""
        return self.is_available and not self.verdict.violations and not self.breaches


class DrillRun:
    """One run of a drill.

    Args:
        folder: for data and logs of the nodes; must not exist.
        history: the file to write.
    """

    def __init__(self, drill: Drill, folder: Path, history: Path, seed: int) -> None:
        self._drill = drill
        self._folder = folder
        self._recorder = HistoryRecorder(history)
        self._seed = seed
        access = DrillAccess(folder / "access", tuple(TUBES)) if drill.hostile else None
        own = {} if access is None else access.settings
        settings = {**SETTINGS, **drill.settings, **own}
        self._access = access
        self._findings = Findings()
        self._hostile: list[Hostile] = []
        self._cluster = LocalCluster(drill.size, folder / "c", settings, access)
        links = drill.links(self._cluster) if drill.links is not None else None
        self._links = links
        self._scene = Scene(self._cluster, random.Random(seed), folder, links, access)
        self._kinds = list(drill.faults(self._scene))
        self._faults = 0
        self._calm = CalmPhases(self._cluster)
        self._excused: list[tuple[float, float]] = []
        """Times in which no majority could answer, in ns."""

    def run(self) -> Result:
        """Run the drill.

        Raises:
            NodeFailed: the cluster did not start, or did not recover.
        """
        with ExitStack() as stack:
            if self._links is not None:
                stack.enter_context(self._links)
            stack.enter_context(self._scene.stack)
            stack.enter_context(self._cluster)
            asyncio.run(self._drive())
        self._recorder.close()
        return self._result()

    def _result(self) -> Result:
        """Judge the history, and put the findings together."""
        history = read_history(self._recorder.path)
        tried = {one.name: one.tried() for one in self._hostile}
        strain = None
        if self._drill.watches_calm:
            strain = strain_of([*history.of("put")], self._calm.phases)
        return Result(
            self._drill.name,
            self._faults,
            longest_silence_ns(self._acknowledged, self._excused) / 1e9,
            judge(history),
            self._drill.unavailable_seconds_max,
            tuple(self._scene.repair_seconds),
            tuple(breaches_of(self._findings, tried, strain)),
            tuple(tried.items()),
            len(self._findings.answered),
            strain,
        )

    async def _drive(self) -> None:
        access = self._access
        connect = plain_channel if access is None else partial(access.channel, "worker")
        channels = Channels(self._cluster, connect)
        floor = self._floor = Floor(
            channels, self._recorder, self._seed, pace_seconds=self._drill.pace_seconds
        )
        settings = {**configuration(), "slack": self._drill.slack_seconds}
        self._recorder.remark("harness", "config", **settings)
        caller = Caller(channels, random.Random(self._seed))
        await create_tubes(caller)
        producers = [Producer(floor, f"p{place}") for place in range(PRODUCERS)]
        consumers: list[Consumer] = [
            Consumer(floor, f"c{place}", ("work", "lanes")) for place in range(CONSUMERS)
        ]
        consumers.append(StreamConsumer(floor, "s0", "streamed"))
        workers: list[Worker] = [*producers, *consumers, Visitor(floor, "v0")]
        self._hostile = [make(self._scene, floor, self._findings) for make in self._drill.hostile]
        for one in self._hostile:
            await one.prepare()
        clients = [asyncio.ensure_future(one.run()) for one in workers]
        try:
            if self._drill.watches_calm:
                await self._rest(BEFORE_SECONDS)
            clients += [asyncio.ensure_future(one.run()) for one in self._hostile]
            await self._harm()
            await asyncio.to_thread(self._cluster.wait_ready)
            await self._rest(CALM_SECONDS)
        finally:
            floor.over.set()
            await asyncio.wait_for(asyncio.gather(*clients), SETTLE_SECONDS)
        self._acknowledged = floor.acknowledged_ns
        for consumer in consumers:
            await consumer.session.close()
        await self._list_and_drain()
        await channels.close()

    async def _harm(self) -> None:
        """Inject one fault after the other until the time is over; every fault is healed."""
        draw, faults = self._scene.draw, self._kinds
        until = time.monotonic() + self._drill.seconds
        turn = 0
        while time.monotonic() < until:
            await self._rest(draw.uniform(*self._drill.rest_seconds))
            fault = faults[turn % len(faults)]
            turn += 1
            name = type(fault).__name__.lower()
            began = time.monotonic_ns()
            hit = await asyncio.to_thread(fault.begin, self._scene)
            self._recorder.remark("nemesis", name, hit=hit)
            self._faults += len(hit)
            left = list(self._cluster.running())
            await self._floor.pause(draw.uniform(*fault.hold_seconds))
            self._look_for_ended_nodes(left)
            await asyncio.to_thread(fault.end, self._scene)
            self._recorder.remark("nemesis", "heal", of=name)
            if self._drill.waits_ready:
                await asyncio.to_thread(self._cluster.wait_ready)
                self._look_for_ended_nodes(self._cluster.nodes)
            if fault.stops_all:
                self._excused.append((began, time.monotonic_ns()))

    async def _rest(self, seconds: float) -> None:
        """Let the clients work without a fault."""
        if not self._drill.watches_calm:
            await self._floor.pause(seconds)
            return
        await self._floor.pause(CALM_AFTER_SECONDS)
        await asyncio.to_thread(self._calm.begin)
        await self._floor.pause(seconds)
        await asyncio.to_thread(self._calm.end)
        self._look_for_ended_nodes(self._cluster.nodes)

    def _look_for_ended_nodes(self, nodes: Iterable[Node]) -> None:
        """Note the nodes that no fault has stopped; only for drills with hostile callers.

        The faults of these drills stop nodes only in ``begin``.
        """
        if self._access is not None:
            stopped = [node.name for node in nodes if not node.is_running]
            self._findings.breaches += [f"{name} has ended" for name in stopped]

    async def _list_and_drain(self) -> None:
        """Record a complete listing of each tube, take all tasks, and list again."""
        clerk = Clerk(Floor(self._floor.channels, self._recorder, self._seed + 1), "end")
        for tube in TUBES:
            await clerk.list_tasks(tube)
        await clerk.drain()
        for tube in TUBES:
            await clerk.list_tasks(tube)
        await clerk.compare([node for node in self._cluster.nodes if node.is_running])


def breaches_of(
    findings: Findings, tried: Mapping[str, int], strain: Strain | None
) -> Iterator[str]:
    """Yield what hostile callers achieved, and who of them tried nothing."""
    yield from findings.breaches
    for caller, count in tried.items():
        if not count:
            yield f"no node answered the {caller}"
    if strain is not None:
        yield from strain.breaches()


def configuration() -> dict[str, object]:
    """Return the configuration line of a history."""
    return {
        "session_ttr": FRESH_SECONDS,
        "disconnect_ttr": FRESH_SECONDS,
        "tubes": TUBES,
        "ttl_max_late": None,
        "dedup_window": 600,
        "rev_unique": False,
        "release_position": "original",
        "release_on_promotion": "none",
    }


def longest_silence_ns(
    acknowledged_ns: Sequence[int], excused: Sequence[tuple[float, float]]
) -> float:
    """Return the longest time between two acknowledged puts, without the excused times."""
    longest = 0.0
    for before, after in itertools.pairwise(acknowledged_ns):
        known = sum(_shared(before, after, one) for one in excused)
        longest = max(longest, after - before - known)
    return longest


def _shared(begun: float, ended: float, excused: tuple[float, float]) -> float:
    return max(0.0, min(ended, excused[1]) - max(begun, excused[0]))
