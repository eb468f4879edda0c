"""Set up logging: JSON lines for machines, readable lines on a terminal.

Records contain texts from clients and peers. JSON escapes control characters; the format for a
terminal escapes them too, because they could hide or imitate lines.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import re
import sys
import time
from collections.abc import MutableMapping, Sequence
from typing import Any, Final, TextIO

import structlog

from taskraft_service.access.audit import AUDIT_LOGGER
from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.process import tracing
from taskraft_service.record_budget import RecordBudget

log: Final = structlog.get_logger(__name__)

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that move the cursor, end a line or change the direction of the text, without tab and
line feed."""
_CONTROLS_OF_LINES: Final = re.compile(rf"[\t\n]|{_CONTROLS.pattern}")


def one_line(text: str) -> str:
    """Return a text with all control characters escaped, as in a Python string."""
    return _CONTROLS_OF_LINES.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "backslashreplace").decode()


def _escape_for_terminal(
    _logger: object, _method: str, record: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Escape the texts of a record; prefix the lines of a traceback with a mark."""
    for key, value in record.items():
        if key == "exception":
            lines = _CONTROLS.sub(_escaped, str(value)).split("\n")
            record[key] = "\n".join(f"  | {line}" for line in lines)
        elif isinstance(value, str):
            record[key] = one_line(value)
    return record


class _AuditFile(logging.handlers.WatchedFileHandler):
    """Appends to a file, which another program may move away or replace."""

    def __init__(self, path: str) -> None:
        self._complaints = RecordBudget(1, 1 / 60, time.monotonic)
        # Create the file with a private mode, because other users must not read the records.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640))
        super().__init__(path, encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        """Append a record; open the file again first if it was moved away."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - a name of the base class
        """Report a lost record to the process log, at most once per minute."""
        lost = self._complaints.take()
        if lost is not None:
            log.error(
                "the audit log cannot be written", reason=repr(sys.exc_info()[1]), lost=1 + lost
            )


def _audit_handler(audit_log: str) -> logging.Handler:
    """Return the handler of the audit log.

    Raises:
        ConfigInvalid: the file or the descriptor cannot be written.
    """
    kind, _, number = audit_log.partition(":")
    try:
        if kind == "fd" and number.isdecimal():
            os.write(int(number), b"")  # fails if the descriptor is closed or read-only
            stream = os.fdopen(int(number), "w", encoding="utf-8", closefd=False)
            return logging.StreamHandler(stream)
        return _AuditFile(audit_log)
    except OSError as error:
        raise ConfigInvalid(f"audit_log: cannot open {audit_log}: {error.strerror}") from error


def set_up_logs(
    log_format: str, log_level: str, node_name: str, stream: TextIO, audit_log: str = ""
) -> None:
    """Write log records to a stream, and audit records to their own destination if one is set.

    Args:
        log_format: "json", "console", or "auto": console on a terminal.
        log_level: minimum level.
        node_name: name of the node, contained in each line.
        stream: the real stderr.
        audit_log: destination of the audit log; see ``ServerConfig``.

    Raises:
        ConfigInvalid: the destination of the audit log cannot be written.
    """
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        *_trace_ids(),
    ]
    renderers: list[structlog.typing.Processor] = (
        [_escape_for_terminal, structlog.dev.ConsoleRenderer()]
        if console
        else [structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(node=node_name)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(_LEVELS[log_level])
    if audit_log:
        own = _audit_handler(audit_log)
        own.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=shared,
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.JSONRenderer(),
                ],
            )
        )
        auditor = logging.getLogger(AUDIT_LOGGER)
        auditor.handlers = [own]
        auditor.setLevel(logging.INFO)
        auditor.propagate = False
    # grpc.aio logs each call that a client cancels as an error of the server.
    logging.getLogger("grpc").setLevel(logging.WARNING)


def _trace_ids() -> Sequence[structlog.typing.Processor]:
    """Return the log processor that adds trace and span ids; no processor without tracing."""
    if not tracing.is_asked_for():
        return ()
    from taskraft_service.process.spans.log_ids import add_trace_ids  # noqa: PLC0415 - optional

    return (add_trace_ids,)


def switch_debug(log_level: str) -> None:
    """Log at level debug from now on, or at the configured level again.

    Args:
        log_level: the configured level.
    """
    root, configured = logging.getLogger(), _LEVELS[log_level]
    root.setLevel(logging.DEBUG if root.level == configured else configured)
    log.warning("the log level changed", to=logging.getLevelName(root.level).lower())
