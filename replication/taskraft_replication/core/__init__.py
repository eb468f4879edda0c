"""Raft as a pure function, without clock, disk and network.

``raft.RaftCore`` is the public interface.
"""
