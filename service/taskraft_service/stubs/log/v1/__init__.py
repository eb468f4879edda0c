"""Hold the generated stubs of taskraft_service.stubs.log.v1."""
