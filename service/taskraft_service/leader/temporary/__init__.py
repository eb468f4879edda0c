"""Temporary tubes: their tasks are in the memory of the leader and are lost with the leadership."""
