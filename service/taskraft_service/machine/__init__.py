"""Apply the log's entries to the queue, and show what was applied."""
