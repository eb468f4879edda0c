"""Simulate a group of members with faults, from one seed: real core, real driver, virtual world."""
