"""Bring the state to a member that the log no longer reaches."""
