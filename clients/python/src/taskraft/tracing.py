"""Trace tasks from producers to consumers with OpenTelemetry.

Tracing is on for clients that are created after the process has set a tracer provider, by itself or
with `configure_from_environment`. The library never sets a provider on its own. While tracing is
off, OpenTelemetry is not imported, and the overhead is one comparison per call.

Span names follow the messaging conventions: ``send TUBE`` (producer), ``receive TUBE`` (client),
``process TUBE`` (consumer), and ``ACTION TUBE`` for settlements (client). The put stores its
context in the task's headers as W3C ``traceparent`` and ``tracestate``; the consumer's spans are
linked to that context.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from taskraft._spans import ClientSpans

PARENT_VARIABLE: Final = "TASKRAFT_TRACE_PARENT"
"""Set to 1: the processing span is a child of the put, instead of being linked to it."""

SWITCHES: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)
"""Variables that turn on trace export."""


def is_asked_for(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether the environment requests the export of traces."""
    found = os.environ if environment is None else environment
    if found.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if found.get("OTEL_TRACES_EXPORTER", "").lower() == "none":
        return False
    return any(found.get(name) for name in SWITCHES)


def configure_from_environment(service_name: str = "taskraft") -> bool:
    """Export spans over OTLP as the standard variables say; return whether they are exported.

    Programs may call this function, libraries must not: it sets the tracer provider of the process.
    It does nothing if no variable requests traces or if a provider is already set. Call it after a
    fork, not before.

    Args:
        service_name: name of the service if OTEL_SERVICE_NAME is not set.

    Raises:
        RuntimeError: traces are requested and the extra ``otel`` is not installed, or
            OTEL_TRACES_EXPORTER is not otlp, console or none.
    """
    if not is_asked_for():
        return False
    try:
        from taskraft import _trace_exporter  # noqa: PLC0415 - optional dependency
    except ImportError as error:
        raise RuntimeError(
            f"traces are requested, but {error.name} is not installed: pip install 'taskraft[otel]'"
        ) from error
    return _trace_exporter.install(service_name, os.environ.get("OTEL_TRACES_EXPORTER") or "otlp")


def current_spans(client_id: str) -> ClientSpans | None:
    """Return the object that creates a client's spans; None if tracing is off."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - the process has imported it already

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    from taskraft._spans import ClientSpans  # noqa: PLC0415 - needs OpenTelemetry, which is optional

    is_parent = os.environ.get(PARENT_VARIABLE) == "1"
    return ClientSpans(trace.get_tracer_provider(), client_id, is_parent=is_parent)
