"""Hold the generated stubs of taskraft_service.stubs.forwarding.v1."""
