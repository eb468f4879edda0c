"""Errors of the test kit."""

from __future__ import annotations

from unittest import SkipTest


class ServerMissing(ImportError):
    """The test kit runs the code of the server, which is not installed."""


class ClockStuck(AssertionError):
    """A call of the test kit waits for an event that never comes, or runs for too long."""


class TasksLeft(AssertionError):
    """Tasks are left at the end of the time limit."""


class NotInReal(SkipTest):
    """A test on a real node needs a cluster in memory; pytest and unittest skip the test."""


def not_in_real(needed: str) -> NotInReal:
    """Return the error for something that only a cluster in memory can do."""
    return NotInReal(f"{needed} needs a cluster in memory; run without --taskraft=real")
