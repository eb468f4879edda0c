"""GroupService."""
