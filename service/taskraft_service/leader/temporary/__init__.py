"""Temporary tubes: what is in them lives in the memory of the leader, and goes with it."""
