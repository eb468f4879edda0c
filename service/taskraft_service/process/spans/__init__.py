"""Spans of a node; imported only if the environment requests the export of traces."""
