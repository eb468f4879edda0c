"""The task queue as a gRPC service: a shell around the pure core ``taskraft_service.queue``."""
