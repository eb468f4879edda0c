"""Add the ids of the current span to log records, so that logs can be found from a trace."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from opentelemetry import trace


def add_trace_ids(
    _logger: object, _method: str, record: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add ``trace_id`` and ``span_id`` to a record that is written during a traced call."""
    found = trace.get_current_span().get_span_context()
    if found.is_valid:
        record["trace_id"] = trace.format_trace_id(found.trace_id)
        record["span_id"] = trace.format_span_id(found.span_id)
    return record
