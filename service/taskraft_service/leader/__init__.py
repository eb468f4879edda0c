"""Work that only the leader does: proposing, waiting calls, schedules, temporary tubes."""
