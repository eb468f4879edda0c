"""Reading the queue without changing it."""
