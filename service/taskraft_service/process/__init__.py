"""Run one node as a process: its settings, its parts, its probes, its end."""
