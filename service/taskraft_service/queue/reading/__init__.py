"""Read the queue without changing its state."""
