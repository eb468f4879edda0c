"""Transitions of tasks, and what each end, move or change of a task entails."""
