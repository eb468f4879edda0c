"""Say with which settings a node runs."""
