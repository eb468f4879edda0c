"""Format log records as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with the fields of the task."""

    FIELDS = ("task", "type", "attempt", "tube", "token", "trace_id", "span_id")

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: vars(record)[name] for name in self.FIELDS if name in vars(record)},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:  # a line of a process of the pool
            line["exception"] = record.exc_text
        return json.dumps(line, default=str)
