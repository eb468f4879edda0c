"""Report whether a node is ready, to the gRPC health service and to Kubernetes probes."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from taskraft_replication.background import Background
from taskraft_service.access.security import CertificateCollector
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.process.components import NodeComponents
from taskraft_service.process.metrics.node import NodeCollector
from taskraft_service.process.metrics.raft import RaftCollector
from taskraft_service.process.metrics.tubes import TubeCollector
from taskraft_service.process.probes import Answer, ProbeServer, probe_answer

LAG_ENTRIES_MAX: Final = 10_000
"""Maximum number of committed but unapplied entries of a ready node."""
SILENCE_MS_MAX: Final = 60_000
"""Maximum time without a leader of a ready node; far longer than an election."""


METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Readiness:
    """Readiness of a node; follows the phase changes by itself.

    Args:
        components: the components of the node.
    """

    def __init__(self, components: NodeComponents) -> None:
        self._components = components
        self._background = Background()
        components.phases.listen(lambda _phase: self._say_health())

    @property
    def is_ready(self) -> bool:
        """Return whether the node answers calls and is not far behind the commit index."""
        components = self._components
        if components.endpoint.draining or components.phases.phase is NodePhase.INIT:
            return False
        status = components.node.status()
        is_near = status.commit - status.applied <= LAG_ENTRIES_MAX
        return is_near and components.leadership.silence_ms() <= SILENCE_MS_MAX

    def _say_health(self) -> None:
        components = self._components
        if not components.endpoint.draining:
            saying = components.health.phase_changed(components.phases.phase, ready=self.is_ready)
            self._background.start(saying)

    def startupz(self) -> Answer:
        """Return whether the node has caught up with its cluster since its start."""
        phase = self._components.phases.phase
        return probe_answer(phase.name, ok=phase is not NodePhase.INIT)

    def readyz(self) -> Answer:
        """Return whether the node is ready."""
        return probe_answer(self._components.phases.phase.name, ok=self.is_ready)


def probe_server(components: NodeComponents, readiness: Readiness) -> ProbeServer:
    """Return the server of probes and metrics; it does not listen yet."""
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
            components.temporary,
            components.disk,
            components.machine,
        ),
        TubeCollector(components.queues, components.clock.now_ms),
        CertificateCollector(components.security),
    ):
        components.registry.register(collector)
    return ProbeServer(
        {
            "/livez": lambda: probe_answer("alive", ok=True),
            "/startupz": readiness.startupz,
            "/readyz": readiness.readyz,
            "/metrics": lambda: _metrics(components.registry),
        }
    )


def _metrics(registry: CollectorRegistry) -> Answer:
    """Return all metrics in the Prometheus text format."""
    return 200, METRICS_CONTENT_TYPE, generate_latest(registry)
