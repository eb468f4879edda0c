"""Calls in, answers out: methods, the gRPC endpoint, forwarding, statuses."""
