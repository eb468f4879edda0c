"""Hold the generated stubs of taskraft_replication.stubs.log.v1."""
