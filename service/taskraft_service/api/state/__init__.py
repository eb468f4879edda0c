"""Reads of the queue and proposals of commands, for all services."""
