"""A crawler that never asks a host for more than its rate, however many workers run."""
