"""The task queue as a gRPC service: the shell around the pure core in ``service.queue``."""
