"""Apply log entries to the queue, and give readers access to the applied state."""
