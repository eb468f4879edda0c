"""Encode commands as log entries, and decode them."""
