"""ScheduleService."""
