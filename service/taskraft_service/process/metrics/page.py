"""The page that Prometheus scrapes."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def page(registry: CollectorRegistry) -> tuple[int, str, bytes]:
    """Return everything in the text format of Prometheus."""
    return 200, CONTENT_TYPE, generate_latest(registry)
