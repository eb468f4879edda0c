"""Run a node in the memory of another process: no log, no disk, no port."""
