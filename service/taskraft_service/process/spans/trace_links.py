"""Read trace contexts from calls and from the headers of tasks, in the W3C format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from taskraft.v1 import task_pb2
from taskraft_service.api.rpc.forwarding_metadata import TRACE_KEYS, trace_context

_W3C = TraceContextTextMapPropagator()


def span_context(carrier: Mapping[str, str]) -> SpanContext | None:
    """Return the trace context of a carrier; None if it has none or a malformed one."""
    found = trace.get_current_span(_W3C.extract(carrier, Context())).get_span_context()
    return found if found.is_valid else None


def caller_of(metadata: Mapping[str, str | bytes]) -> SpanContext | None:
    """Return the trace context of the caller; None if the call has none."""
    return span_context(dict(trace_context(metadata)))


def creation_of(spec: task_pb2.TaskSpec) -> SpanContext | None:
    """Return the trace context that the producer stored in the headers of a task."""
    headers = spec.headers
    if TRACE_KEYS[0] not in headers:
        return None
    return span_context(
        {key: headers[key].decode("ascii", "replace") for key in TRACE_KEYS if key in headers}
    )


def creations_of(specs: Iterable[task_pb2.TaskSpec]) -> Iterator[SpanContext]:
    """Yield the trace contexts of the tasks that have one."""
    for spec in specs:
        found = creation_of(spec)
        if found is not None:
            yield found
