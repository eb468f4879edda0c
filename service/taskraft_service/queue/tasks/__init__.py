"""Tasks: what one is, how it is written, changed, moved, found by its key, and how it ends."""
