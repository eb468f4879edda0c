"""Send the state to followers that need log entries that were deleted."""
