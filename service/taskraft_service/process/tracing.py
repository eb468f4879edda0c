"""Decide from the environment whether a node exports spans, and set up the export.

The standard variables of OpenTelemetry apply. While none of them requests traces, OpenTelemetry is
not imported.
"""

from __future__ import annotations

import os
from typing import Final

from taskraft_service.config.addresses import ConfigInvalid

SWITCHES: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)
"""Variables that turn on the export of traces."""

PROTOCOL: Final = "http/protobuf"
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
"""Variables that choose the protocol; the first one that is set counts."""


def is_asked_for() -> bool:
    """Return whether the environment requests the export of traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if os.environ.get("OTEL_TRACES_EXPORTER", "").lower() == "none":
        return False
    return any(os.environ.get(name) for name in SWITCHES)


def export_from_environment() -> None:
    """Export the spans of this process over OTLP, if the environment requests traces.

    Raises:
        ConfigInvalid: the extra ``otel`` is not installed, or the exporter or the protocol is
            unknown.
    """
    if not is_asked_for():
        return
    exporter = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if exporter != "otlp":
        raise ConfigInvalid(f'OTEL_TRACES_EXPORTER is "{exporter}"; it must be otlp or none')
    variable = next((name for name in PROTOCOLS if os.environ.get(name)), "")
    if variable and os.environ[variable] != PROTOCOL:
        raise ConfigInvalid(
            f'{variable} is "{os.environ[variable]}"; it must be {PROTOCOL}, usually with port 4318'
            " of the collector"
        )
    try:
        from taskraft_service.process.spans.export import install  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ConfigInvalid(
            f"traces are requested, but {error.name} is not installed: "
            "pip install 'taskraft-server[otel]'"
        ) from error
    install()
