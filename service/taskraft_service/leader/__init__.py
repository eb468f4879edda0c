"""What only the leader does: propose entries, let callers wait, run schedules, begin and end."""
