"""Hold the generated stubs of taskraft.v1."""
