"""Trace tasks from their producers to their consumers with OpenTelemetry.

Tracing is on for clients made after the process has set up a tracer provider, by itself or with
`configure_from_environment`; the library never sets one on its own. While it is off, OpenTelemetry
is not imported and costs one comparison per call.

ClientSpans follow the messaging conventions: ``send TUBE`` (producer), ``receive TUBE`` (client),
``process TUBE`` (consumer) and ``ack TUBE`` and the like (client). The context of the put travels
in the task's headers as W3C ``traceparent`` and ``tracestate``; the consumer's spans are linked to
it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from taskraft._spans import ClientSpans

PARENT_VARIABLE: Final = "TASKRAFT_TRACE_PARENT"
"""Set to 1, the span of the processing is a child of the put instead of linked to it only."""

SWITCHES: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)
"""Variables that ask for traces."""


def is_asked_for(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether the environment asks for traces to be exported."""
    found = os.environ if environment is None else environment
    if found.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if found.get("OTEL_TRACES_EXPORTER", "").lower() == "none":
        return False
    return any(found.get(name) for name in SWITCHES)


def configure_from_environment(service_name: str = "taskraft") -> bool:
    """Export spans over OTLP as the standard variables say; return whether they are exported.

    For programs, not for libraries: it sets the tracer provider of the process. It does nothing
    when no variable asks for it or a provider was set before. Call it after a fork, not before.

    Args:
        service_name: Name of the service where OTEL_SERVICE_NAME is not set.

    Raises:
        RuntimeError: Traces are asked for and the extra ``otel`` is not installed, or
            OTEL_TRACES_EXPORTER names an exporter other than otlp and console.
    """
    if not is_asked_for():
        return False
    try:
        from taskraft import _trace_exporter  # noqa: PLC0415 - OpenTelemetry is imported only when asked for
    except ImportError as error:
        raise RuntimeError(
            f"traces are asked for, but {error.name} is missing: pip install 'taskraft[otel]'"
        ) from error
    return _trace_exporter.install(service_name, os.environ.get("OTEL_TRACES_EXPORTER") or "otlp")


def current_spans(client_id: str) -> ClientSpans | None:
    """Return what makes the spans of a client, or None when tracing is off."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - somebody else has imported it already

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    from taskraft._spans import ClientSpans  # noqa: PLC0415 - needs OpenTelemetry, which is optional

    is_parent = os.environ.get(PARENT_VARIABLE) == "1"
    return ClientSpans(trace.get_tracer_provider(), client_id, is_parent=is_parent)
