"""The group of the commands of ``taskraft pipeline``: failures in one line, and signals."""

from __future__ import annotations

import contextlib
import logging
import signal
from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.failures import SIGNALED
from taskraft.cli.stop_signals import StopSignals
from taskraft_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator

PY4J_LOGGERS: Final = (None, "py4j.clientserver", "py4j.java_gateway")
"""Names of the loggers of Py4J; None: the root."""


@contextlib.contextmanager
def without_interrupted_calls(stop: StopSignals) -> Iterator[None]:
    """Drop the tracebacks that Py4J logs after a signal has interrupted a call of the JVM."""

    def is_told(record: logging.LogRecord) -> bool:
        return not (stop.count and record.exc_info)

    loggers = [logging.getLogger(name) for name in PY4J_LOGGERS]
    for logger in loggers:
        logger.addFilter(is_told)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_told)


class PipelineGroup(click.Group):
    """The command group: prints failures in one line."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; print a failure in one line.

        SIGTERM stops Spark as Ctrl-C does, and ends with exit status 143.
        """
        with StopSignals() as stop, without_interrupted_calls(stop):
            try:
                with stop.interrupting():
                    return self._invoke(ctx)
            except (KeyboardInterrupt, Exception) as error:
                if not stop.count:
                    raise
                if stop.number == signal.SIGTERM:
                    ctx.exit(SIGNALED + signal.SIGTERM)
                raise KeyboardInterrupt from error  # also if Spark failed because of the signal

    def _invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except PipelineError as error:
            raise click.ClickException(str(error)) from error
        except Exception as error:
            from taskraft_pipeline.spark_failures import failure_text  # noqa: PLC0415 - for fast help

            told = failure_text(error)
            if told is None:
                raise
            raise click.ClickException(told) from error
