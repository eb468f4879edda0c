"""Schedules: tasks that are put by the clock."""
