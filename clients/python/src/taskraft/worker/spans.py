"""Describe handlers in the spans of the client, and return the ids of the current trace.

Without OpenTelemetry, the functions do nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

TYPE = "messaging.taskraft.type"
POOL = "messaging.taskraft.pool"
FUNCTION = "code.function.name"


def describe_span(name: str, pool: str, function: Callable[..., Any]) -> None:
    """Add task type, pool and handler to the client's span of the processing."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attributes(
            {
                TYPE: name,
                POOL: pool,
                FUNCTION: f"{function.__module__}.{function.__qualname__}",
            }
        )


def trace_fields() -> dict[str, str]:
    """Return trace id and span id of the current span for a log record, in hexadecimal digits."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
