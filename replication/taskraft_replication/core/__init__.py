"""Raft as a pure function: no clock, no disk, no network.

The door is ``raft.RaftCore``.
"""
