"""Hold the generated stubs of taskraft.raft.v1."""
