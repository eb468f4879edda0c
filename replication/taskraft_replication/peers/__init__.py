"""Carry the core's messages between the members of all groups."""
