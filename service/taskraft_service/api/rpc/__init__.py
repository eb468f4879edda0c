"""Connect handlers to gRPC: methods, endpoint, forwarding, statuses and request checks."""
