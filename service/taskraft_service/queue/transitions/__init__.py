"""Transitions of tasks, and the effects of ends, moves and changes of tasks."""
