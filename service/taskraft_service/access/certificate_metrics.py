"""Show Prometheus until when the certificates in force are valid."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taskraft_service.access.security import NodeSecurity


class CertificateCollector(Collector):
    """Reads the certificates when it is scraped; a port without one has no series."""

    def __init__(self, security: NodeSecurity) -> None:
        self._security = security

    def collect(self) -> Iterator[Metric]:
        """Yield the series."""
        family = GaugeMetricFamily(
            "taskraft_certificate_expires_timestamp_seconds",
            "When the certificate of a port expires.",
            labels=["port"],
        )
        peer = self._security.peer
        ports = {"client": self._security.client, "peer": None if peer is None else peer.current}
        for port, current in ports.items():
            if current is not None:
                family.add_metric([port], current.tls.expires_at.timestamp())
        yield family
