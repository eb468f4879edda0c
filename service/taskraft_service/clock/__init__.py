"""Cluster time, and its offset to the wall clocks."""
