"""Run one member of a group on the event loop."""
