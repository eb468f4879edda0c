"""Forward the log lines of a process of the pool to the worker, which has the handlers and formats.

The process adds the fields of the running task to each line before it sends the line.
"""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from logging.handlers import QueueHandler
from typing import Final, NamedTuple

from taskraft.worker.context import TaskLogFilter

log = logging.getLogger("taskraft.worker")


class ChosenLog(logging.StreamHandler):  # type: ignore[type-arg]  # the class has a parameter in stubs only
    """A stream handler of the worker's command, which replaces the app's stream handlers."""


class LogSettings(NamedTuple):
    """Logging of a worker, for its processes."""

    level: int
    """Minimum severity of lines."""
    is_chosen: bool
    """Whether the worker has replaced the stream handlers of the app."""

    @classmethod
    def of_worker(cls) -> LogSettings:
        """Return the settings of this process, the worker."""
        root = logging.getLogger()
        is_chosen = any(isinstance(one, ChosenLog) for one in root.handlers)
        return cls(root.getEffectiveLevel(), is_chosen)

    def apply(self, send: Callable[[Line], None]) -> None:
        """Forward the lines of this process, unless the app handles the lines itself.

        An app that has configured logging keeps its handlers. If the worker has replaced the stream
        handlers of the app, their lines are forwarded.
        """
        root = logging.getLogger()
        if self.is_chosen:
            for former in [one for one in root.handlers if type(one) is logging.StreamHandler]:
                root.removeHandler(former)
            logging.captureWarnings(capture=True)
        elif root.handlers:
            return
        root.addHandler(_ForwardedLog(send))
        root.setLevel(self.level)


class Line(NamedTuple):
    """Process to worker: a log record."""

    record: bytes
    """The record, pickled; a record that cannot be read therefore loses no other frame."""


class _ForwardedLog(QueueHandler):
    """Sends log records to the worker."""

    def __init__(self, send: Callable[[Line], None]) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # `enqueue` needs no queue
        self._send: Final = send
        self.addFilter(TaskLogFilter())

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return a record that can be sent: the text of the arguments and of the traceback."""
        sent = copy.copy(record)
        sent.msg, sent.args = record.getMessage(), None
        if record.exc_info:
            sent.exc_text = logging.Formatter().formatException(record.exc_info)
            sent.exc_info = None
        return sent

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send a log record to the worker."""
        self._send(Line(_pickled(record)))


def _pickled(record: logging.LogRecord) -> bytes:
    """Return a record as bytes; fields that cannot be sent become text."""
    try:
        data = pickle.dumps(record)
        pickle.loads(data)  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - the fields have code of the user
        plain = {name: _plain(value) for name, value in vars(record).items()}
        return pickle.dumps(logging.makeLogRecord(plain))
    return data


def _plain(value: object) -> object:
    """Return a value without code of the user: a number or a text."""
    if value is None or type(value) in {bool, int, float, str}:
        return value
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the value has code of the user
        return f"<{type(value).__qualname__}>"


def handle_forwarded(line: Line) -> None:
    """Handle a line of a process with the handlers of the worker's root logger.

    The process has called the handlers of its other loggers. If the worker has replaced the stream
    handlers of the app, the process has called the app's other handlers too.
    """
    try:
        record: logging.LogRecord = pickle.loads(line.record)  # noqa: S301 - our own process
    except Exception as error:  # noqa: BLE001 - the fields have code of the user
        log.warning("cannot read a log record of a process of the pool: %r", error)
        return
    if not logging.getLogger(record.name).isEnabledFor(record.levelno):
        return
    handlers = logging.getLogger().handlers
    chosen = [one for one in handlers if isinstance(one, ChosenLog)]
    for handler in chosen or handlers:
        if record.levelno >= handler.level:
            handler.handle(record)
