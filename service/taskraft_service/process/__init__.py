"""Run one node as a process: settings, components, probes, shutdown."""
