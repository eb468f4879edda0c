"""The mutable state of the queue: tasks in memory, and registries of everything else."""
