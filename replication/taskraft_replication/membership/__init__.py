"""Define the roster of a group and its encoding."""
