"""Write log lines to standard error, as text or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


def log_to_stderr(level: str, form: str, *, is_chosen: bool) -> None:
    """Log all lines with the fields of the running task.

    Args:
        level: minimum severity.
        form: "text" or "json".
        is_chosen: replace the stream handlers of an app that has configured logging itself. Its
            other handlers stay.
    """
    from taskraft.worker import TaskLogFilter

    handler = logging.StreamHandler()
    handler.addFilter(TaskLogFilter())
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonFormatter() if form == "json" else text)
    root = logging.getLogger()
    if is_chosen:
        for former in [one for one in root.handlers if type(one) is logging.StreamHandler]:
            root.removeHandler(former)
        root.addHandler(handler)
        root.setLevel(level)
    else:
        logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(capture=True)


class _JsonFormatter(logging.Formatter):
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
        return json.dumps(line, default=str)
