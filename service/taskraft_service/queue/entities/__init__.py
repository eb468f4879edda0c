"""Values that every layer of the queue shares; the bottom of its layers."""
