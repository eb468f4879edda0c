"""The orders of ready tasks, which determine the next task to take from a tube."""
