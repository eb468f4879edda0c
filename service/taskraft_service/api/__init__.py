"""The gRPC API: check each call, execute it as a command or a read, and encode the answer."""
