"""Set up logging: JSON lines for machines, readable lines on a terminal.

Callers choose names and texts, and peers send error texts. JSON escapes all of them. On a terminal,
control characters are escaped, because they could hide or imitate lines.
"""

from __future__ import annotations

import logging
import re
from collections.abc import MutableMapping
from typing import Any, Final, TextIO

import structlog

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
    """Escape the texts of a record; lines of a traceback stay lines, but are marked."""
    for key, value in record.items():
        if key == "exception":
            lines = _CONTROLS.sub(_escaped, str(value)).split("\n")
            record[key] = "\n".join(f"  | {line}" for line in lines)
        elif isinstance(value, str):
            record[key] = one_line(value)
    return record


def set_up_logs(log_format: str, log_level: str, node_name: str, stream: TextIO) -> None:
    """Write all log records to one stream.

    Args:
        log_format: "json", "console", or "auto": console on a terminal.
        log_level: minimum level.
        node_name: name of the node, contained in each line.
        stream: the real stderr.
    """
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
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
    # grpc.aio logs each call that a client cancels as an error of the server.
    logging.getLogger("grpc").setLevel(logging.WARNING)
