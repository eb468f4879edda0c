"""Set the tracer provider of a node's process, with an exporter for OTLP over HTTP."""

from __future__ import annotations

from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

SERVICE_NAME: Final = "taskraft-server"
"""Name of the service, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES sets another name."""


def install() -> None:
    """Export the spans of this process; the SDK reads the other variables."""
    resource = Resource.create()
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": SERVICE_NAME}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
