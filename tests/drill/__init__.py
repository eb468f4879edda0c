"""Drills: real node processes under faults, and a judge of the recorded client operations."""
