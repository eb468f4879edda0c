"""Hold the generated stubs of taskraft.raft."""
