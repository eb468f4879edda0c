"""The gRPC surface: each call is checked, converted, proposed or read, and answered."""
