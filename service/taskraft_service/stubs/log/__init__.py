"""Hold the generated stubs of taskraft.log."""
