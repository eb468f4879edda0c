"""Reads of the cluster, shared by all open pages."""
