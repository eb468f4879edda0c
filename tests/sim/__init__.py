"""Simulate a Raft group with faults from one seed: real core and driver, simulated environment."""
