"""Set up OpenTelemetry's SDK for programs of this package; imported only on request."""

from __future__ import annotations

import os
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
)

PROTOCOL: Final = "http/protobuf"
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
"""Variables that choose the protocol; the first one that is set counts."""


def install(service_name: str, exporter: str) -> bool:
    """Set the tracer provider of the process unless one is set; return whether it was set."""
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return False
    detected = Resource.create()  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
    if str(detected.attributes.get("service.name", "")).startswith("unknown_service"):
        detected = detected.merge(Resource({"service.name": service_name}))
    provider = TracerProvider(resource=detected)  # OTEL_TRACES_SAMPLER is read by the SDK
    for name in exporter.split(","):
        provider.add_span_processor(_processor(name.strip()))
    trace.set_tracer_provider(provider)
    return True


def _processor(exporter: str) -> SpanProcessor:
    match exporter:
        case "otlp":
            _check_protocol()
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - optional
                OTLPSpanExporter,
            )

            return BatchSpanProcessor(OTLPSpanExporter())
        case "console":
            return SimpleSpanProcessor(ConsoleSpanExporter())
        case _:
            raise RuntimeError(
                f'OTEL_TRACES_EXPORTER is "{exporter}"; it must be otlp, console or none'
            )


def _check_protocol() -> None:
    """Refuse other protocols than the one of the exporter.

    Raises:
        RuntimeError: the environment asks for another protocol, whose port does not speak HTTP.
    """
    for variable in PROTOCOLS:
        protocol = os.environ.get(variable)
        if protocol and protocol != PROTOCOL:
            raise RuntimeError(
                f'{variable} is "{protocol}"; it must be {PROTOCOL}, usually with port 4318 of the'
                " collector. The exporter for gRPC does not work in processes that fork"
            )
        if protocol:
            return
