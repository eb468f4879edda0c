"""Errors of the test kit."""

from __future__ import annotations


class ServerMissing(ImportError):
    """The test kit runs the code of the server, which is not installed."""


class ClockStuck(AssertionError):
    """A call of the test kit waits for an event that never comes, or runs for too long."""


class TasksLeft(AssertionError):
    """Tasks are left at the end of the time limit."""
