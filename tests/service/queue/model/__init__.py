"""The naive queue: the reference for the real queue, with plain lists that are searched."""
