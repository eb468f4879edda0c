"""Report whether a node is ready, to the gRPC health service and to Kubernetes probes."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import ProcessCollector

from taskraft_replication.background import Background
from taskraft_service.access.audit import log_unauthenticated
from taskraft_service.access.principals import digest_of
from taskraft_service.access.security import CertificateCollector
from taskraft_service.api.cluster.service import server_version
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.process.components import NodeComponents
from taskraft_service.process.metrics.clock import ClockCollector
from taskraft_service.process.metrics.loop import LoopCollector
from taskraft_service.process.metrics.node import NodeCollector
from taskraft_service.process.metrics.page import (
    OPEN_METRICS_FORM,
    TEXT_FORM,
    MetricsPage,
)
from taskraft_service.process.metrics.raft import RaftCollector
from taskraft_service.process.metrics.scrub import ScrubCollector
from taskraft_service.process.metrics.tubes import TaskTimesCollector, TubeCollector
from taskraft_service.process.probes import (
    Answer,
    HttpRequest,
    Page,
    plain_answer,
    probe_answer,
)

LAG_ENTRIES_MAX: Final = 10_000
"""Maximum number of committed but unapplied entries of a ready node."""
SILENCE_MS_MAX: Final = 60_000
"""Maximum time for which a ready node may know no leader; far longer than an election."""


class Readiness:
    """Health of a node for probes; publishes the health after each change of the node phase.

    Args:
        components: the components of the node.
    """

    def __init__(self, components: NodeComponents) -> None:
        self._components = components
        self._background = Background()
        self._replay_until = components.node.status().commit
        """Index of the last entry that was known to be committed when this process started."""
        self.repairs: Callable[[], str] = str
        """Returns the part under repair; empty: no repair. A node under repair is not ready."""
        components.phases.listen(lambda _phase: self.report_health())

    @property
    def is_ready(self) -> bool:
        """Return whether the node can serve calls: its disk answers and its log is applied."""
        components = self._components
        if components.endpoint.load.is_draining or components.phases.phase is NodePhase.INIT:
            return False
        if components.node.is_disk_stalled or self.repairs():
            return False
        status = components.node.status()
        is_near = status.commit - status.applied <= LAG_ENTRIES_MAX
        return is_near and components.leadership.silence_ms() <= SILENCE_MS_MAX

    def report_health(self) -> None:
        """Publish the phase and the readiness in the gRPC health service."""
        components = self._components
        if not components.endpoint.load.is_draining:
            saying = components.health.phase_changed(components.phases.phase, ready=self.is_ready)
            self._background.start(saying)

    async def startupz(self, _request: HttpRequest) -> Answer:
        """Return whether the node has replayed the entries that were committed when it started.

        The answer does not depend on other nodes, because a restart does not help against a missing
        majority.
        """
        applied = self._components.node.status().applied
        text = f"{self._components.phases.phase.name}, applied {applied} of {self._replay_until}"
        return probe_answer(text, ok=applied >= self._replay_until)

    async def readyz(self, _request: HttpRequest) -> Answer:
        """Return whether the node is ready."""
        text = self._with_disk(self._components.phases.phase.name)
        for damage in self._components.scrubber.progress.damage:
            text += f"; {damage}"
        if self.repairs():
            text += f"; {self.repairs()}"
        problem = self._components.clock_keeper.problem
        return probe_answer(f"{text}; {problem}" if problem else text, ok=self.is_ready)

    async def livez(self, _request: HttpRequest) -> Answer:
        """Return success while the event loop runs and the node has not failed."""
        failed = self._components.node.failed
        text = f"broken: {failed.result()}" if failed.done() else self._with_disk("alive")
        return probe_answer(text, ok=not failed.done())

    def _with_disk(self, text: str) -> str:
        node = self._components.node
        if not node.is_disk_stalled:
            return text
        return f"{text}; the disk has not answered for {node.disk_waited_ms} ms"


class MetricsHandler:
    """The handler of /metrics.

    Args:
        page: the metrics in the Prometheus text format.
        open_metrics: the same metrics in the format OpenMetrics, with exemplars.
        token_digest: digest of the token that scrapers must send; empty: none is needed.
    """

    def __init__(self, page: MetricsPage, open_metrics: MetricsPage, token_digest: str) -> None:
        self._page = page
        self._open_metrics = open_metrics
        self._token_digest = token_digest

    async def metrics(self, request: HttpRequest) -> Answer:
        """Return all metrics, in the format that the scraper accepts."""
        if self._token_digest:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            is_known = hmac.compare_digest(digest_of(token.strip()), self._token_digest)
            if scheme.lower() != "bearer" or not is_known:
                log_unauthenticated(request.peer, request.path, "no valid token of metrics_token")
                return plain_answer(401, "the metrics need the bearer token of metrics_token")
        accepts = request.headers.get("accept", "")
        page = self._open_metrics if "application/openmetrics-text" in accepts else self._page
        return 200, page.form.content_type, await page.read()


def repairing_pages(doing: str) -> Mapping[str, Page]:
    """Return the pages of a node that repairs itself; ``doing`` says how.

    The node has started: a restart would begin the repair again.
    """

    async def alive(_request: HttpRequest) -> Answer:
        return probe_answer(f"alive; {doing}", ok=True)

    async def unready(_request: HttpRequest) -> Answer:
        return probe_answer(f"INIT; {doing}", ok=False)

    return {"/livez": alive, "/startupz": alive, "/readyz": unready, "/metrics": unready}


async def _opening_alive(_request: HttpRequest) -> Answer:
    return probe_answer("alive; opens its data directory", ok=True)


async def _opening(_request: HttpRequest) -> Answer:
    return probe_answer("INIT; opens its data directory", ok=False)


OPENING_PAGES: Final[Mapping[str, Page]] = {
    "/livez": _opening_alive,
    "/startupz": _opening,
    "/readyz": _opening,
    "/metrics": _opening,
}
"""Pages of a node that opens its data directory or waits for the cluster that it joins."""


def probe_pages(components: NodeComponents, readiness: Readiness) -> Mapping[str, Page]:
    """Return the pages of the probes and metrics of an open node."""
    leadership = components.leadership
    for collector in (
        RaftCollector(
            components.node, lambda: leadership.leader is not None, lambda: leadership.changes
        ),
        NodeCollector(
            components.phases,
            components.endpoint.counts,
            components.proposer,
            components.waiters,
            lambda: len(components.streams),
            lambda: len(components.scheduler.problems),
            components.temporary,
            components.disk,
            components.machine,
            server_version(),
        ),
        ScrubCollector(components.scrubber, components.unknown_tables, components.comparison),
        LoopCollector(components.loop_runs),
        ClockCollector(components.clock, lambda: components.machine.queue.wall_offset_ms),
        CertificateCollector(components.security),
    ):
        components.registry.register(collector)
    ProcessCollector(registry=components.registry)
    sliced = (
        TubeCollector(components.queues, components.clock.now_ms),
        TaskTimesCollector(components.sampler.distributions),
    )
    text, open_metrics = (
        MetricsPage(components.registry, sliced, asyncio.get_running_loop().time, form)
        for form in (TEXT_FORM, OPEN_METRICS_FORM)
    )
    return {
        "/livez": readiness.livez,
        "/startupz": readiness.startupz,
        "/readyz": readiness.readyz,
        "/metrics": MetricsHandler(text, open_metrics, components.config.metrics_token).metrics,
    }
