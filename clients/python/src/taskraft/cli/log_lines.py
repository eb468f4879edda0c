"""Write log lines to standard error, as text or as JSON."""

from __future__ import annotations

import logging

from taskraft.cli.json_formatter import JsonFormatter


def log_to_stderr(level: str, form: str, *, is_chosen: bool) -> None:
    """Log all lines with the fields of the running task.

    Args:
        level: minimum severity.
        form: "text" or "json".
        is_chosen: replace the stream handlers of an app that has configured logging itself. Its
            other handlers stay.
    """
    from taskraft.worker import TaskLogFilter
    from taskraft.worker.forwarded_log import ChosenLog

    handler = ChosenLog() if is_chosen else logging.StreamHandler()
    handler.addFilter(TaskLogFilter())
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    root = logging.getLogger()
    if is_chosen:
        for former in [one for one in root.handlers if type(one) is logging.StreamHandler]:
            root.removeHandler(former)
        root.addHandler(handler)
        root.setLevel(level)
    else:
        logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(capture=True)
