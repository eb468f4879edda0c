"""Decide what the core's ``Ready`` means for disk, network and state machine; perform nothing."""
